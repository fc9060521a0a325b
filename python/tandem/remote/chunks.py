"""Detects which chunks of a buffer changed, by SHA-1 of chunks of 1 MiB on two threads.

SHA-1 is used as a checksum, not against an adversary: both sides trust each other. It costs about
as much as one copy of the buffer, and no second copy of the data is kept.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

CHUNK = 1 << 20
_PARALLEL_BYTES = 4 * CHUNK
_pool = None


def digests(buffer):
    """Returns the tuple of digests of the chunks of a contiguous buffer of bytes."""
    view = memoryview(buffer)
    pieces = [view[at : at + CHUNK] for at in range(0, len(view), CHUNK)]
    if len(view) < _PARALLEL_BYTES:
        return tuple(map(_digest, pieces))
    half = (len(pieces) + 1) // 2
    second = _threads().submit(lambda: [_digest(piece) for piece in pieces[half:]])
    first = [_digest(piece) for piece in pieces[:half]]
    return tuple(first + second.result())


def changed_ranges(old, new, size):
    """Returns the list of (offset, length) where two digest tuples of a buffer differ.

    Adjacent chunks become one range. `old` None, or of another length, means the whole buffer.
    """
    if not size:
        return []
    if old is None or len(old) != len(new):
        return [(0, size)]
    ranges = []
    for index, (before, after) in enumerate(zip(old, new)):
        if before == after:
            continue
        start = index * CHUNK
        length = min(CHUNK, size - start)
        if ranges and ranges[-1][0] + ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + length)
        else:
            ranges.append((start, length))
    return ranges


def _digest(piece):
    return hashlib.sha1(piece, usedforsecurity=False).digest()


def _threads():
    """Returns the thread pool of this process; a forked child makes its own."""
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        _pool = (os.getpid(), ThreadPoolExecutor(1, "tandem-digest"))
    return _pool[1]
