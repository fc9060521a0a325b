"""Parameters of a notebook: `-p name=value` sets what the cell tagged `parameters` assigns.

A parameter is kept as the Python expression of its value, so that a job's record, the output
notebook and a resumed run all hold the same text.
"""

import ast
import difflib
import json
import keyword
import math
from pathlib import Path

from . import document
from .errors import BadInput

TAG, INJECTED_TAG = "parameters", "injected-parameters"
_WORDS = {"true": True, "false": False, "null": None, "none": None, "~": None}


def parse(word):
    """Returns (name, expression) of `name=value`. Raises BadInput.

    The value is a Python literal, a word of YAML (true, false, null), JSON, or else a string.
    """
    name, value = _split(word)
    return name, expression(_value(value))


def parse_raw(word):
    """Returns (name, expression) of `name=value`, whose value is a string. Raises BadInput."""
    name, value = _split(word)
    return name, repr(value)


def from_file(path):
    """Returns the parameters of a file with one JSON object. Raises BadInput."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path} is not a JSON file: {error}") from None
    if not isinstance(values, dict):
        raise BadInput(f"{path} must hold one JSON object, with a member for each parameter")
    return {_checked(name): expression(value) for name, value in values.items()}


def expression(value):
    """Returns the Python expression of a value that is made of literals."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(expression, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{expression(k)}: {expression(v)}" for k, v in value.items()) + "}"
    return repr(value)


def inject(notebook, parameters):
    """Puts a cell with these parameters after the cell tagged `parameters`, or at the top.

    Replaces the cell of an earlier run. Changes nothing where `parameters` is empty.
    """
    if not parameters:
        return
    lines = ["# Parameters", *(f"{name} = {value}" for name, value in parameters.items())]
    cell = document.new_code_cell(notebook, "\n".join(lines), INJECTED_TAG)
    place = _find(notebook, INJECTED_TAG)
    if place is not None:
        notebook.cells[place] = cell
        return
    place = _find(notebook, TAG)
    notebook.cells.insert(0 if place is None else place + 1, cell)


def unknown(notebook, parameters):
    """Returns a warning for each parameter that the cell tagged `parameters` does not assign."""
    place = _find(notebook, TAG)
    if place is None:
        return []
    try:
        tree = ast.parse(notebook.cells[place].source)
    except SyntaxError:
        return []
    stores = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    known = {node.id for node in stores}
    warnings = []
    for name in parameters:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            warnings.append(f"the cell tagged `{TAG}` does not assign {name}{hint}")
    return warnings


def _find(notebook, tag):
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and tag in document.tags(cell):
            return place
    return None


def _split(word):
    name, equals, value = word.partition("=")
    if not equals:
        raise BadInput(f"the parameter {word!r} has no value: write name=value")
    return _checked(name), value


def _checked(name):
    if not name.isidentifier() or keyword.iskeyword(name):
        raise BadInput(f"the parameter {name!r} is not a name of Python")
    return name


def _value(text):
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
