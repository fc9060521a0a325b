"""Libraries that bring their own PTX, unmodified, bare and on a shared card: Debian's Halide; and
NVIDIA's compiler and runtime, where they are installed."""

import ctypes.util
import subprocess
from pathlib import Path

import pytest

from harness import finish, wait_until

# Debian's packages are for Debian's Python.
HALIDE = ["/usr/bin/python3", Path(__file__).with_name("halide_program.py")]


def test_halide_agrees_with_the_cpu_alone_and_shared(make_card):
    card = make_card(vram="128M")
    alone = finish(card.bare(HALIDE))
    assert alone.count("\n") == 5
    card.start_daemon()
    # 73 MiB each, at their largest.
    both = [card.shared([*HALIDE, "wait"], stdin=subprocess.PIPE) for _ in range(2)]
    wait_until(lambda: len(card.sessions()) == 2, both[0], "both are at work")
    for program in both:
        program.stdin.close()
        program.stdin = None  # or communicate() would write to it
    assert [finish(program) for program in both] == [alone, alone]


def of_cuda(name):
    """The path of one of CUDA's libraries."""
    found = sorted(Path("/usr/local").glob(f"cuda*/lib64/lib{name}.so*"))
    library = str(found[-1]) if found else ctypes.util.find_library(name)
    return library or pytest.skip(f"lib{name} is not installed")


def test_nvrtc_compiles_alone_and_shared(make_card):
    program = ["/usr/bin/python3", Path(__file__).with_name("nvrtc_program.py"), of_cuda("nvrtc")]
    card = make_card()
    assert finish(card.bare(program)) == "True\n"
    card.start_daemon()
    assert finish(card.shared(program)) == "True\n"


def test_nvidias_runtime_says_that_it_cannot_run(make_card):
    ask = "import ctypes; print(ctypes.CDLL(%r).cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))"
    program = ["/usr/bin/python3", "-c", ask % of_cuda("cudart")]
    assert finish(make_card().bare(program)) == "500\n"
