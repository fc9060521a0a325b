"""Programs that take their memory in stream order, from pools, share a card that is too small."""

import pytest

from harness import finish

pytestmark = pytest.mark.sanitized

# Holds BLOCKS blocks of 8 MiB, each with contents of its own. In each round a few are freed and
# allocated anew, in two streams, and all are looked at; says how many there were at most.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
BYTES, BLOCKS, ROUNDS, SEED = 8 << 20, int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
SIZE = ctypes.c_size_t(BYTES)

def check(result):
    assert result == 0, result

context, streams = ctypes.c_void_p(), [ctypes.c_void_p() for _ in range(2)]
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
for stream in streams:
    check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
host = (ctypes.c_uint32 * (BYTES // 4))()

def allocate(number, stream):
    block = ctypes.c_uint64()
    result = cuda.cuMemAllocAsync(ctypes.byref(block), SIZE, stream)
    if result == 2:
        return None
    check(result)
    check(cuda.cuMemsetD32Async(block, SEED + number, ctypes.c_size_t(BYTES // 4), stream))
    return [block, SEED + number]

def check_contents(blocks):
    for block, value in blocks:
        check(cuda.cuMemcpyDtoH_v2(host, block, SIZE))
        assert bytes(host) == value.to_bytes(4, "little") * (BYTES // 4), (value, host[0])

blocks, number = [], 0
for number in range(BLOCKS):
    made = allocate(number, streams[number % 2])
    if made is None:
        break
    blocks.append(made)
most = len(blocks)
for round in range(ROUNDS):
    for _ in range(3):
        block, value = blocks.pop(0)
        number += 1
        stream = streams[number % 2]
        check(cuda.cuMemFreeAsync(block, stream))
        blocks.append(allocate(number, stream))
    check(cuda.cuCtxSynchronize())
    check_contents(blocks[:: 5])
check_contents(blocks)
for block, value in blocks:
    check(cuda.cuMemFreeAsync(block, streams[0]))
check(cuda.cuCtxSynchronize())
print("blocks", most)
"""


def program(blocks, rounds, seed):
    return ["/usr/bin/python3", "-c", PROGRAM, str(blocks), str(rounds), str(seed)]


def test_two_with_pools_beyond_vram(card):
    both = [card.shared(program(18, 4, seed)) for seed in (1000, 2000)]  # 144 MiB each
    assert [finish(each) for each in both] == ["blocks 18\n"] * 2
    assert any(record["out_bytes"] > 0 for record in card.handovers())
    assert card.sessions() == [] and card.gpu()["charged_bytes"] == 0
    assert card.vram_used() == 0


def test_a_limit_holds_for_memory_from_pools(card):
    limited = card.shared(program(18, 1, 0), "--memory", "64M")
    assert finish(limited) == "blocks 8\n"
