"""Processes that are forked before anything was asked of the driver, as worker pools of Python are."""

import pytest

from harness import finish

pytestmark = pytest.mark.sanitized

# The parent has loaded the driver; each of three children takes 40 MiB, as far as there is memory
# for it, and then says what it sees.
PROGRAM = """
import ctypes, multiprocessing
cuda = ctypes.CDLL("libcuda.so.1")
processes = multiprocessing.get_context("fork")
barrier = processes.Barrier(3)

def child(results):
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    result = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(40 << 20))
    if result == 0:
        assert cuda.cuMemsetD8_v2(pointer, 7, ctypes.c_size_t(40 << 20)) == 0
        assert cuda.cuCtxSynchronize() == 0
    barrier.wait()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    results.put((result, free.value >> 20, total.value >> 20))
    barrier.wait()

results = processes.Queue()
children = [processes.Process(target=child, args=[results]) for _ in range(3)]
for each in children:
    each.start()
print(sorted(results.get() for _ in children))
for each in children:
    each.join()
    assert each.exitcode == 0
"""


def test_children_of_a_parent_that_has_only_loaded_the_driver(card):
    process = card.shared(["/usr/bin/python3", "-c", PROGRAM], "--memory", "100M")
    assert finish(process) == "[(0, 20, 100), (0, 20, 100), (2, 20, 100)]\n"
    assert card.sessions() == [] and card.gpu()["charged_bytes"] == 0
    assert card.vram_used() == 0
