"""Indexing of tensors as a function mode should see it, in releases of torch whose modes do not.

torch 1.13 hides `tensor[0]` and `tensor[mask]` from modes, so methods of Python replace those of C.
CPython then takes every tensor for a sequence, and torch cannot read a list of numbers that are
tensors. `_hide_sequence` empties that slot of the type again; where it cannot, nothing is replaced.
"""

import ctypes

import torch
from torch.overrides import TorchFunctionMode

_AS_SEQUENCE, _ITEM = 13, 3  # places in PyTypeObject and PySequenceMethods, in words
_WORD = ctypes.sizeof(ctypes.c_void_p)
_SQ_ITEM = 44  # its number for PyType_GetSlot


class _Probe(TorchFunctionMode):
    """Notes whether it saw an indexing."""

    seen = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen = self.seen or getattr(func, "__name__", "") == "__getitem__"
        return func(*args, **(kwargs or {}))


def hidden():
    """Returns whether modes do not see that a tensor is indexed."""
    tensor = torch.zeros(1)
    with _Probe() as probe:
        tensor[0]
    return not probe.seen


def replace(getting, setting):
    """Wraps the two methods of indexing by these functions; returns whether that succeeded."""
    if not _is_sequence_slot_known():
        return False
    torch.Tensor.__getitem__ = getting(torch.Tensor.__getitem__)
    torch.Tensor.__setitem__ = setting(torch.Tensor.__setitem__)
    _hide_sequence(torch.Tensor)
    return True


def restore():
    """Gives tensors the indexing of C again."""
    del torch.Tensor.__getitem__, torch.Tensor.__setitem__
    _hide_sequence(torch.Tensor)


def _methods(kind):
    """Returns the address of the methods of a sequence, which lie within a type made by Python."""
    return ctypes.c_void_p.from_address(id(kind) + _AS_SEQUENCE * _WORD).value or 0


def _slot(kind):
    """Returns the field `sq_item` of a type."""
    return ctypes.c_void_p.from_address(_methods(kind) + _ITEM * _WORD)


def _get_slot(kind):
    get = ctypes.pythonapi.PyType_GetSlot
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    return get(kind, _SQ_ITEM)


def _is_sequence_slot_known():
    """Compares the slot with what CPython says, for types with and without a value in it."""

    class Sequence:
        def __getitem__(self, key):
            return key

    class Other:
        pass

    kinds = (Sequence, Other, torch.Tensor)
    within = all(0 < _methods(kind) - id(kind) < type.__sizeof__(kind) for kind in kinds)
    return within and all(_slot(kind).value == _get_slot(kind) for kind in kinds)


def _hide_sequence(kind):
    _slot(kind).value = None
    for derived in type.__subclasses__(kind):
        if "__getitem__" not in vars(derived):
            _hide_sequence(derived)
