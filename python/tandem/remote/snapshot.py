"""Takes the state that a cell needs apart, into records of what the other side lacks.

Every object that has an identity is a record of its own; within a record, other objects appear as
numbers. So aliases and cycles survive, a deep structure needs no deep recursion, and only records
whose content changed are sent.

Steps of a snapshot: `add_root` names the values; `run` visits everything that they reach, compares
digests with what the other side has, and returns a `Package`; `commit` marks it as sent. Nothing
leaves the process before `run` has visited everything, so an object that cannot travel is found
first.
"""

import builtins
import gc
import io
import pickle
import sys
import types
from contextlib import contextmanager
from dataclasses import dataclass, field

import cloudpickle

from . import names, refuse
from .errors import CannotTravel
from .kinds import BY_TYPE, LARGE, SCALARS
from .proxy import RemoteModule, RemoteValue, describe
from .registry import kind_named, kind_of
from .shadow import Shadow, compare
from .table import BUILTINS, NAMESPACE

PROTOCOL = 5
_BUILTINS = vars(builtins)
_CONTAINERS = (list, dict, tuple, set, frozenset)
_MAX_ROUNDS = 100


@contextmanager
def paused_gc():
    """Keeps the cyclic garbage collector from visiting many new objects again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass
class Record:
    """One object on its way: how to build it, how to fill it, and which bytes of it changed."""

    number: int
    kind: str
    make: bytes
    fill: bytes
    size: int = -1  # bytes of the buffer; -1 without one
    ranges: list = field(default_factory=list)  # (offset, length) of the bytes that changed
    content: object = None  # the digests of its chunks, or the token of the Shadow with the ranges

    @property
    def nbytes(self):
        """Returns how many bytes travel."""
        return len(self.make) + len(self.fill) + sum(length for _, length in self.ranges)


@dataclass
class Package:
    """The result of a snapshot.

    `frames` are the memoryviews of the ranges, in their order; `shared` are (record, shadow, buffer)
    where a shadow takes the ranges, by `post`.
    """

    records: list
    roots: dict  # name -> pickled value, with numbers for objects
    frames: list
    sizes: dict  # name of a root -> bytes that travel because of it
    kept: list  # (path, number) of the values that stay here
    shared: list
    nbytes: int = 0  # of all records and their ranges

    def __post_init__(self):
        self.nbytes = sum(record.nbytes for record in self.records)

    def post(self):
        """Writes the ranges that shadows take. Returns the frames, which have to be sent."""
        for record, shadow, buffer in self.shared:
            shadow.write(buffer, record.ranges)
        return self.frames

    def release(self):
        """Lets go of the memory that the package refers to."""
        self.frames.clear()
        self.shared.clear()


class Snapshot:
    """One pass over the state.

    `stays(obj)` returns why the value of a name, new to the other side, has to stay here, or None.
    Where it is given, new values that cannot travel stay too, and the other side gets proxies.
    """

    def __init__(self, table, stays=None):
        self.table = table
        self._stays = stays
        self._roots = {}
        self._objects = ()
        self._new = []

    def add_root(self, name, value):
        """Adds a named value, and later the global names that its functions use."""
        self._roots[name] = value

    def add_objects(self, objects):
        """Adds objects that are visited though no name holds them."""
        self._objects = list(objects)

    def run(self):
        """Visits everything. Raises CannotTravel with the path of the value."""
        for _ in range(_MAX_ROUNDS):
            visit = _Visit(self)
            try:
                with paused_gc():
                    package = visit.run(dict(self._roots), self._objects)
            except BaseException:
                visit.release()  # a view of a bytearray would keep its size fixed
                raise
            finally:
                self._new += visit.new
            if not visit.replaced:
                self._visit = visit
                return package
            package.release()
            self.table.drop(visit.replaced)
        raise CannotTravel("the cell's state", "it changes while it is read", "Stop its threads.")

    def commit(self):
        """Marks everything that was visited as known to the other side."""
        for number, (make, digest, content, children) in self._visit.seen.items():
            entry = self.table.entry(number)
            entry.make, entry.digest, entry.content, entry.children = make, digest, content, children
        self._visit.seen.clear()  # the visit is part of a cycle and would keep shadows

    def changed(self):
        """Returns the numbers of the objects whose content the other side lacks."""
        return [record.number for record in self._visit.records]

    def new(self):
        """Returns the numbers that this snapshot gave."""
        return self._new


class _Pickler(cloudpickle.CloudPickler):
    """Pickles one record; every other object with an identity becomes its number."""

    def __init__(self, file, visit):
        super().__init__(file, PROTOCOL)
        self.fast = True  # no memo: equal content gives equal bytes
        self.persistent_id = visit.persistent_id


class _ValuePickler(cloudpickle.CloudPickler):
    """Pickles an immutable or importable object; a sentinel of a module goes by its name."""

    def __init__(self, file):
        super().__init__(file, PROTOCOL)
        self.fast = True

    def reducer_override(self, obj):
        """Returns the reduction of a sentinel; cloudpickle decides about all others."""
        if type(obj).__module__ == "dataclasses":
            for name, value in vars(sys.modules["dataclasses"]).items():
                if value is obj:
                    return getattr, (sys.modules["dataclasses"], name)
        return super().reducer_override(obj)


class _Visit:
    """The state of one pass."""

    def __init__(self, snapshot):
        self.table = snapshot.table
        self.namespace = snapshot.table.namespace
        self._stays = snapshot._stays
        self.records, self.frames, self.shared, self.kept = [], [], [], []
        self.seen, self.new, self.replaced = {}, [], []
        self._fresh = set()
        self._pending, self._queued = [], set()
        self._parents = {}  # number -> parent's number, or the name of a root
        self._inline_ids, self._alive = set(), []
        self._children = []
        self._current = None
        self._wanted = set()
        self._values = {}  # id() of a value -> its pickle, and the value
        self._file = io.BytesIO()
        self._pickler = _Pickler(self._file, self)

    # The walk.

    def run(self, roots, objects):
        """Visits everything that the roots and objects reach; returns the Package."""
        pickled, sizes, done = {}, {}, set()
        while set(roots) - done:
            for name in sorted(set(roots) - done):
                done.add(name)
                before = len(self.records)
                self._current = name
                pickled[name] = self._root(roots[name])
                self._drain()
                sizes[name] = sum(r.nbytes for r in self.records[before:]) + len(pickled[name])
            for name in names.wanted(self._wanted, self.namespace):
                roots.setdefault(name, self.namespace[name])
        self._current = "an object of an earlier cell"
        for obj in objects:
            self.persistent_id(obj)
        self._drain()
        return Package(self.records, pickled, self.frames, sizes, self.kept, self.shared)

    def release(self):
        """Lets go of the memory that the visit refers to."""
        self.frames.clear()
        self.shared.clear()

    def _root(self, value):
        self._begin()
        try:
            return self._dump((value,))
        except CannotTravel as error:
            raise self._located(error, None) from None

    def _drain(self):
        while self._pending:
            number = self._pending.pop()
            obj = self.table.object(number)
            self._current = number
            try:
                self._record(number, obj)
            except CannotTravel as error:
                self._keep(number, obj, self._located(error, number))
            except RecursionError:
                error = CannotTravel("", "it is nested too deeply", "Flatten it before the cell.")
                raise self._located(error, number) from None

    def _begin(self):
        self._children, self._inline_ids, self._alive = [], set(), []

    def _record(self, number, obj):
        self._begin()
        entry = self.table.entry(number)
        if entry.kind != "kept" and isinstance(obj, RemoteValue):
            raise CannotTravel("", *obj.lost)
        if entry.kind == "kept":
            self.seen[number] = (entry.make, entry.digest, None, ())
            return
        named = isinstance(self._parents.get(number), str)
        if self._stays is not None and named and number in self._fresh:
            reason = self._stays(obj)
            if reason is not None:
                raise CannotTravel("", reason, "")
        name = kind_of(obj, self.table)
        kind = kind_named(name)
        if name == "object":
            refuse.check(obj)
        parts = kind.describe(obj, self)
        make = self._dump(parts.make)
        fill = self._dump(parts.fill)
        self._emit(number, obj, Record(number, name, make, fill), parts.buffer)

    def _emit(self, number, obj, record, buffer):
        entry = self.table.entry(number)
        entry.kind = record.kind
        make, digest = hash(record.make), hash((record.make, record.fill))
        replaces = entry.make not in (None, make)
        if replaces and not kind_named(record.kind).remakable(obj):
            self.replaced.append(number)
        content = None
        if buffer is not None:
            shadows = self.table.shadows if record.kind != "bytes" else None
            content, record.ranges = compare(entry.content, buffer, shadows)
            record.size = len(buffer)
        if entry.digest != digest or record.ranges or (entry.content or b"") != (content or b""):
            self.records.append(record)
            self._take_bytes(record, content, buffer)
        self.seen[number] = (make, digest, content, tuple(self._children))

    def _take_bytes(self, record, content, buffer):
        if isinstance(content, Shadow):
            record.content = content.token
            self.shared.append((record, content, buffer))
            return
        record.content = content
        for offset, length in record.ranges:
            self.frames.append(buffer[offset : offset + length])

    def _keep(self, number, obj, error):
        """Keeps a new value on this side, if it may; the other side gets its description."""
        if self._stays is None or number not in self._fresh:
            raise error
        description = describe(obj, error.reason)
        self._begin()
        entry = self.table.entry(number)
        entry.kind = "kept"
        self.kept.append((error.path, number))
        record = Record(number, "kept", self._dump(self.inline(description)), b"")
        self.records.append(record)
        self.seen[number] = (hash(record.make), hash((record.make, b"")), None, ())

    # What the kinds call.

    def inline(self, value):
        """Makes a value part of the record that holds it. Returns the value."""
        if isinstance(value, _CONTAINERS):
            self._inline_ids.add(id(value))
            self._alive.append(value)
        return value

    def temporary(self, value):
        """Inlines a container, and those within it that only the description refers to."""
        if type(value) not in _CONTAINERS:
            return value
        self.inline(value)
        held = list(value.values()) if type(value) is dict else list(value)
        # 3: the container, `held` and the argument of getrefcount.
        nested = [i for i in range(len(held)) if sys.getrefcount(held[i]) <= 3]
        for index in nested:
            if type(held[index]) in _CONTAINERS:
                self.temporary(held[index])
        return value

    def ordered(self, values):
        """Returns the elements of a set in an order that does not depend on the process."""
        values = list(values)
        if set(map(type, values)) <= {int, str} and len(set(map(type, values))) <= 1:
            return self.inline(tuple(sorted(values)))
        return self.inline(tuple(sorted(values, key=self._order_key)))

    def _order_key(self, value):
        number = self.persistent_id(value)
        return (1, number, "") if number is not None else (0, 0, f"{type(value)}{value!r}")

    def reduce(self, obj):
        """Returns what the reducer of an object says, from cloudpickle, copyreg or itself."""
        try:
            reduced = self._pickler.reducer_override(obj)
            if reduced is NotImplemented:
                reducer = self._pickler.dispatch_table.get(type(obj))
                reduced = reducer(obj) if reducer else obj.__reduce_ex__(PROTOCOL)
        except CannotTravel:
            raise
        except Exception as error:  # a reducer is foreign code
            raise refuse.no_pickle(obj, error) from error
        if isinstance(reduced, str):  # the name of a global object
            return pickle.loads, (self._value(obj),)
        return reduced

    # Numbers.

    def persistent_id(self, obj):
        """Returns the number of an object with an identity, or the pickle of an immutable one.

        None puts the object into the record that holds it.
        """
        kind = type(obj)
        if kind in SCALARS or ((kind is str or kind is bytes) and len(obj) < LARGE):
            return None
        if obj is self.namespace:
            return NAMESPACE
        if obj is _BUILTINS:
            return BUILTINS
        if id(obj) in self._inline_ids:
            return None
        if kind not in BY_TYPE and by_reference(obj):
            return self._value(obj)
        if kind is tuple and all(map(_is_atom, obj)):
            return None
        number = self.table.number(obj)
        if number is None:
            number = self.table.add(obj)
            self.new.append(number)
            self._fresh.add(number)
        self._children.append(number)
        if number not in self._queued:
            self._queued.add(number)
            self._parents[number] = self._current
            self._pending.append(number)
            if isinstance(obj, types.FunctionType) and obj.__globals__ is self.namespace:
                self._wanted |= names.global_names(obj.__code__)
        return number

    def _value(self, obj):
        """Returns the pickle of an immutable or importable object."""
        found = self._values.get(id(obj))
        if found is None:
            file = io.BytesIO()
            _ValuePickler(file).dump(obj)
            found = self._values[id(obj)] = (file.getvalue(), obj)
        return found[0]

    def _dump(self, value):
        if value is None:
            return b""
        if type(value) is tuple:
            self.inline(value)
        self._file.seek(0)
        self._file.truncate()
        try:
            self._pickler.dump(value)
        except CannotTravel:
            raise
        except RecursionError:
            raise
        except Exception as error:  # pickling runs foreign code
            raise CannotTravel("", f"it cannot be pickled ({error})", _ADVICE) from error
        return self._file.getvalue()

    def _located(self, error, number):
        """Returns the error with the path of the object that it is about."""
        from .paths import path_of

        start = self._current if number is None else number
        path = path_of(self.table, self._parents, start) if error.path == "" else error.path
        return CannotTravel(path, error.reason, error.advice)


def observer(table):
    """Returns what kinds need to describe objects that do not travel."""
    return _Visit(Snapshot(table))


_ADVICE = "Create it inside the cell, or leave it out of the names that the cell reads."


def _is_atom(value):
    kind = type(value)
    return kind in SCALARS or ((kind is str or kind is bytes) and len(value) < LARGE)


_VALUES = {
    "dataclasses": ("_FIELD_BASE", "_MISSING_TYPE", "_HAS_DEFAULT_FACTORY_CLASS", "_KW_ONLY_TYPE"),
    "builtins": ("range", "slice", "ellipsis", "NotImplementedType", "builtin_function_or_method"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "uuid": ("UUID",),
    "pathlib": ("PosixPath", "PurePosixPath"),
    "re": ("Pattern",),
    "torch": ("dtype", "device", "Size", "layout", "memory_format"),
}


def by_reference(obj):
    """Returns whether an object is immutable or importable, and so needs no number."""
    kind = type(obj)
    if isinstance(obj, type):
        return obj.__module__ == "builtins" or _importable(obj)
    if kind is types.FunctionType:
        return _importable(obj)
    if kind is types.BuiltinFunctionType:
        return obj.__self__ is None or isinstance(obj.__self__, types.ModuleType)
    if isinstance(obj, (types.ModuleType, types.CodeType, RemoteModule)):
        return True
    if kind.__name__ in _VALUES.get(kind.__module__, ()):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, (numpy.generic, numpy.dtype, numpy.ufunc))


def _importable(obj):
    """Returns whether `import` finds a class or function under its own name."""
    module = sys.modules.get(getattr(obj, "__module__", None))
    if module is None or module.__name__ == "__main__":
        return False
    found = module
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj
