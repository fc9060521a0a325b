"""A framework that emits its own PTX: Debian's Halide, unmodified, bare and two at once on one card."""

from pathlib import Path

from harness import finish

# Debian's packages are for Debian's Python.
HALIDE = ["/usr/bin/python3", Path(__file__).with_name("halide_program.py")]


def test_halide_agrees_with_the_cpu_alone_and_shared(make_card):
    card = make_card(vram="128M")
    alone = finish(card.bare(HALIDE))
    assert alone.count("\n") == 5
    card.start_daemon()
    both = [card.shared(HALIDE) for _ in range(2)]  # 73 MiB each, at their largest
    assert [finish(program) for program in both] == [alone, alone]
