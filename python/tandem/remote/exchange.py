"""What the notebook and the worker exchange for one cell, without kernels and sockets.

The life of a cell:
1. `Notebook.prepare` takes the state apart; nothing has left the process yet.
2. `Worker.install` builds it there, and makes the namespace hold exactly the names that were sent.
3. The cell runs.
4. `Worker.collect` takes apart what the cell bound or changed.
5. `Notebook.accept` writes it into the notebook's objects and binds the names.
After a failure `Worker.collect` reports only which objects it had changed, and `Notebook.failed`
marks them, so that they travel again and the worker's copies get the notebook's content back.
"""

import importlib
import os
import re
import sys
import types

from . import absent_gpu, context, tensors
from .errors import CannotTravel, RemoteCellError
from .proxy import RemoteModule, RemoteValue
from .rebuild import Rebuild
from .snapshot import Snapshot
from .table import Table

_SHELL_NAMES = re.compile(r"_+|_+i+|_\d+|_i\d+|_[dio]h|In|Out|get_ipython|exit|quit|__\w+__|open")


class Notebook:
    """The notebook's half. `namespace` is the dict of the user's names."""

    def __init__(self, namespace):
        self.table = Table(2, True, namespace)
        self._namespace = namespace
        self._environment = dict(os.environ)
        self._dropped = []
        self._owed = set()  # numbers whose content the worker lost by a failure
        self._snapshot = None

    def prepare(self, names):
        """Returns the `Package` with the values of `names` and of what their functions use.

        Raises CannotTravel; the notebook and the worker are then unchanged.
        """
        self._dropped += self.table.sweep(list(self._namespace.values()))
        self._snapshot = Snapshot(self.table)
        for name in sorted(names):
            self._snapshot.add_root(name, self._namespace[name])
        self._snapshot.add_objects(self._owed_objects())
        return self._snapshot.run()

    def _owed_objects(self):
        """Returns the objects that a kept value may reach, and that the worker has no content of."""
        table = self.table
        self._owed = {n for n in self._owed if n in table and table.entry(n).digest is None}
        if not any(table.entry(n).kind == "kept" for n in table):
            return []
        return [obj for obj in map(table.object, self._owed) if obj is not None]

    def header(self, package):
        """Returns the message that goes with the frames of a prepared package.

        The package counts as sent from here on; `failed` has to be called if it was not.
        """
        self._snapshot.commit()
        self._snapshot = None
        return {
            "records": package.records,
            "roots": package.roots,
            "drop": list(self._dropped),
            "absent_gpu": absent_gpu.expected(),
            "context": context.capture(self._environment),
        }

    def accept(self, reply, frames):
        """Writes a reply of `Worker.collect` into the namespace. Returns the names it bound.

        If anything raises, the namespace and all objects have their content from before.
        """
        modules = {name: _imported(home) for name, home in reply["modules"].items()}
        try:
            values = Rebuild(self.table, reply["records"], frames).run(reply["roots"])
        except Exception as error:  # building runs foreign code
            raise RemoteCellError(
                f"The cell ran, but its results cannot be built here ({_text(error)}). Nothing "
                "here has changed. Keep them on the worker with --keep, or install what is missing."
            ) from error
        values.update(modules)
        for name in reply["deleted"]:
            self._namespace.pop(name, None)
        self._namespace.update(values)
        self._dropped = []
        self.failed(reply["dirty"])
        if reply.get("context"):
            context.restore(reply["context"])
        return sorted(values)

    def failed(self, dirty=None):
        """Marks the content of objects, by default of all, as unknown to the worker.

        An object that cannot be written into gets a new number instead.
        """
        from .registry import kind_named

        self._read()
        numbers = list(self.table) if dirty is None else dirty
        self._owed.update(n for n in numbers if n in self.table and self.table.entry(n).digest)
        self.table.forget(numbers)
        for number in numbers:
            obj = self.table.object(number)
            kind = self.table.entry(number).kind if obj is not None else None
            if kind not in (None, "kept") and not kind_named(kind).remakable(obj):
                if kind in _REPLACED:
                    self.table.drop([number])
                    self._dropped.append(number)

    def _read(self):
        """Says that the worker has mapped what it got."""
        if self.table.shadows is not None:
            self.table.shadows.received()

    def rebuilt(self, reply, frames):
        """Returns the exception in the reply of a failed cell; None where it cannot be built."""
        table = self.table
        try:
            rebuild = Rebuild(table, reply["records"], frames)
            error = rebuild.run(reply["roots"])["exception"]
        except Exception:  # a class of the worker may be missing here
            return None
        table.drop(record.number for record in reply["records"])
        return error

    def forget_worker(self):
        """Starts again with an empty table, for a new worker."""
        self.table = Table(2, True, self._namespace)
        self._dropped, self._owed = [], set()

    def proxies(self):
        """Returns {name: proxy} of the names whose values are on a worker."""
        items = list(self._namespace.items())
        return {name: value for name, value in items if isinstance(value, RemoteValue)}

    def fetched(self, proxy, reply, frames):
        """Puts the value of a fetched proxy in the place of it; returns the value."""
        self._read()
        number = self.table.number(proxy)
        self.table.drop([number])
        value = Rebuild(self.table, reply["records"], frames).run(reply["roots"])["value"]
        for name, bound in self.proxies().items():
            if bound is proxy:
                self._namespace[name] = value
        return value


def _text(error):
    return f"{type(error).__name__}: {error}"


def _imported(name):
    try:
        return importlib.import_module(name)
    except Exception:  # it is missing, or fails as it is imported
        return RemoteModule(name)


