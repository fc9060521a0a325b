"""torch tensors and their storages. Without torch in this process, nothing here is a tensor.

A storage has no Python object that lives as long as it does, so a `StorageHandle` stands for it.
Tensors that share a storage keep sharing it, and `.grad` is written after the data.
"""

import functools
import sys
import weakref

from . import absent_gpu, tags
from .errors import CannotTravel
from .kinds import Kind, Parts


def is_tensor(obj):
    """Returns whether `obj` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, getattr(torch, "Tensor", ()))


def kind_of(obj):
    """Returns the kind of a tensor, or None where torch's own reducer has to be used."""
    import torch

    plain = type(obj).__reduce_ex__ in (
        torch.Tensor.__reduce_ex__,
        torch.nn.Parameter.__reduce_ex__,
    )
    strided = obj.layout == torch.strided and not obj.is_quantized and obj.device.type != "meta"
    return "tensor" if plain and strided else None


class StorageHandle:
    """Stands for a storage while a tensor that uses it lives.

    `anchor` keeps a new storage alive until its first tensor has been built, and on the worker for
    as long as the notebook knows the storage: a cell that fails may have left it without a tensor.
    `borrowed` is true where a numpy array owns the memory. `device` is where the storage belongs:
    on a machine without a card, the bytes of a storage of a card lie in host memory.
    """

    def __init__(self, storage, borrowed=False, device=None):
        self.device = device or str(storage.device)
        self.address = storage.data_ptr()
        self.nbytes = storage.nbytes()
        self.borrowed = borrowed
        self.anchor = None
        self._tensors = []

    def add(self, tensor):
        """Records a tensor that uses the storage."""
        if not any(ref() is tensor for ref in self._tensors):
            self._tensors = [ref for ref in self._tensors if ref() is not None]
            self._tensors.append(weakref.ref(tensor))

    def alive(self):
        """Returns whether a tensor still uses the storage."""
        return self._tensor() is not None

    def _tensor(self):
        if self.anchor is not None:
            return self.anchor
        for ref in self._tensors:
            tensor = ref()
            if tensor is not None and _storage(tensor).data_ptr() == self.address:
                return tensor
        return None

    def storage(self):
        """Returns the untyped storage."""
        return _storage(self._tensor())

    def numpy(self):
        """Returns the bytes of a storage in host memory as a numpy array, without a copy."""
        array = _flat(self).numpy()
        if is_tensor(array.base):
            self.add(array.base)  # the array keeps this tensor, and so the storage, alive
        return array


def handle_of(tensor, table):
    """Returns the handle of a tensor's storage, one for each storage; None for an empty one."""
    storage = _storage(tensor)
    if not storage.nbytes():
        return None
    handle = table.storages.get(storage.data_ptr())
    if handle is None or not handle.alive() or _has_moved(tensor, handle):
        owner = table.memory.get(storage.data_ptr(), lambda: None)()
        device = tags.device_of(tensor, storage.device)
        handle = StorageHandle(storage, borrowed=owner is not None, device=device)
        table.storages[handle.address] = handle
        if not table.weak:
            handle.anchor = tensor.detach()
    handle.add(tensor)
    handle.nbytes = storage.nbytes()
    return handle


def _has_moved(tensor, handle):
    """Returns whether a tensor came from another device to the address of its former storage.

    A view made where torch does not know the GPU has no mark, and says nothing.
    """
    if tags.index_of(tensor) is None and absent_gpu.installed() is None:
        return False
    return handle.device != tags.device_of(tensor, _storage(tensor).device)


class StorageKind(Kind):
    """The memory of tensors; on a device its bytes are copied to the host to travel."""

    @classmethod
    def saved(cls, obj, take):
        return lambda: None

    @staticmethod
    def describe(obj, take):
        storage = obj.storage()
        device = obj.device
        if obj.borrowed:
            owner = take.table.memory[obj.address]()
            return Parts(make=take.inline((obj.nbytes, device, owner)))
        memory = obj.numpy() if storage.device.type == "cpu" else _to_host(obj)
        return Parts(make=take.inline((obj.nbytes, device, None)), buffer=memoryview(memory))

    @staticmethod
    def build(make):
        import torch

        nbytes, device, owner = make
        if owner is not None:
            from .arrays import _bytes

            anchor = torch.from_numpy(_bytes(owner))
        else:
            anchor = torch.empty(nbytes, dtype=torch.uint8, device=_present(device))
        handle = StorageHandle(_storage(anchor), owner is not None, device)
        handle.anchor = anchor
        return handle

    @staticmethod
    def remakable(obj):
        return True

    @staticmethod
    def remake(obj, make):
        if not obj.alive():
            return True  # its last tensor has moved to another storage
        storage = obj.storage()
        if obj.device != make[1]:
            return False
        if storage.nbytes() != make[0]:
            storage.resize_(make[0])
            obj.address, obj.nbytes = storage.data_ptr(), make[0]
        return True

    @staticmethod
    def memory(obj):
        if not obj.alive():
            return None
        if obj.storage().device.type == "cpu":
            return memoryview(obj.numpy())
        return _HostCopy(obj)


