"""Functions of torch that a function mode does not see, for a GPU that is not there.

Each wraps one function of torch; see absent_mode.py for the rules.
"""

import functools
import inspect
import threading

import torch

from . import indexing, tags
from .absent_mode import as_tensor, index_of_device, index_tensor, mark_all, mark_results, set_items


def replacements():
    """Yields (owner, attribute, value) for all but the indexing."""
    for kind in (torch.Tensor, torch.nn.Parameter):
        yield kind, "__reduce_ex__", _reducing(kind.__reduce_ex__)
    yield torch, "save", _noting_saves(torch.save)
    yield torch, "load", _loading(torch.load)
    yield torch, "Generator", _generators(torch.Generator)
    yield torch.autograd.Function, "apply", _applying(torch.autograd.Function)
    if hasattr(torch, "asarray"):
        yield torch, "asarray", _converting(torch.asarray)
    if hasattr(torch.Tensor, "_make_subclass"):
        make = _subclassing(torch.Tensor._make_subclass)
        yield torch.Tensor, "_make_subclass", staticmethod(make)
    else:
        yield torch.nn.Parameter, "__new__", staticmethod(_subclassing(torch.nn.Parameter.__new__))


def replace_indexing():
    """Makes the mode see each indexing; returns whether `indexing.restore` has to end that."""
    return indexing.hidden() and indexing.replace(_getting, _setting)


def _getting(getitem):
    @functools.wraps(getitem)
    def got(tensor, key):
        return index_tensor(getitem, (tensor, key), {})

    return got


def _setting(setitem):
    @functools.wraps(setitem)
    def put(tensor, key, value):
        set_items(setitem, (tensor, key, value), {})

    return put


_saving = threading.local()


def _reducing(reduce):
    """Pickles carry the mark, the files of torch.save do not: torch reads them anywhere."""

    @functools.wraps(reduce)
    def reduced(tensor, protocol):
        index = tags.index_of(tensor)
        if index is None:
            return reduce(tensor, protocol)
        tags.mark(tensor, None)
        try:
            function, arguments, *rest = reduce(tensor, protocol)
        finally:
            tags.mark(tensor, index)
        if getattr(_saving, "here", False):
            return (function, arguments, *rest)
        return (tags.rebuild, (index, function, arguments), *rest)

    return reduced


def _noting_saves(save):
    @functools.wraps(save)
    def saved(*args, **kwargs):
        before, _saving.here = getattr(_saving, "here", False), True
        try:
            return save(*args, **kwargs)
        finally:
            _saving.here = before

    return saved


def _converting(convert):
    @functools.wraps(convert)
    def converted(*args, **kwargs):
        return as_tensor(convert, args, kwargs)

    return converted


def _generators(base):
    """Random numbers of the GPU are the host's here."""

    class OfAnyDevice(type):
        def __instancecheck__(cls, value):
            return isinstance(value, base)

    class Generator(metaclass=OfAnyDevice):
        __doc__ = base.__doc__

        def __new__(cls, device="cpu"):
            return base(device="cpu" if index_of_device(device) == 0 else device)

    return Generator


def _applying(function):
    """C++ gives an input that a function returns as it is a new object, without a mark."""
    apply = inspect.getattr_static(function, "apply")

    def applied(cls, *args, **kwargs):
        return mark_results(apply.__get__(None, cls)(*args, **kwargs), args)

    return classmethod(applied)


def _subclassing(make):
    @functools.wraps(make)
    def made(cls, data=None, *args, **kwargs):
        result = make(cls, data, *args, **kwargs)
        index = None if data is None else tags.index_of(data)
        if index is not None:
            tags.mark(result, index)
        return result

    return made


def _loading(load):
    """Tensors of a file lie in host memory, and get the mark of the device that torch means."""

    @functools.wraps(load)
    def loaded(f, map_location=None, *args, **kwargs):
        if callable(map_location):
            return load(f, map_location, *args, **kwargs)
        found = set()

        def place(storage, location):
            if isinstance(map_location, dict):
                location = map_location.get(location, location)
            elif map_location is not None:
                location = str(map_location)
            found.add(location.startswith("cuda"))
            return storage

        value = load(f, place, *args, **kwargs)
        if True in found:
            mark_all(value, 0)
        elif map_location is not None:
            mark_all(value, None)
        return value

    return loaded
