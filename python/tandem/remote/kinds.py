"""How each kind of Python object is taken apart, built and written into.

A kind is a class with static methods. `describe(obj, take)` returns a `Parts`; `build(make)`
returns a new object without its content; `fill(obj, fill)` writes the content into a new or an
existing object; `remake(obj, make)` writes changed construction data into an existing object and
returns False where that is impossible. `take` lists values that exist only in the description
(`take.inline`), and gives reducers (`take.reduce`).

`make` may refer only to objects that can be built before this one; `fill` may refer to all.
"""

import array
import collections
import copyreg
import importlib
import sys
import types
import weakref
from dataclasses import dataclass
from typing import Any

from .errors import CannotTravel

SCALARS = frozenset({int, float, bool, complex, type(None)})
LARGE = 4096  # strings and byte strings of this length are objects with a number of their own


@dataclass
class Parts:
    """An object taken apart. `buffer` is a flat memoryview of its bytes, or None."""

    make: Any = None
    fill: Any = None
    buffer: Any = None


class Kind:
    """The defaults: an object without content that cannot be remade."""

    @staticmethod
    def fill(obj, fill):
        """Writes the content."""

    @staticmethod
    def remakable(obj):
        """Returns whether `remake` can write changed construction data into `obj`."""
        return False

    @staticmethod
    def remake(obj, make):
        """Returns whether `make` is now in force for the existing object."""
        return False

    @classmethod
    def saved(cls, obj, take):
        """Returns a function that gives `obj` its present content again, the buffer aside."""
        try:
            parts = cls.describe(obj, take)
        except CannotTravel:  # the cell made it so; there is nothing to go back to
            return lambda: None
        parts.buffer = None

        def restore():
            if parts.make is not None and cls.remakable(obj):
                cls.remake(obj, parts.make)
            cls.fill(obj, parts.fill)

        return restore

    @staticmethod
    def finish(obj, make):
        """Completes an object whose bytes have arrived."""


class ListKind(Kind):
    """An exact list."""

    @staticmethod
    def describe(obj, take):
        return Parts(fill=tuple(obj))

    @staticmethod
    def build(make):
        return []

    @staticmethod
    def fill(obj, fill):
        obj[:] = fill


class DictKind(Kind):
    """An exact dict; the order of its keys is kept."""

    @staticmethod
    def describe(obj, take):
        return Parts(fill=(take.inline(tuple(obj)), take.inline(tuple(obj.values()))))

    @staticmethod
    def build(make):
        return {}

    @staticmethod
    def fill(obj, fill):
        obj.clear()
        obj.update(zip(*fill))


class SetKind(Kind):
    """An exact set."""

    @staticmethod
    def describe(obj, take):
        return Parts(fill=take.ordered(obj))

    @staticmethod
    def build(make):
        return set()

    @staticmethod
    def fill(obj, fill):
        obj.clear()
        obj.update(fill)


class TupleKind(Kind):
    """A tuple that holds objects with an identity."""

    @staticmethod
    def describe(obj, take):
        return Parts(make=take.inline(tuple(obj)))

    @staticmethod
    def build(make):
        return make


class FrozensetKind(Kind):
    """A frozenset."""

    @staticmethod
    def describe(obj, take):
        return Parts(make=take.ordered(obj))

    @staticmethod
    def build(make):
        return frozenset(make)


class BytesKind(Kind):
    """Long byte strings and strings."""

    @staticmethod
    def describe(obj, take):
        if type(obj) is str:
            return Parts("str", None, memoryview(obj.encode("utf-8", "surrogatepass")))
        return Parts("bytes", None, memoryview(obj))

    @staticmethod
    def build(make, buffer=b""):
        return str(buffer, "utf-8", "surrogatepass") if make == "str" else bytes(buffer)


