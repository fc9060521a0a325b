"""Builds what arrived, and writes changes into the objects that exist.

Order: an object is filled after the objects that it refers to, as far as cycles allow, since a
dict or set needs the final hash of its keys. Bytes are written last. If anything raises, `undo`
gives all existing objects their content from before; the bytes of existing buffers are then still
untouched.
"""

import builtins
import io
import pickle

from .kinds import Kind
from .proxy import RemoteValue
from .registry import kind_named
from .shadow import Shadow
from .snapshot import observer, paused_gc
from .table import BUILTINS, NAMESPACE

_EAGER = ("class", "object", "tuple", "frozenset")  # their construction needs complete arguments


class _KeptKind(Kind):
    @staticmethod
    def build(make):
        return RemoteValue(make)


class _Busy(Exception):
    """An object was needed while it was being built; the caller tries again later."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, rebuild):
        super().__init__(file)
        self._rebuild = rebuild

    def persistent_load(self, pid):
        """Returns the object of a number, or the value of a nested pickle."""
        return self._rebuild.obtain(pid)


class Rebuild:
    """One package on its way into this process. `frames` are buffers in the package's order."""

    def __init__(self, table, records, frames):
        self._table = table
        self._records = {record.number: record for record in records}
        self._shadows = {r.number: self._shadow(r) for r in records if isinstance(r.content, tuple)}
        self._frames = self._assign(records, frames)
        self._fresh = {}  # objects built here, until all has succeeded
        self._makes = {}
        self._building, self._entered = set(), set()
        self._children = {}
        self._values = {}
        self._undo = []
        self._current = None

    def _shadow(self, record):
        known = self._table.content(record.number)
        if isinstance(known, Shadow) and known.token == record.content:
            return known
        return Shadow.of(record.content)

    def _assign(self, records, frames):
        taken, found = iter(frames), {}
        for record in records:
            shadow = self._shadows.get(record.number)
            found[record.number] = [
                next(taken) if shadow is None else shadow.view[offset : offset + length]
                for offset, length in record.ranges
            ]
        return found

    def run(self, roots):
        """Builds and fills everything; returns {name: value} of the pickled `roots`.

        Raises what building raises, after `undo`.
        """
        try:
            with paused_gc():
                for number in self._records:
                    self._complete(number)
                values = {name: self._load(pickled)[0] for name, pickled in roots.items()}
        except BaseException:
            self.undo()
            raise
        self._register()
        self._write_bytes()
        return values

    def root_numbers(self):
        """Returns the numbers that the roots name, after `run`."""
        return self._children.get(None, [])

    def undo(self):
        """Gives existing objects the content that they had before."""
        while self._undo:
            self._undo.pop()()

    def obtain(self, pid):
        """Returns the object of a persistent id, built but perhaps not filled."""
        if isinstance(pid, bytes):
            if pid not in self._values:
                self._values[pid] = pickle.loads(pid)
            return self._values[pid]
        if pid == NAMESPACE:
            return self._table.namespace
        if pid == BUILTINS:
            return vars(builtins)
        self._children.setdefault(self._current, []).append(pid)
        obj = self._fresh.get(pid)
        if obj is None:
            obj = self._table.object(pid)
        if obj is None:
            obj = self._build(pid)
        return obj

    def _kind(self, record):
        return _KeptKind if record.kind == "kept" else kind_named(record.kind)

    def _load(self, data, owner=None):
        if not data:
            return None
        outer, self._current = self._current, owner
        try:
            return _Unpickler(io.BytesIO(data), self).load()
        finally:
            self._current = outer

    def _build(self, number):
        if number in self._building:
            raise _Busy
        record = self._records.get(number)
        if record is None:
            raise KeyError(f"object {number} is unknown on this side")
        self._building.add(number)
        try:
            make = self._load(record.make, number)
            if record.kind in _EAGER:
                for child in list(self._children.get(number, ())):
                    if child in self._records:
                        self._complete(child, nested=True)
            self._makes[number] = make
            kind = self._kind(record)
            if record.kind == "bytes":
                obj = kind.build(make, b"".join(self._frames[number]))
            else:
                obj = kind.build(make)
            self._fresh[number] = obj
        finally:
            self._building.discard(number)
        return obj

    def _complete(self, number, nested=False):
        """Builds and fills an object after its children, without recursion along `fill`."""
        stack = [(number, None)]
        while stack:
            current, pending = stack.pop()
            if pending is not None:
                pending()
                continue
            if current in self._entered or current not in self._records:
                continue
            try:
                finish = self._enter(current)
            except _Busy:
                if not nested:
                    raise
                continue
            self._entered.add(current)
            stack.append((current, finish))
            stack.extend((child, None) for child in self._children.get(current, ()))

    def _enter(self, number):
        """Loads a record; returns the function that writes its content."""
        record = self._records[number]
        kind = self._kind(record)
        if number in self._fresh or self._table.object(number) is None:
            obj = self._fresh.get(number)
            if obj is None:
                obj = self._build(number)
            fill = self._load(record.fill, number)
            return lambda: kind.fill(obj, fill) if record.fill else None
        obj = self._table.object(number)
        make = self._makes[number] = self._load(record.make, number)
        fill = self._load(record.fill, number)
        return lambda: self._update(record, kind, obj, make, fill)

    def _update(self, record, kind, obj, make, fill):
        entry = self._table.entry(record.number)
        if entry.kind == "kept":
            return
        if entry.kind is not None:
            self._undo.append(kind.saved(obj, observer(self._table)))
        rebuilds = record.make and entry.make != hash(record.make)
        if rebuilds and not kind.remake(obj, make):
            raise TypeError(f"a {type(obj).__qualname__} cannot be changed in place")
        if record.fill:
            kind.fill(obj, fill)

    def _register(self):
        for number, obj in self._fresh.items():
            self._table.add(obj, number)
        for number, record in self._records.items():
            entry = self._table.entry(number)
            entry.kind = record.kind
            entry.make, entry.digest = hash(record.make), hash((record.make, record.fill))
            entry.content = self._shadows.get(number, record.content)
            entry.children = tuple(self._children.get(number, ()))
            self._note_memory(record.kind, self._table.object(number))

    def _note_memory(self, kind, obj):
        """Lets later snapshots find the owner of a piece of memory."""
        if kind == "array":
            from . import arrays

            arrays.note(obj, self._table)
        elif kind == "storage":
            self._table.storages[obj.address] = obj

    def _write_bytes(self):
        for number, record in self._records.items():
            obj = self._table.object(number)
            if record.size < 0 or record.kind == "bytes":
                continue
            kind = kind_named(record.kind)
            memory = kind.memory(obj) if record.ranges else None
            if memory is not None:
                for (offset, length), frame in zip(record.ranges, self._frames[number]):
                    memory[offset : offset + length] = frame
            kind.finish(obj, self._makes[number])
        for number, record in self._records.items():
            if record.kind == "storage" and self._table.weak:
                self._table.object(number).anchor = None
