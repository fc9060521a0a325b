"""The kind of every object, by name. numpy and torch are looked up only where they are loaded."""

import sys
import types

from . import kinds, tensors

_MORE = {"storage": tensors.StorageKind, "tensor": tensors.TensorKind}


def kind_of(obj, table):
    """Returns the name of the kind that takes `obj` apart."""
    name = kinds.BY_TYPE.get(type(obj))
    if name is not None:
        return name
    if isinstance(obj, types.FunctionType):
        return "function"
    if isinstance(obj, type):
        return "class"
    if isinstance(obj, tensors.StorageHandle):
        return "storage"
    if "numpy" in sys.modules:
        from . import arrays

        if type(obj) is arrays.np.ndarray:
            return arrays.kind_of(obj, table) or "object"
    if tensors.is_tensor(obj):
        return tensors.kind_of(obj) or "object"
    return "object"


def kind_named(name):
    """Returns the class of a kind. Raises KeyError for an unknown name."""
    if name in ("array", "view"):
        from . import arrays

        return arrays.ArrayKind if name == "array" else arrays.ViewKind
    return kinds.KINDS.get(name) or _MORE[name]
