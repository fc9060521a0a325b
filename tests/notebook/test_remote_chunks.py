"""Changes of a buffer are found, chunk by chunk."""

import random

import pytest

import remote_fixtures  # noqa: F401  puts the package on the path
from tandem.remote import chunks
from tandem.remote.chunks import CHUNK, changed_ranges, digests

np = pytest.importorskip("numpy")
SIZE = 20 * CHUNK + 1000


def test_every_changed_range_is_found():
    data = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
    before = digests(memoryview(data))
    assert changed_ranges(before, digests(memoryview(data.copy())), SIZE) == []
    for offset in (0, CHUNK - 1, CHUNK, 7 * CHUNK + 13, 20 * CHUNK, SIZE - 1):
        changed = data.copy()
        changed[offset] ^= 1
        ((start, length),) = changed_ranges(before, digests(memoryview(changed)), SIZE)
        assert start <= offset < start + length and length <= CHUNK
    changed = data.copy()
    changed[CHUNK : 3 * CHUNK] += 1
    assert changed_ranges(before, digests(memoryview(changed)), SIZE) == [(CHUNK, 2 * CHUNK)]
    assert changed_ranges(None, before, SIZE) == [(0, SIZE)]
    assert changed_ranges(None, b"", 0) == []


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "i1", "c16"])
def test_changes_of_few_bits_are_found(kind):
    """Signs, single bits, exchanged elements: what a weak checksum misses."""
    rng = np.random.default_rng(2)
    data = rng.integers(1, 100, CHUNK // np.dtype(kind).itemsize).astype(kind)
    before = digests(memoryview(data.view("u1")))
    rolled, swapped, bits = np.roll(data, 1), data.copy(), data.copy()
    swapped[0], swapped[5] = data[5] + 1, data[0]
    bits.view("u1")[:: 2 * np.dtype(kind).itemsize] ^= 0x80
    for other in (-data, rolled, swapped[::-1].copy(), bits, np.zeros_like(data), data + 1):
        assert digests(memoryview(other.view("u1"))) != before
    pairs = random.Random(3)
    for _ in range(300):
        flipped = data.copy().view("u1")
        for _ in range(2):
            flipped[pairs.randrange(len(flipped))] ^= 1 << pairs.randrange(8)
        if not np.array_equal(flipped, data.view("u1")):
            assert digests(memoryview(flipped)) != before


def test_without_numpy_the_digests_are_sha1(monkeypatch):
    data = bytes(3 * CHUNK + 5)
    monkeypatch.setattr(chunks, "numpy", None)
    found = digests(data)
    assert len(found) == 4 * chunks.DIGEST
    assert changed_ranges(found, digests(data[:-1] + b"x"), len(data)) == [(3 * CHUNK, 5)]
