"""Programs that make and map their memory by themselves share a card that is too small."""

import pytest

from harness import PATIENCE_S, finish

pytestmark = pytest.mark.sanitized

# Holds one range of addresses, in which it maps SEGMENTS pieces of 8 MiB one after the other, as
# PyTorch does with expandable segments. In each round it gives a few back, makes others in their
# place, and looks at all of them.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
BYTES, SEGMENTS, ROUNDS, SEED = 8 << 20, int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
SIZE = ctypes.c_size_t(BYTES)

class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("place", ctypes.c_int * 2),
                ("meta_data", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]

def check(result):
    assert result == 0, result

# Pinned, exportable as a descriptor, of the first device; to be read and written by it.
properties, access = Properties(1, 1, (1, 0)), (ctypes.c_int * 3)(1, 0, 3)
context, base = ctypes.c_void_p(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(cuda.cuMemAddressReserve(ctypes.byref(base), ctypes.c_size_t(BYTES * SEGMENTS), ctypes.c_size_t(0),
                               ctypes.c_uint64(0), ctypes.c_uint64(0)))
host = (ctypes.c_uint32 * (BYTES // 4))()
values = {}

def at(segment):
    return ctypes.c_uint64(base.value + segment * BYTES)

def make(segment, value):
    handle = ctypes.c_uint64()
    check(cuda.cuMemCreate(ctypes.byref(handle), SIZE, ctypes.byref(properties), ctypes.c_uint64(0)))
    check(cuda.cuMemMap(at(segment), SIZE, ctypes.c_size_t(0), handle, ctypes.c_uint64(0)))
    check(cuda.cuMemSetAccess(at(segment), SIZE, access, ctypes.c_size_t(1)))
    check(cuda.cuMemRelease(handle))
    check(cuda.cuMemsetD32_v2(at(segment), SEED + value, ctypes.c_size_t(BYTES // 4)))
    values[segment] = SEED + value

def look_at(segments):
    for segment in segments:
        check(cuda.cuMemcpyDtoH_v2(host, at(segment), SIZE))
        assert bytes(host) == values[segment].to_bytes(4, "little") * (BYTES // 4), (segment, host[0])

for segment in range(SEGMENTS):
    make(segment, segment)
for round in range(1, ROUNDS + 1):
    check(cuda.cuCtxSynchronize())
    again = range(round, SEGMENTS, 5)
    for segment in again:
        check(cuda.cuMemUnmap(at(segment), SIZE))
    for segment in again:
        make(segment, 100 * round + segment)
    look_at(range(0, SEGMENTS, 4))
look_at(range(SEGMENTS))
free, total = ctypes.c_size_t(), ctypes.c_size_t()
check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
assert total.value - free.value == BYTES * SEGMENTS, (free, total)
check(cuda.cuMemUnmap(base, ctypes.c_size_t(BYTES * SEGMENTS)))
check(cuda.cuMemAddressFree(base, ctypes.c_size_t(BYTES * SEGMENTS)))
print("segments", SEGMENTS)
"""


def program(segments, rounds, seed):
    return ["/usr/bin/python3", "-c", PROGRAM, str(segments), str(rounds), str(seed)]


def test_two_that_map_beyond_vram(card):
    both = [card.shared(program(18, 4, seed)) for seed in (1000, 20000)]  # 144 MiB each
    assert [finish(each) for each in both] == ["segments 18\n"] * 2
    assert any(record["out_bytes"] > 0 for record in card.handovers())
    assert card.sessions() == [] and card.gpu()["charged_bytes"] == 0
    assert card.vram_used() == 0


def test_what_is_mapped_counts_for_the_limit(card):
    assert finish(card.shared(program(8, 1, 1), "--memory", "64M")) == "segments 8\n"
    refused = card.shared(program(9, 1, 1), "--memory", "64M")
    assert "AssertionError: 2" in refused.communicate(timeout=PATIENCE_S)[1]


# Makes 16 MiB that it hands to the process that connects to the socket, or gets it from there and maps it.
SHARED = """
import ctypes, socket, sys
cuda = ctypes.CDLL("libcuda.so.1")
path, SIZE, ZERO = sys.argv[2], ctypes.c_size_t(16 << 20), ctypes.c_uint64(0)

class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("place", ctypes.c_int * 2),
                ("meta_data", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]

def check(result):
    assert result == 0, result

properties, access = Properties(1, 1, (1, 0)), (ctypes.c_int * 3)(1, 0, 3)
context, handle, at = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))

def used():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return total.value - free.value >> 20

def map_it():
    check(cuda.cuMemAddressReserve(ctypes.byref(at), SIZE, ctypes.c_size_t(0), ZERO, ZERO))
    result = cuda.cuMemMap(at, SIZE, ctypes.c_size_t(0), handle, ZERO)
    if result == 0:
        check(cuda.cuMemSetAccess(at, SIZE, access, ctypes.c_size_t(1)))
    return result

with socket.socket(socket.AF_UNIX) as connection:
    if sys.argv[1] == "make":
        check(cuda.cuMemCreate(ctypes.byref(handle), SIZE, ctypes.byref(properties), ZERO))
        check(map_it())
        check(cuda.cuMemsetD8_v2(at, 7, SIZE))
        check(cuda.cuCtxSynchronize())
        fd = ctypes.c_int()
        check(cuda.cuMemExportToShareableHandle(ctypes.byref(fd), handle, 1, ZERO))
        connection.bind(path)
        connection.listen()
        print("made", flush=True)
        user, _ = connection.accept()
        socket.send_fds(user, [b"x"], [fd.value])
        user.recv(1)
    else:
        connection.connect(path)
        _, [fd], _, _ = socket.recv_fds(connection, 1, 1)
        check(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fd), 1))
        before, result = used(), map_it()
        print(before, result, used())
        if result == 0:
            seen = ctypes.create_string_buffer(SIZE.value)
            check(cuda.cuMemcpyDtoH_v2(seen, at, SIZE))
            assert seen.raw == bytes([7]) * SIZE.value, (seen.raw[0], seen.raw[-1])
            check(cuda.cuMemUnmap(at, SIZE))
        check(cuda.cuMemRelease(handle))
        print(used())
"""


@pytest.mark.parametrize("limit, told", [("64M", "0 0 16\n0\n"), ("8M", "0 2 0\n0\n")])
def test_what_another_process_made_counts_where_it_is_mapped(card, tmp_path, limit, told):
    path = str(tmp_path / "socket")
    maker = card.shared(["/usr/bin/python3", "-c", SHARED, "make", path])
    assert maker.stdout.readline() == "made\n"
    user = card.shared(["/usr/bin/python3", "-c", SHARED, "use", path], "--memory", limit)
    assert finish(user) == told
    finish(maker)
    assert card.sessions() == [] and card.gpu()["charged_bytes"] == 0
    assert card.vram_used() == 0
