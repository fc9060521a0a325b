"""What stands in the notebook for a value that stays on the worker."""

import importlib

from .errors import StaysOnWorker


class RemoteValue:
    """A value of the worker: its type, shape, dtype, device and bytes, and why it stayed.

    A remote cell that reads its name uses the value itself. `%gpu fetch NAME` replaces it.
    """

    lost = (
        "its value is on another worker, or on one that has ended",
        "Fetch it while its worker lives, or run the cell that made it again.",
    )

    def __init__(self, description):
        self.__dict__["description"] = dict(description)

    def __repr__(self):
        facts = [self.description["type"]]
        facts += [f"{k}={v}" for k, v in self.description.items() if k in _SHOWN and v is not None]
        return f"<on the worker: {', '.join(facts)}>"

    def __getattr__(self, name):
        if name in ("shape", "dtype", "device", "nbytes") and name in self.description:
            return self.description[name]
        if name.startswith("_"):  # probes by displays and copies
            raise AttributeError(name)
        raise StaysOnWorker(self._message())

    def _message(self):
        what, why = self.description["type"], self.description["why"]
        advice = "Use it in a remote cell, or fetch it with %gpu fetch NAME."
        return f"this {what} is on the worker: {why}. {advice}"


class RemoteModule(RemoteValue):
    """A module that a remote cell imported and that is not installed here.

    Remote cells get the module itself.
    """

    def __init__(self, name):
        super().__init__({"type": f"module {name}", "why": "it is not installed here"})
        self.__dict__["name"] = name

    def __reduce__(self):
        return importlib.import_module, (self.__dict__["name"],)

    def _message(self):
        return f"the module {self.__dict__['name']} is not installed here. Use it in a remote cell."


_SHOWN = ("shape", "dtype", "device", "nbytes")
_OPERATIONS = (
    "add sub mul truediv floordiv mod pow matmul and or xor lt le gt ge radd rsub rmul rtruediv "
    "rpow rmatmul neg pos abs invert getitem setitem delitem len iter next contains call enter "
    "exit bool int float complex index array"
)


def _refuse(self, *_arguments, **_options):
    raise StaysOnWorker(self._message())


for _operation in _OPERATIONS.split():
    setattr(RemoteValue, f"__{_operation}__", _refuse)


def describe(value, why):
    """Returns the description of a value: strings and integers only."""
    kind = type(value)
    description = {"type": f"{kind.__module__}.{kind.__qualname__}", "why": str(why)}
    for name in ("shape", "dtype", "device"):
        found = getattr(value, name, None)
        description[name] = None if found is None or callable(found) else str(found)
    description["nbytes"] = _nbytes(value)
    return description


def _nbytes(value):
    nbytes = getattr(value, "nbytes", None)
    if not isinstance(nbytes, int) and hasattr(value, "element_size"):
        nbytes = value.element_size() * value.nelement()
    return nbytes if isinstance(nbytes, int) else None