_REPLACED = ("object", "view", "tuple", "frozenset", "weakref", "bytes")


class Worker:
    """The worker's half. Names that exist in `namespace` at the start belong to the shell."""

    def __init__(self, namespace):
        self.table = Table(1, False, namespace)
        self._namespace = namespace
        self._shell_names = set(namespace)
        self._roots = {}
        self._in_play = set()  # the numbers of the objects that the cell could reach at its start
        self._modules = {}
        self._expects_gpu = False

    def install(self, header, frames):
        """Makes the namespace hold the names of a header, and nothing else of the user's."""
        if header["absent_gpu"] and not self._expects_gpu:
            self._expects_gpu = True
            name = "the worker's CPU: its torch has no CUDA"
            absent_gpu.expect(name, _tell_no_cuda, ask=False)
        if self.table.shadows is not None:
            self.table.shadows.received()
        self.table.drop(header["drop"])
        rebuild = Rebuild(self.table, header["records"], frames)
        try:
            values = rebuild.run(header["roots"])
        except Exception as error:  # building runs foreign code
            raise RemoteCellError(
                f"The cell did not run: its variables cannot be built on the worker "
                f"({_text(error)}). Install what is missing there."
            ) from error
        for name in self._user_names():
            del self._namespace[name]
        self._namespace.update(values)
        self._roots = header["roots"]
        self._in_play = self.table.reachable(rebuild.root_numbers())
        self._modules = {n: v for n, v in values.items() if isinstance(v, types.ModuleType)}
        context.restore(header["context"])

    def _user_names(self):
        return [
            name
            for name in self._namespace
            if name not in self._shell_names and not _SHELL_NAMES.fullmatch(name)
        ]

    def collect(self, outputs=None, keep=(), limit=None):
        """Returns (reply, package) of a cell that succeeded.

        `outputs` limits the names that come back; `keep` are names whose values stay here, as do
        new values of more than `limit` bytes and those on a device.
        """
        names = self._user_names()
        wanted = names if outputs is None else [n for n in outputs if n in self._namespace]
        modules = [n for n in wanted if isinstance(self._namespace[n], types.ModuleType)]
        wanted = [n for n in wanted if n not in modules]
        stays = _Stays([self._namespace[n] for n in keep if n in self._namespace], limit)
        snapshot = Snapshot(self.table, stays)
        for name in wanted:
            snapshot.add_root(name, self._namespace[name])
        if outputs is None:
            snapshot.add_objects(self._changeable())
        try:
            package = snapshot.run()
        except CannotTravel:
            self.table.drop(snapshot.new())
            raise
        snapshot.commit()
        roots = {n: package.roots[n] for n in wanted if package.roots[n] != self._roots.get(n)}
        deleted = [n for n in self._roots if n not in self._namespace]
        reply = {
            "records": package.records,
            "roots": roots,
            "modules": {
                n: self._namespace[n].__name__
                for n in modules
                if self._namespace[n] is not self._modules.get(n)
            },
            "deleted": deleted if outputs is None else [],
            "dirty": self.dirty() if outputs is not None else [],
            "kept": package.kept,
            "context": context.capture(),
        }
        return reply, package

    def _changeable(self):
        """Returns the objects that the cell may have changed, whether or not it still has them.

        A kept value may reach objects that the notebook knows, so all are visited then.
        """
        entries = [self.table.entry(n) for n in self._in_play]
        if any(entry.kind == "kept" for entry in entries):
            return self.table.objects()
        return [obj for obj in map(self.table.object, self._in_play) if obj is not None]

    def dirty(self):
        """Returns the numbers of the objects that a cell changed, and forgets new ones."""
        snapshot = Snapshot(self.table, _Stays([], None))
        snapshot.add_objects(self._changeable())
        try:
            snapshot.run().release()
            dirty = snapshot.changed()
        except CannotTravel:
            dirty = list(self.table)
        new = set(snapshot.new())
        self.table.drop(new)
        dirty = [number for number in dirty if number not in new]
        self.table.forget(dirty)
        return dirty

    def fetch(self, number):
        """Returns (reply, package) with the value of a proxy.

        A tensor with an autograd graph is detached. Raises CannotTravel.
        """
        value = self.table.object(number)
        entry = self.table.entry(number)
        if getattr(value, "grad_fn", None) is not None:
            value = value.detach()
        else:
            entry.kind = None
            entry.forget()
        snapshot = Snapshot(self.table)
        snapshot.add_root("value", value)
        try:
            package = snapshot.run()
        except CannotTravel:
            entry.kind = "kept"
            self.table.drop(snapshot.new())
            raise
        snapshot.commit()
        return {"records": package.records, "roots": package.roots}, package


def _tell_no_cuda():
    text = "torch on the worker has no CUDA: tensors of the GPU compute on the worker's CPU."
    print(f"tandem: {text}", file=sys.stderr, flush=True)


class _Stays:
    """Says why a new value stays on the worker."""

    def __init__(self, values, limit):
        self._values = values
        self._limit = limit

    def __call__(self, obj):
        if any(obj is value for value in self._values):
            return "the option --keep names it"
        if tensors.is_tensor(obj):
            on_card = obj.is_cuda
        else:
            on_card = hasattr(type(obj), "__cuda_array_interface__")
        if on_card:
            return "it is in the memory of a GPU"
        nbytes = getattr(obj, "nbytes", None)
        if self._limit is not None and isinstance(nbytes, int) and nbytes > self._limit:
            return f"it has {nbytes} bytes, more than the limit of {self._limit}"
        return None
