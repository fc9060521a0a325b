#!/usr/bin/env python3
"""Draws the demo's live view as docs/pictures/demo.svg, from a run of it on a terminal of its own.

  tools/picture.py --build build/release [--out FILE]

The frame is the one with the most bytes in host memory. Needs python3-pyte.
"""
import argparse
import html
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 90, 40
FRAME_END = b"\x1b[?25h"  # the demo shows the cursor again when a frame is complete
PATIENCE_S = 300
CELL, LINE, MARGIN, FONT = 8.4, 18, 14, 14
BACKGROUND, FOREGROUND = "#16181d", "#d7dae0"
COLOURS = {
    "default": FOREGROUND,
    "cyan": "#4fb8c9",
    "brown": "#e0b04c",
    "magenta": "#c678b8",
    "red": "#e06c6c",
}


def frames(argv):
    """The terminal's rows of cells after each frame of the program's live view."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    program = subprocess.Popen(argv, stdout=theirs, stdin=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, pending = pyte.ByteStream(screen), b""
    try:
        while select.select([ours], [], [], PATIENCE_S)[0]:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the program has closed the terminal
                break
            *complete, pending = (pending + data).split(FRAME_END)
            for frame in complete:
                stream.feed(frame + FRAME_END)
                yield [[screen.buffer[row][column] for column in range(COLUMNS)]
                       for row in range(ROWS)]  # fmt: skip
        if program.wait(PATIENCE_S) != 0:
            sys.exit(f"picture: {argv[1]} failed")
    finally:
        program.kill()
        program.wait()
        os.close(ours)


def swapped(cells):
    """How much of a frame shows host memory; 0 unless three programs are in it."""
    lines = ["".join(cell.data for cell in row) for row in cells]
    running = sum(name in line for name in ("film-1", "film-2", "train")
                  for line in lines if "█" in line or "░" in line)  # fmt: skip
    return sum(line.count("░") for line in lines) if running == 3 else 0


def runs(row):
    """(column, text, colour, bold) of each stretch of cells that look the same."""
    begin = 0
    for column in range(1, len(row) + 1):
        first = row[begin]
        if column == len(row) or (row[column].fg, row[column].bold) != (first.fg, first.bold):
            text = "".join(cell.data for cell in row[begin:column]).rstrip()
            if text:
                yield begin, text, COLOURS.get(first.fg, FOREGROUND), first.bold
            begin = column


def svg(cells):
    text = ["".join(cell.data for cell in row).rstrip() for row in cells]
    used = [row for row, line in enumerate(text) if line]
    cells, text = cells[used[0] : used[-1] + 1], text[used[0] : used[-1] + 1]
    width = 2 * MARGIN + CELL * max(map(len, text))
    height = 2 * MARGIN + LINE * len(cells)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="{FONT}">'
    )
    yield "<title>The live view of ./dev demo: three programs on one card of 256 MiB</title>"
    yield f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>'
    for number, row in enumerate(cells):
        y = MARGIN + LINE * number + FONT
        for column, words, colour, bold in runs(row):
            x = MARGIN + CELL * column
            weight = ' font-weight="bold"' if bold else ""
            yield (
                f'<text x="{x:.1f}" y="{y}" fill="{colour}"{weight} xml:space="preserve" '
                f'textLength="{CELL * len(words):.1f}">{html.escape(words)}</text>'
            )
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="the build directory")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures/demo.svg")
    arguments = parser.parse_args()
    demo = [sys.executable, str(ROOT / "tools/demo.py"), "--build", str(arguments.build)]
    best = max(frames(demo), key=swapped, default=None)
    if best is None or swapped(best) == 0:
        sys.exit("picture: no frame shows all three programs")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(svg(best)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
