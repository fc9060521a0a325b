"""Detects which chunks of a buffer changed, without a second copy of the buffer.

The digest of a chunk has two lanes of 64 bits, sums modulo 2**64: of its words times fixed random
weights, and of the upper halves of its words times other weights. A change of any bits is missed
with a probability below 2**-33, a change of many bits with one of about 2**-64. This costs about
half of a copy of the buffer; SHA-1 would cost two or three times as much. A shorter chunk at the
end has 16 bytes of SHA-1. Where numpy is missing, every chunk has that.

Digests protect against forgetting a change, not against an adversary: both sides trust each other.
"""

import ctypes
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

try:
    import numpy
except ImportError:
    numpy = None

CHUNK = 1 << 17  # with the weights, it fits the cache of a core
DIGEST = 16  # bytes
_PARALLEL_BYTES = 32 * CHUNK
_WORDS = CHUNK // 8
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcmp.restype = ctypes.c_int
_pool = None
_weights = None


def digests(buffer):
    """Returns the digests of the chunks of a contiguous buffer, one after the other, as bytes."""
    view = memoryview(buffer)
    whole = len(view) // CHUNK * CHUNK if numpy is not None else 0
    if whole < _PARALLEL_BYTES:
        parts = [_lanes(view[:whole])]
    else:
        half = whole // 2 // CHUNK * CHUNK
        second = _threads().submit(_lanes, view[half:whole])
        parts = [_lanes(view[:half]), second.result()]
    parts += [_sha1(view[at : at + CHUNK]) for at in range(whole, len(view), CHUNK)]
    return b"".join(parts)


def changed_ranges(old, new, size):
    """Returns the list of (offset, length) where the digests of a buffer differ.

    Adjacent chunks become one range. `old` None, or of another length, means the whole buffer.
    """
    if not size:
        return []
    if old is None or len(old) != len(new):
        return [(0, size)]
    if old == new:
        return []
    pieces = [slice(at, at + DIGEST) for at in range(0, len(new), DIGEST)]
    changed = [index * CHUNK for index, where in enumerate(pieces) if old[where] != new[where]]
    return _joined(changed, size)


def can_compare():
    """Returns whether `differing_ranges` can be used: it needs numpy for addresses."""
    return numpy is not None


def differing_ranges(buffer, other):
    """Returns the list of (offset, length) of the chunks in which two buffers of a size differ.

    Reads a chunk up to its first difference.
    """
    size = len(buffer)
    arrays = [numpy.frombuffer(view, numpy.uint8) for view in (buffer, other)]
    one, two = [array.__array_interface__["data"][0] for array in arrays]

    # An interrupt may leave the second thread behind: the arrays keep the memory for it.
    def changed(first, end, _arrays=arrays):
        return [
            start
            for start in range(first, end, CHUNK)
            if _memcmp(one + start, two + start, min(CHUNK, size - start))
        ]

    if size < _PARALLEL_BYTES:
        return _joined(changed(0, size), size)
    half = size // 2 // CHUNK * CHUNK
    second = _threads().submit(changed, half, size)
    return _joined(changed(0, half) + second.result(), size)


def _joined(starts, size):
    """Returns ranges of the chunks that begin at `starts`; adjacent ones become one range."""
    ranges = []
    for start in starts:
        length = min(CHUNK, size - start)
        if ranges and sum(ranges[-1]) == start:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + length)
        else:
            ranges.append((start, length))
    return ranges


def _lanes(view):
    """Returns the digests of a view of whole chunks."""
    if not len(view):
        return b""
    low, high = _fixed_weights()
    rows = numpy.frombuffer(view, numpy.uint64).reshape(-1, _WORDS)
    upper = numpy.empty(_WORDS, numpy.uint64)
    lanes = numpy.empty((len(rows), 2), numpy.uint64)
    for index, row in enumerate(rows):
        numpy.right_shift(row, numpy.uint64(32), out=upper)
        lanes[index, 0] = numpy.dot(row, low)
        lanes[index, 1] = numpy.dot(upper, high)
    return lanes.tobytes()


def _sha1(piece):
    return hashlib.sha1(piece, usedforsecurity=False).digest()[:DIGEST]


def _fixed_weights():
    """Returns the weights of both lanes, the same in every process."""
    global _weights
    if _weights is None:
        data = hashlib.shake_128(b"tandem remote cells").digest(2 * CHUNK)
        _weights = numpy.frombuffer(data, "<u8").astype(numpy.uint64).reshape(2, _WORDS)
    return _weights


def _threads():
    """Returns the second thread of this process; a forked child makes its own."""
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        _pool = (os.getpid(), ThreadPoolExecutor(1, "tandem-digest"))
    return _pool[1]