class TensorKind(Kind):
    """A strided tensor or parameter: a leaf, or one that needs no gradient."""

    @staticmethod
    def describe(obj, take):
        if obj.grad_fn is not None:
            reason = "a tensor with its autograd graph cannot travel to another process"
            raise CannotTravel("", reason, "Call .detach() on it, or compute it inside the cell.")
        if getattr(obj, "_backward_hooks", None):
            reason = "the backward hooks of a tensor cannot travel"
            raise CannotTravel("", reason, "Register them inside the cell.")
        where = (obj.storage_offset(), tuple(obj.size()), tuple(obj.stride()))
        memory = handle_of(obj, take.table) or tags.device_of(obj, obj.device)
        make = (type(obj), memory, obj.dtype, where, obj.requires_grad)
        take.inline(where)
        if obj.grad is not None:
            tags.mark_grad(obj.grad, obj)
        fill = take.inline((obj.grad, take.inline(tags.attributes(obj))))
        return Parts(make=take.inline(make), fill=fill)

    @classmethod
    def saved(cls, obj, take):
        """Returns what restores a tensor; it keeps the present storage alive."""
        restore = super().saved(obj, take)
        before = obj.detach()
        handle_of(before, take.table)

        def restore_from(_storage_owner):
            restore()

        return functools.partial(restore_from, before)

    @staticmethod
    def build(make):
        import torch

        cls, memory, dtype, where, requires_grad = make
        with torch.no_grad():
            tensor = _plain(memory, dtype, where)
            if issubclass(cls, torch.nn.Parameter):
                tensor = torch.nn.Parameter(tensor, requires_grad=requires_grad)
            elif cls is not torch.Tensor:
                tensor = tensor.as_subclass(cls)
        tensor.requires_grad_(requires_grad)
        _belongs(tensor, memory)
        return tensor

    @staticmethod
    def fill(obj, fill):
        grad, attributes = fill
        tags.set_attributes(obj, attributes)
        if obj.grad is not grad:
            obj.grad = grad

    @staticmethod
    def remakable(obj):
        return True

    @staticmethod
    def remake(obj, make):
        import torch

        cls, memory, dtype, where, requires_grad = make
        if type(obj) is not cls:
            return False
        with torch.no_grad():
            obj.grad = None
            if obj.grad_fn is not None:
                obj.detach_()
            obj.requires_grad_(False)
            obj.data = _plain(memory, dtype, where)
        obj.requires_grad_(requires_grad)
        _belongs(obj, memory)
        return True


def _belongs(tensor, memory):
    """Records where a tensor belongs: `memory` is its storage's handle, or a device."""
    handle = memory if isinstance(memory, StorageHandle) else None
    if handle is not None:
        handle.add(tensor)
    tags.mark(tensor, None)
    tags.mark_for(tensor, memory if handle is None else handle.device)


def _plain(memory, dtype, where):
    """Returns a tensor without attributes; `memory` is a handle, or the device of an empty one."""
    import torch

    offset, size, stride = where
    if not isinstance(memory, StorageHandle):
        empty = torch.empty(0, dtype=dtype, device=_present(memory))
        return empty.as_strided(size, stride, offset)
    storage = memory.storage()
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)


def _storage(tensor):
    """Returns the untyped storage of a tensor, in torch 1.13 and 2."""
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage().untyped()


def _present(device):
    """Returns the device, or the host where this machine lacks it."""
    import torch

    present = torch.cuda.is_available() and absent_gpu.installed() is None
    return "cpu" if device.startswith("cuda") and not present else device


def _flat(handle):
    """Returns the bytes of a storage as a tensor on its device."""
    import torch

    storage = handle.storage()
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _to_host(handle):
    return _flat(handle).cpu().numpy()


class _HostCopy:
    """Writes ranges of bytes into a storage on a device."""

    def __init__(self, handle):
        self._flat = _flat(handle)

    def __setitem__(self, where, data):
        import torch

        self._flat[where] = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(
            self._flat.device
        )
