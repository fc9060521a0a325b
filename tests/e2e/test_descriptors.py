"""A program closes descriptors that it never opened, and uses their numbers itself."""

from harness import PATIENCE_S, finish, train
from test_sharing import assert_all_returned, solo

# Holds 40 MiB, closes what it does not know, and looks after its own files and bytes once it is
# told to go on.
PROGRAM = """
import ctypes, os, sys

cuda = ctypes.CDLL("libcuda.so.1")
size = 40 << 20
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
copy = ctypes.create_string_buffer(size)


def check(result):
    assert result == 0, result


check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)))
check(cuda.cuMemsetD8_v2(memory, 0x5A, ctypes.c_size_t(size)))
check(cuda.cuCtxSynchronize())
os.closerange(3, 100)
files = [open(f"{sys.argv[1]}/{i}", "w+b", buffering=0) for i in range(90)]
print("closed", flush=True)
sys.stdin.readline()
check(cuda.cuMemcpyDtoH_v2(copy, memory, ctypes.c_size_t(size)))
assert copy.raw == b"\\x5a" * size
check(cuda.cuCtxDestroy_v2(context))
for file in files:
    assert os.fstat(file.fileno()).st_size == 0
print("intact", flush=True)
"""


def test_neither_the_program_nor_its_neighbour_is_hurt(make_card, tmp_path):
    card = make_card(vram="64M", context="2M")  # a budget of 54 MiB, of which the job needs 50
    card.start_daemon()
    job = train("40M", 2)
    expected = solo(card, job)
    holder = card.shared(["/usr/bin/python3", "-c", PROGRAM, str(tmp_path)])
    assert holder.stdout.readline() == "closed\n", holder.communicate(timeout=PATIENCE_S)
    # There is room for it only where the holder hears that it must leave.
    assert finish(card.shared(job)) == expected
    out, err = holder.communicate("go on\n", timeout=PATIENCE_S)
    assert (holder.returncode, out) == (0, "intact\n"), err
    assert_all_returned(card)
