"""Shared copies of large buffers: memory that both sides of a remote cell map on one host.

A shadow holds the content of a buffer that both sides have. A side finds its changes by comparing
its buffer with the shadow, writes the changed chunks there, and the other side reads them. So a
buffer that changes costs one copy and no digest, a comparison stops at the first difference of a
chunk, and no change is missed.

A buffer gets a shadow when most of it travels again: then it changes from cell to cell. The memory
is taken once for both sides, up to `_MOST_BYTES` and to a part of what the machine has left. Other
buffers have digests (chunks.py), as everything has where numpy or shared memory is missing.

Invariants:
1. A shadow is written only by the side whose turn it is: the notebook before a cell, the worker
   after it. Comparisons write nothing, so a cell that is given up in time leaves the shadow alone.
2. A shadow is never reused for another buffer. Its memory goes when both sides have dropped it.
3. After a failed transfer the notebook forgets its shadows, and each buffer travels again before
   the worker compares it.
"""

import ctypes
import itertools
import mmap
import os
import weakref

from . import chunks

_LEAST_BYTES = 1 << 20
_MOST_BYTES = 1 << 30
_PART = 4  # a shadow takes at most 1/_PART of the memory that is left
_MEMINFO = "/proc/meminfo"
_GROUP = "/sys/fs/cgroup/memory."  # the limit of a container
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Shadow:
    """One shared copy. `token` tells the other side where it is; `view` are its bytes."""

    def __init__(self, token, path):
        self.token = token
        self.size = token[2]
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.view = _map(descriptor, self.size)
        finally:
            os.close(descriptor)
        self._complete = False

    @classmethod
    def of(cls, token):
        """Returns the shadow that the other side made. Raises OSError where it is gone."""
        pid, descriptor, _, _ = token
        shadow = cls(token, f"/proc/{pid}/fd/{descriptor}")
        shadow._complete = True
        return shadow

    def changed_ranges(self, buffer):
        """Returns the list of (offset, length) where a buffer of the same size differs."""
        return chunks.differing_ranges(buffer, self.view)

    def write(self, buffer, ranges):
        """Takes the ranges over from a buffer, the first time the whole buffer."""
        for offset, length in ranges if self._complete else [(0, self.size)]:
            self.view[offset : offset + length] = buffer[offset : offset + length]
        self._complete = True


class Shadows:
    """The shadows that this side has made; the other side has its own ones."""

    def __init__(self):
        self._numbers = itertools.count()
        self._alive = weakref.WeakSet()
        self._unread = []  # descriptors that the other side has not opened yet

    def new(self, size):
        """Returns a shadow of `size` bytes, or None where it would take too much memory."""
        taken = sum(shadow.size for shadow in self._alive)
        if not _LEAST_BYTES <= size <= min(_MOST_BYTES - taken, _memory_left() // _PART):
            return None
        try:
            descriptor = os.memfd_create("tandem-shadow", os.MFD_CLOEXEC)
        except OSError:
            return None
        self._unread.append(descriptor)
        try:
            os.ftruncate(descriptor, size)
            token = (os.getpid(), descriptor, size, next(self._numbers))
            shadow = Shadow(token, f"/proc/self/fd/{descriptor}")
        except OSError:
            return None
        self._alive.add(shadow)
        return shadow

    def received(self):
        """Says that the other side has mapped what was sent to it."""
        unread, self._unread = self._unread, []
        for descriptor in unread:
            os.close(descriptor)

    __del__ = received


def compare(known, buffer, shadows):
    """Returns (content, ranges): what the other side has afterwards, and the bytes it lacks.

    `known` is the content that it has: a Shadow, digests, or None. `shadows` makes new ones; None
    where the other side cannot map them.
    """
    size = len(buffer)
    if isinstance(known, Shadow):
        if known.size == size:
            return known, known.changed_ranges(buffer)
        known = None
    digests = chunks.digests(buffer)
    ranges = chunks.changed_ranges(known, digests, size)
    if known is not None and shadows is not None and chunks.can_compare():
        if 2 * sum(length for _, length in ranges) > size:
            return shadows.new(size) or digests, ranges
    return digests, ranges


def _map(descriptor, size):
    """Returns a view of shared memory. Unlike `mmap.mmap`, it keeps no descriptor open."""
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc.mmap(None, size, access, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "cannot map a shared copy")
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False
    return memoryview(memory).cast("B")


def _memory_left():
    """Returns the bytes of memory that this process may still take."""
    try:
        lines = dict(line.split(":", 1) for line in _text(_MEMINFO).splitlines())
        left = int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return 0
    try:
        return min(left, int(_text(_GROUP + "max")) - int(_text(_GROUP + "current")))
    except (OSError, ValueError):  # no limit
        return left


def _text(path):
    with open(path, encoding="ascii") as file:
        return file.read()
