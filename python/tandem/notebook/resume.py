"""The cells that a resumed notebook runs again.

The variables of a kernel end with it, so every cell before the first unfinished one runs again,
except cells tagged `skip-on-resume`. Their new outputs replace the saved ones: later cells see the
new variables. The saved outputs of a cell stay in the file until the cell has run again.
"""

from dataclasses import dataclass, field
from typing import List

from . import document
from .errors import BadInput

SKIP_TAG = "skip-on-resume"
KEY = "tandem"  # in the metadata of an output notebook


@dataclass
class Plan:
    """Numbers of steps, from 1. A plan that resumes nothing has finished == 0."""

    finished: int = 0
    skipped: List[int] = field(default_factory=list)

    @property
    def again(self):
        """The finished steps that run again."""
        return [n for n in range(1, self.finished + 1) if n not in self.skipped]

    def describe(self, total):
        """Returns what a resumed run will do, in one line."""
        if self.finished == total:
            return f"all {total} cells are finished: nothing to run"
        text = f"resuming at cell {self.finished + 1} of {total}"
        if self.again:
            text += f"; running again, because variables end with the kernel: {_list(self.again)}"
        if self.skipped:
            text += f"; not running again (tag {SKIP_TAG}): {_list(self.skipped)}"
        return text


def note_progress(notebook, state, finished, parameters, args):
    """Writes into the notebook's metadata how far it ran."""
    notebook.metadata[KEY] = {
        "state": state,
        "finished": [document.digest(cell) for cell in document.steps(notebook)[:finished]],
        "parameters": parameters,
        "args": args,
    }


def saved_choices(old, path):
    """Returns (parameters, args) of the run that wrote `old`. Raises BadInput."""
    noted = old.metadata.get(KEY)
    if not isinstance(noted, dict) or not isinstance(noted.get("finished"), list):
        raise BadInput(
            f"{path} was not written by `tandem notebook run`: leave out --resume, or name the "
            "file to go on with by --output"
        )
    return dict(noted.get("parameters", {})), list(noted.get("args", []))


def resume(notebook, old):
    """Takes the outputs of finished cells from `old`. Returns the plan. Raises BadInput."""
    finished = old.metadata[KEY]["finished"]
    new_steps, old_steps = document.steps(notebook), document.steps(old)
    for number, digest in enumerate(finished, 1):
        if number > len(new_steps) or document.digest(new_steps[number - 1]) != digest:
            change = "is gone" if number > len(new_steps) else "has changed"
            raise BadInput(
                f"cannot resume: cell {number}, which had finished, {change} since; "
                "run the notebook from the top, without --resume"
            )
    for cell, saved in zip(new_steps, old_steps[: len(finished)]):
        cell.outputs, cell.execution_count = saved.outputs, saved.execution_count
    numbered = enumerate(new_steps[: len(finished)], 1)
    skipped = [number for number, cell in numbered if SKIP_TAG in document.tags(cell)]
    return Plan(len(finished), skipped)


def _list(numbers):
    """[1, 2, 3, 5] as "1–3, 5"."""
    ranges = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = (str(a) if a == b else f"{a}–{b}" for a, b in ranges)
    return ("cell " if len(numbers) == 1 else "cells ") + ", ".join(words)
