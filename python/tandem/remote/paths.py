"""The Python expression that leads to an object, for error messages."""

_LIMIT = 12


def path_of(table, parents, number):
    """Returns an expression such as `model.cache["f"]` for an object of a snapshot.

    `parents` maps a number to the number of the first object that refers to it, or to a name.
    """
    steps = []
    while number in parents and len(steps) < _LIMIT:
        parent = parents[number]
        if isinstance(parent, str):
            return parent + "".join(reversed(steps))
        steps.append(_step(table.object(parent), table.object(number)))
        number = parent
    return (number if isinstance(number, str) else "…") + "".join(reversed(steps))


def _step(parent, child):
    """Returns the accessor of `child` in `parent`, or "" where there is none."""
    if isinstance(parent, dict):
        for key, value in parent.items():
            if value is child:
                return f"[{key!r}]"
            if key is child:
                return ".keys()"
    elif isinstance(parent, (list, tuple)):
        for index, value in enumerate(parent):
            if value is child:
                return f"[{index}]"
    for name, value in getattr(parent, "__dict__", {}).items():
        if value is child:
            return f".{name}"
    for name in dir(type(parent)) if not isinstance(parent, type) else ():
        slot = getattr(type(parent), name, None)
        if type(slot).__name__ == "member_descriptor" and getattr(parent, name, None) is child:
            return f".{name}"
    names = getattr(getattr(parent, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(parent, "__closure__", None) or ()):
        if cell is child:
            return f".<{name}>"
    return ""