class BytearrayKind(Kind):
    """A bytearray; its bytes travel as a buffer."""

    @staticmethod
    def describe(obj, take):
        return Parts(make=len(obj), buffer=memoryview(obj))

    @classmethod
    def saved(cls, obj, take):
        content = bytes(obj)
        return lambda: obj.__setitem__(slice(None), content)

    @staticmethod
    def build(make):
        return bytearray(make)

    @staticmethod
    def remakable(obj):
        return True

    @staticmethod
    def remake(obj, make):
        if len(obj) != make:
            obj[:] = bytes(make)
        return True

    @staticmethod
    def memory(obj):
        return memoryview(obj)


class CellKind(Kind):
    """The variable that a closure shares with the function that made it."""

    @staticmethod
    def describe(obj, take):
        try:
            return Parts(fill=take.inline((obj.cell_contents,)))
        except ValueError:
            return Parts(fill=())

    @staticmethod
    def build(make):
        return types.CellType()

    @staticmethod
    def fill(obj, fill):
        if fill:
            obj.cell_contents = fill[0]
        else:
            try:
                del obj.cell_contents
            except ValueError:
                pass


class FunctionKind(Kind):
    """A function that cannot be imported by its name.

    Its globals are the user's namespace, those of a module, or a dict that travels along.
    """

    @staticmethod
    def describe(obj, take):
        home = _module_of(obj.__globals__, take.table)
        make = (obj.__code__, home or obj.__globals__, take.inline(obj.__closure__))
        named = (obj.__name__, obj.__qualname__, obj.__module__, obj.__doc__)
        extra = (obj.__defaults__, obj.__kwdefaults__, obj.__annotations__, obj.__dict__)
        for part in extra:
            take.inline(part)
        return Parts(make=make, fill=(take.inline(named), *extra))

    @staticmethod
    def build(make):
        code, home, closure = make
        home = vars(importlib.import_module(home)) if isinstance(home, str) else home
        return types.FunctionType(code, home, closure=closure)

    @staticmethod
    def fill(obj, fill):
        named, defaults, kwdefaults, annotations, attributes = fill
        obj.__name__, obj.__qualname__, obj.__module__, obj.__doc__ = named
        obj.__defaults__, obj.__kwdefaults__ = defaults, kwdefaults
        obj.__annotations__ = annotations
        obj.__dict__.clear()
        obj.__dict__.update(attributes)

    @staticmethod
    def remakable(obj):
        return True

    @staticmethod
    def remake(obj, make):
        if obj.__closure__ != make[2]:
            return False
        obj.__code__ = make[0]
        return True


def _module_of(namespace, table):
    """Returns the name of the module that a dict of globals belongs to, or None."""
    name = namespace.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    home = module is not None and vars(module) is namespace and namespace is not table.namespace
    return name if home else None


class WeakrefKind(Kind):
    """A weak reference; its target travels too."""

    @staticmethod
    def describe(obj, take):
        return Parts(make=take.inline((obj(),)))

    @staticmethod
    def build(make):
        return weakref.ref(make[0]) if make[0] is not None else weakref.ref(_Gone())


class _Gone:
    """The referent of a dead weak reference."""


class ObjectKind(Kind):
    """Everything else: what its reducer says, with the content written into the original."""

    @staticmethod
    def describe(obj, take):
        reduced = take.reduce(obj)
        function, arguments, state, items, pairs, setter = (tuple(reduced) + (None,) * 4)[:6]
        take.temporary(arguments)
        if state is not getattr(obj, "__dict__", None):
            take.temporary(state)
        else:
            take.inline(state)
        items = None if items is None else take.inline(tuple(items))
        pairs = None if pairs is None else take.inline(tuple(map(take.inline, pairs)))
        fill = None
        if (state, items, pairs) != (None, None, None) or _is_new(function):
            fill = (_is_new(function), state, items, pairs, setter)
        return Parts(make=(function, arguments), fill=fill)

    @staticmethod
    def build(make):
        function, arguments = make
        return function(*arguments)

    @staticmethod
    def fill(obj, fill):
        if fill is None:
            return
        is_new, state, items, pairs, setter = fill
        if items is not None or isinstance(obj, (list, collections.deque)):
            obj.clear() if hasattr(obj, "clear") else obj.__delitem__(slice(None))
            if items:
                obj.extend(items)
        if pairs is not None or (is_new and isinstance(obj, dict)):
            obj.clear()
            for key, value in pairs or ():
                obj[key] = value
        if state is not None or is_new:
            _set_state(obj, state, setter)

    @staticmethod
    def remakable(obj):
        return can_transplant(obj)

    @staticmethod
    def remake(obj, make):
        if not can_transplant(obj):
            return False
        fresh = make[0](*make[1])
        return type(fresh) is type(obj) and _transplant(obj, fresh)


