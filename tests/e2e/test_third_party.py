"""A framework that emits its own PTX: Debian's Halide, unmodified, bare and two at once on one card."""

import subprocess
from pathlib import Path

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
