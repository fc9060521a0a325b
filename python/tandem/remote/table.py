"""The objects that both sides of a remote cell know, by number.

Invariants:
1. A number means the same object on both sides for as long as either side knows it. The notebook
   gives even numbers, the worker odd ones, so both may name new objects without asking.
2. An entry holds its object weakly where Python allows it, so that `del big` frees memory at once.
3. `digest` describes the content that the other side has; None means that it must be sent.
Threading: the thread that runs the cells.
"""

import weakref

BUILTINS = -1  # the number of the dict of builtins
NAMESPACE = 0  # the number of the user's namespace, the globals of functions of the notebook


class Entry:
    """One object: its number, its kind, its content as the other side has it, its children."""

    __slots__ = ("ref", "kind", "make", "digest", "content", "children", "__weakref__")

    def __init__(self, obj, weak):
        self.ref = _reference(obj, weak)
        self.kind = None
        self.make = None  # digest of what builds the object
        self.digest = None  # digest of what builds and fills it
        self.content = None  # of its buffer: digests (chunks.py) or a Shadow (shadow.py)
        self.children = ()

    def forget(self):
        """Marks the content as unknown to the other side."""
        self.make = self.digest = self.content = None


def _reference(obj, weak):
    if weak:
        try:
            return weakref.ref(obj)
        except TypeError:
            pass
    return lambda: obj


class Table:
    """Maps objects to numbers and back.

    `first` is the first number, `namespace` the dict of the user's names. `weak` False keeps each
    object alive: the worker's table, which the notebook's table rules.
    """

    def __init__(self, first, weak, namespace):
        self.namespace = namespace
        self._next = first
        self.weak = weak
        self._entries = {}
        self._numbers = {}  # id() of an object -> its number
        self.storages = {}  # address -> handle of a torch storage, see tensors.py
        self.shadows = None  # makes shared copies, where the other side can map them
        self.memory = {}  # address -> weak reference to the numpy array that owns the memory

    def __len__(self):
        return len(self._entries)

    def __contains__(self, number):
        return number in self._entries

    def __iter__(self):
        return iter(list(self._entries))

    def entry_kind(self, obj):
        """Returns the kind of a known object, or None."""
        number = self.number(obj)
        return None if number is None else self._entries[number].kind

    def number(self, obj):
        """Returns the number of an object, or None."""
        number = self._numbers.get(id(obj))
        entry = self._entries.get(number)
        return number if entry is not None and entry.ref() is obj else None

    def add(self, obj, number=None):
        """Gives an object a number, a new one by default. Returns the number."""
        if number is None:
            number = self._next
            self._next += 2
        self.drop([number])
        stale = self._numbers.get(id(obj))
        if stale is not None:
            self.drop([stale])
        self._entries[number] = Entry(obj, self.weak)
        self._numbers[id(obj)] = number
        return number

    def content(self, number):
        """Returns the content that the other side has of an object's buffer, or None."""
        entry = self._entries.get(number)
        return None if entry is None else entry.content

    def entry(self, number):
        """Returns the entry of a known number. Raises KeyError."""
        return self._entries[number]

    def object(self, number):
        """Returns the object of a number, or None where it is unknown or gone."""
        entry = self._entries.get(number)
        return None if entry is None else entry.ref()

    def objects(self):
        """Returns the list of all living objects."""
        return [obj for entry in self._entries.values() if (obj := entry.ref()) is not None]

    def drop(self, numbers):
        """Forgets numbers; unknown ones are ignored."""
        for number in numbers:
            entry = self._entries.pop(number, None)
            if entry is not None:
                obj = entry.ref()
                key = id(obj) if obj is not None else None
                if key is not None and self._numbers.get(key) == number:
                    del self._numbers[key]

    def forget(self, numbers=None):
        """Marks the content of numbers, or of all, as unknown to the other side."""
        for number in list(self._entries) if numbers is None else numbers:
            if number in self._entries:
                self._entries[number].forget()

    def reachable(self, numbers):
        """Returns the set of known numbers that `numbers` reach, as of the last snapshots."""
        found, pending = set(), list(numbers)
        while pending:
            number = pending.pop()
            if number in found or number not in self._entries:
                continue
            found.add(number)
            pending.extend(self._entries[number].children)
        return found

    def sweep(self, roots):
        """Drops what no root reaches and what is gone; returns the dropped numbers.

        `roots` are objects. Children are those of the last snapshot of each object: an object
        that moved since then may be dropped though it lives, and travels again when it is used.
        A proxy keeps its value on the worker for as long as the proxy lives.
        """
        pending = [n for n in map(self.number, roots) if n is not None]
        pending += [n for n, entry in self._entries.items() if entry.kind == "kept"]
        alive = self.reachable(pending)
        dropped = [
            number
            for number, entry in self._entries.items()
            if entry.ref() is None or number not in alive
        ]
        self.drop(dropped)
        living = set(self._entries)
        self._numbers = {key: number for key, number in self._numbers.items() if number in living}
        self.storages = {k: handle for k, handle in self.storages.items() if handle.alive()}
        self.memory = {k: ref for k, ref in self.memory.items() if ref() is not None}
        return dropped
