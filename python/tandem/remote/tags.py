"""The mark of a tensor that belongs in the memory of a GPU while its bytes lie in host memory.

The mark is an entry of the tensor's `__dict__`, which lives as long as the tensor does, also where
only C++ holds it. Tensors that share a storage have the same mark.
"""

_MARK = "_tandem_gpu"
_HOST = -1  # of a tensor that was marked and has come back


def index_of(tensor):
    """Returns the number of the GPU that a tensor is marked for, or None."""
    index = tensor.__dict__.get(_MARK)
    return None if index == _HOST else index


def mark(tensor, index):
    """Marks a tensor for a GPU; None says that it is the host's."""
    if index is not None:
        tensor.__dict__[_MARK] = index
    elif _MARK in tensor.__dict__:
        tensor.__dict__[_MARK] = _HOST


def mark_grad(grad, tensor):
    """Marks the gradient of a tensor like the tensor, if C++ has made it and nothing moved it."""
    index = index_of(tensor)
    if index is not None:
        grad.__dict__.setdefault(_MARK, index)


def device_of(tensor, device):
    """Returns the name of the device where a tensor belongs; `device` is where its bytes lie."""
    index = index_of(tensor)
    return str(device) if index is None else f"cuda:{index}"


def mark_for(tensor, device):
    """Marks a tensor whose bytes lie in host memory for the device of this name."""
    if device.startswith("cuda") and not tensor.is_cuda:
        mark(tensor, int(device.partition(":")[2] or 0))


def attributes(tensor):
    """Returns the attributes of a tensor without the mark."""
    found = tensor.__dict__
    if _MARK not in found:
        return found
    return {name: value for name, value in found.items() if name != _MARK}


def set_attributes(tensor, values):
    """Gives a tensor these attributes and no others, the mark aside."""
    kept = {_MARK: tensor.__dict__[_MARK]} if _MARK in tensor.__dict__ else {}
    tensor.__dict__.clear()
    tensor.__dict__.update(values, **kept)


def rebuild(index, function, arguments):
    """Returns the tensor of a pickle, marked for a GPU."""
    tensor = function(*arguments)
    mark(tensor, index)
    return tensor
