"""numpy arrays: owners of memory, and views that keep sharing it.

An owner is the array at the end of the chain of bases. A view names its owner, so a view that
travels brings its whole owner along, once.
"""

import weakref

import numpy as np

from . import tensors
from .kinds import Kind, Parts


def kind_of(obj, table):
    """Returns the kind of a numpy array, or None where its own reducer has to be used."""
    if type(obj) is not np.ndarray or obj.dtype.hasobject:
        return None
    owner = _owner(obj)
    if _handle(owner, table) is not None:
        return "view"
    if not _dense(owner):
        return None
    return "array" if owner is obj else "view"


def address(obj):
    """Returns the address of an array's first element."""
    return obj.__array_interface__["data"][0]


def note(obj, table):
    """Records that an array owns its memory, for tensors that borrow it."""
    table.memory[address(obj)] = weakref.ref(obj)


def _owner(obj):
    root = obj
    while isinstance(root.base, np.ndarray):
        root = root.base
    return root


def _handle(owner, table):
    """Returns the handle of the torch storage whose memory an array uses, or None."""
    handle = table.storages.get(address(owner))
    if handle is not None and handle.alive() and handle.nbytes and not handle.borrowed:
        return handle
    return tensors.handle_of(owner.base, table) if tensors.is_tensor(owner.base) else None


class ArrayKind(Kind):
    """An array that owns its memory."""

    @staticmethod
    def describe(obj, take):
        note(obj, take.table)
        layout = take.inline((obj.dtype, obj.shape, obj.strides, obj.flags.writeable))
        return Parts(make=layout, buffer=_flat(obj))

    @staticmethod
    def build(make):
        dtype, shape, strides, _ = make
        template = np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)
        return np.empty_like(template, order="K")

    @staticmethod
    def remakable(obj):
        return True

    @staticmethod
    def remake(obj, make):
        dtype, shape, strides, _ = make
        if obj.dtype == dtype and obj.shape == shape and obj.strides == strides:
            return True
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if obj.nbytes != size or not obj.flags.c_contiguous:
            return False
        obj.shape = (obj.size,)
        obj.dtype = np.uint8
        obj.dtype = dtype
        obj.shape = shape
        if obj.strides != strides:
            obj.strides = strides
        return True

    @staticmethod
    def memory(obj):
        """Returns the bytes of an owner, writable even where the array is not."""
        writeable = obj.flags.writeable
        obj.flags.writeable = True
        memory = _flat(obj)
        obj.flags.writeable = writeable
        return memory

    @staticmethod
    def finish(obj, make):
        """Sets the flag after the bytes have arrived."""
        obj.flags.writeable = make[3]


class ViewKind(Kind):
    """An array over memory that another array or a torch storage owns."""

    @staticmethod
    def describe(obj, take):
        owner = _owner(obj)
        handle = _handle(owner, take.table)
        base = address(owner) if handle is None else handle.address
        offset = address(obj) - base if obj.size else 0
        layout = (offset, obj.shape, obj.strides, obj.flags.writeable)
        return Parts(
            make=take.inline((owner if handle is None else handle, obj.dtype, take.inline(layout)))
        )

    @staticmethod
    def build(make):
        owner, dtype, (offset, shape, strides, writeable) = make
        memory = owner.numpy() if isinstance(owner, tensors.StorageHandle) else _bytes(owner)
        view = np.ndarray(shape, dtype, memory, offset, strides)
        view.flags.writeable = writeable
        return view


def _dense(obj):
    """Returns whether an array's elements fill its memory without gaps or repeats."""
    if obj.flags.c_contiguous or obj.flags.f_contiguous:
        return True
    expected = obj.itemsize
    for stride, length in sorted(zip(obj.strides, obj.shape)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def _bytes(obj):
    """Returns the memory of a dense array as one-dimensional bytes, without a copy."""
    return obj.ravel(order="K").view(np.uint8)


def _flat(obj):
    return memoryview(_bytes(obj))