class ClassKind(ObjectKind):
    """A class that cannot be imported, as cloudpickle takes it apart."""

    @staticmethod
    def describe(obj, take):
        function, arguments, state, _, _, setter = take.reduce(obj)
        state[0].pop("__slotnames__", None)  # a cache of copyreg
        for part in (*arguments, *state):
            take.inline(part)
        return Parts(
            make=(function, take.inline(arguments)),
            fill=(False, take.inline(state), None, None, setter),
        )

    @staticmethod
    def remakable(obj):
        return True

    @staticmethod
    def remake(obj, make):
        return True


def _is_new(function):
    """Returns whether a reducer makes an empty object, whose content is all in the state."""
    return function in (copyreg.__newobj__, getattr(copyreg, "__newobj_ex__", None))


def _set_state(obj, state, setter):
    if setter is not None:
        setter(obj, state)
    elif hasattr(obj, "__setstate__") and state is not None:
        _drop_stale(obj, state)
        obj.__setstate__(state)
    else:
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        if hasattr(obj, "__dict__"):
            obj.__dict__.clear()
            obj.__dict__.update({sys.intern(k): v for k, v in (attributes or {}).items()})
        for name in _slots(type(obj)):
            if slots and name in slots:
                object.__setattr__(obj, name, slots[name])
            elif hasattr(obj, name):
                object.__delattr__(obj, name)


def _drop_stale(obj, state):
    """Removes attributes that the new state lacks; `__setstate__` usually only adds."""
    if not isinstance(state, dict) or not getattr(obj, "__dict__", None):
        return
    old = obj.__getstate__() if hasattr(obj, "__getstate__") else obj.__dict__
    for name in [n for n in old if n not in state] if isinstance(old, dict) else ():
        obj.__dict__.pop(name, None)


def _slots(cls):
    """Returns the names of the slots of a class that pickle saves, without `__dict__`."""
    return [n for n in copyreg._slotnames(cls) or () if n not in ("__dict__", "__weakref__")]


_CONTAINERS = (dict, list, set, bytearray, collections.deque, array.array)


def can_transplant(obj):
    """Returns whether the content of a new object can be moved into `obj`."""
    return isinstance(obj, _CONTAINERS) or (
        hasattr(obj, "__dict__") and type(obj).__flags__ & (1 << 9) and not _slots(type(obj))
    )


def _transplant(obj, fresh):
    if isinstance(obj, (dict, set)):
        content = fresh.copy()
        obj.clear()
        obj.update(content)
    elif isinstance(obj, (list, bytearray, array.array)):
        obj[:] = fresh
    elif isinstance(obj, collections.deque):
        obj.clear()
        obj.extend(fresh)
    if hasattr(obj, "__dict__"):
        obj.__dict__.clear()
        obj.__dict__.update(fresh.__dict__)
    return True


KINDS = {
    "list": ListKind,
    "dict": DictKind,
    "set": SetKind,
    "tuple": TupleKind,
    "frozenset": FrozensetKind,
    "bytes": BytesKind,
    "bytearray": BytearrayKind,
    "cell": CellKind,
    "function": FunctionKind,
    "weakref": WeakrefKind,
    "class": ClassKind,
    "object": ObjectKind,
}
BY_TYPE = {
    list: "list",
    dict: "dict",
    set: "set",
    tuple: "tuple",
    frozenset: "frozenset",
    bytes: "bytes",
    str: "bytes",
    bytearray: "bytearray",
    types.CellType: "cell",
    weakref.ref: "weakref",
}
