"""What torch's functions do with tensors of a GPU that is not there.

A tensor of the GPU is a tensor in host memory with a mark, see tags.py. `Mode` sees each call of
torch: it checks that all tensors are on one device, lets the CPU compute, and marks the result.

Invariants:
1. A marked and an unmarked tensor share no memory: moves between the devices copy.
2. torch never sees a CUDA device in a call: it is replaced by the host's.
Threading: a mode belongs to the thread that entered it; see absent_gpu.py.
"""

import re
import threading
from contextlib import contextmanager

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from .tags import index_of, mark, mark_grad

Tensor = torch.Tensor
_thread = threading.local()
_OTHER = object()  # a device that is neither the host nor a GPU


class Mode(TorchFunctionMode):
    """Applies the rules of this module to torch's calls in one thread."""

    active = True  # for all threads

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Calls `func` under its rule."""
        kwargs = kwargs or {}
        if not Mode.active:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            rule = _GETTERS.get(getattr(func.__self__, "__name__", ""))
        elif name == "__set__":
            rule = _SETTERS.get(getattr(func.__self__, "__name__", ""), _pass_on)
        else:
            rule = _RULES.get(name)
        if rule is not None:
            return rule(func, args, kwargs)
        if kwargs and (kwargs.get("device") is not None or kwargs.get("pin_memory")):
            return _made(func, args, kwargs)
        return _computed(func, args, kwargs)


def index_of_device(device):
    """Returns the number of the GPU that torch means by `device`; None for the host.

    Raises RuntimeError where there is no such GPU, as torch does.
    """
    device = device if isinstance(device, torch.device) else torch.device(device)
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return _OTHER
    if device.index not in (None, 0):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return 0


def mark_all(value, index):
    """Marks the tensors in a value: a tensor, containers of tensors, a module."""
    if isinstance(value, Tensor):
        mark(value, index)
    elif isinstance(value, (list, tuple)):
        for element in value:
            mark_all(element, index)
    elif isinstance(value, dict):
        for element in value.values():
            mark_all(element, index)
    elif isinstance(value, torch.nn.Module):
        mark_all([*value.parameters(), *value.buffers()], index)


def mark_results(results, args):
    """Marks what a function of tensors returned for the GPU of its arguments; returns it."""
    index, _ = _scan(args)
    if index is not None:
        mark_all(results, index)
    return results


# The general rules.


def _pass_on(func, args, kwargs):
    return func(*args, **kwargs)


def _scan(values, found=None, host=None):
    """Returns the number of the GPU of the tensors in `values`, and a list of those of the host.

    Either is None where there is no such tensor.
    """
    for value in values:
        if isinstance(value, Tensor):
            index = index_of(value)
            if index is not None:
                found = index
            elif host is None:
                host = [value]
            else:
                host.append(value)
        elif isinstance(value, (list, tuple)):
            found, host = _scan(value, found, host)
    return found, host


def _computed(func, args, kwargs):
    """A function of tensors: its result is on their device."""
    index, host = _scan(args)
    if kwargs:
        index, host = _scan(kwargs.values(), index, host)
    if index is None:
        return func(*args, **kwargs)
    if host is not None and any(map(_has_place, host)):
        _refuse_mixed(func, args)
    result = func(*args, **kwargs)
    if isinstance(result, Tensor):
        mark(result, index)
    elif isinstance(result, (list, tuple)):
        mark_all(result, index)
    return result


def _has_place(tensor):
    """Returns whether a tensor has to be on the device of the others; single numbers need not."""
    return not is_lazy(tensor) and tensor.dim() > 0


def _refuse_mixed(func, args):
    """Raises torch's error for tensors on two devices, unless both may be the GPU's.

    During a backward pass C++ hands out tensors that no rule has marked.
    """
    name = getattr(func, "__name__", "")
    if name in _MIXED or getattr(_thread, "lenient", False):
        return
    if re.match(r"conv(_transpose)?\dd$", name) and len(args) > 1:
        kinds = [_type_name(tensor) for tensor in args[:2]]
        if kinds[0] != kinds[1]:
            raise RuntimeError(
                f"Input type ({kinds[0]}) and weight type ({kinds[1]}) should be the same"
            )
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"cuda:0 and cpu! (when checking the arguments of {name})"
    )


def _made(func, args, kwargs):
    """A function that makes a tensor on a named device."""
    device = kwargs.get("device")
    given = _scan(args)[0]
    index = given if device is None else index_of_device(device)
    if index is _OTHER:
        return func(*args, **kwargs)
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if device is not None:
        kwargs["device"] = "cpu"
    result = func(*args, **kwargs)
    if isinstance(result, Tensor):
        mark(result, index)
    return result


def _tensor(func, args, kwargs):
    """torch.tensor: a list of tensors of the GPU gives a tensor of the host."""
    if kwargs.get("device") is None and args:
        index = index_of(args[0]) if isinstance(args[0], Tensor) else None
        result = func(*args, **{**kwargs, "pin_memory": False})
        mark(result, index)
        return result
    return _made(func, args, kwargs)


def as_tensor(func, args, kwargs):
    """torch.as_tensor and torch.asarray, which share memory where the device stays the same."""
    if len(args) > 2:
        kwargs, args = {**kwargs, "device": args[2]}, args[:2]
    source = args[0] if args else kwargs.get("data")
    here = index_of(source) if isinstance(source, Tensor) else None
    device = kwargs.get("device")
    index = here if device is None else index_of_device(device)
    if index is _OTHER:
        return func(*args, **kwargs)
    result = func(*args, **{**kwargs, "device": "cpu"})
    return result if index == here else _moved(result, result, index)


# Moves between devices.


def _moved(tensor, result, index):
    """Returns `result`, or a copy where it is `tensor` itself, as a tensor of a GPU or the host."""
    if result is tensor:
        result = tensor.to("cpu", copy=True)
    mark(result, index)
    return result


def _to(func, args, kwargs):
    tensor = args[0]
    target = kwargs.get("device", kwargs.get("other"))
    position = None
    if target is None and len(args) > 1 and _names_device(args[1]):
        target, position = args[1], 1
    if target is None:
        return _computed(func, args, kwargs)
    index = index_of(target) if isinstance(target, Tensor) else index_of_device(target)
    if index is _OTHER:
        return func(*args, **kwargs)
    if not isinstance(target, Tensor):
        if position is None:
            kwargs = {**kwargs, "device": "cpu"}
        else:
            args = (tensor, torch.device("cpu"), *args[2:])
    return _moved_to(tensor, func(*args, **kwargs), index)


def _moved_to(tensor, result, index):
    """Returns what `tensor` became, as a tensor of a GPU or the host."""
    if index == index_of(tensor):
        mark(result, index)
        return result
    return _moved(tensor, result, index)


def _names_device(value):
    number = isinstance(value, int) and not isinstance(value, bool)
    return number or isinstance(value, (str, torch.device, Tensor))


def _cuda(func, args, kwargs):
    tensor = args[0]
    device = args[1] if len(args) > 1 else kwargs.get("device")
    index = 0 if device is None else index_of_device(device)
    return tensor if index == index_of(tensor) else _moved(tensor, tensor, index)


def _cpu(func, args, kwargs):
    tensor = args[0]
    result = func(*args, **kwargs)
    return result if index_of(tensor) is None else _moved(tensor, result, None)


def _type(func, args, kwargs):
    """Tensor.type, which names or changes type and device at once."""
    tensor = args[0]
    target = args[1] if len(args) > 1 else kwargs.get("dtype")
    if target is None:
        return _type_name(tensor)
    if isinstance(target, torch.dtype):
        return _computed(func, args, kwargs)
    name = target if isinstance(target, str) else f"{target.__module__}.{target.__name__}"
    index = 0 if name.startswith("torch.cuda.") else None
    result = func(tensor, name.replace("torch.cuda.", "torch."))
    return _moved_to(tensor, result, index)


def _type_as(func, args, kwargs):
    tensor, other = args[0], args[1] if len(args) > 1 else kwargs["other"]
    return _moved_to(tensor, func(tensor, other), index_of(other))


def _type_name(tensor):
    name = tensor.type()
    return name if index_of(tensor) is None else name.replace("torch.", "torch.cuda.", 1)


def _pin_memory(func, args, kwargs):
    """The host's memory needs no pinning here; torch returns a copy."""
    if index_of(args[0]) is not None:
        kind = _type_name(args[0])
        raise RuntimeError(f"cannot pin '{kind}' only dense CPU tensors can be pinned")
    return args[0].clone()


def _numpy(func, args, kwargs):
    if index_of(args[0]) is not None:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(*args, **kwargs)


# What a tensor says about itself.


def _device(func, args, kwargs):
    index = index_of(args[0])
    return func(*args) if index is None else torch.device("cuda", index)


def _is_cuda(func, args, kwargs):
    return index_of(args[0]) is not None or func(*args)


def _is_cpu(func, args, kwargs):
    return index_of(args[0]) is None and func(*args)


def _grad(func, args, kwargs):
    grad = func(*args)
    if isinstance(grad, Tensor):
        mark_grad(grad, args[0])
    return grad


def _get_device(func, args, kwargs):
    index = index_of(args[0])
    return func(*args) if index is None else index


_END_OF_DATA = re.compile(r",\s+(?:size|dtype|requires_grad|grad_fn|layout)=|\)$")


def _repr(func, args, kwargs):
    text = func(*args, **kwargs)
    index = index_of(args[0])
    end = _END_OF_DATA.search(text)
    if index is None or end is None:
        return text
    return f"{text[:end.start()]}, device='cuda:{index}'{text[end.start():]}"


def _format(func, args, kwargs):
    if index_of(args[0]) is None or not args[0].dim():
        return func(*args, **kwargs)
    return format(_repr(Tensor.__repr__, args[:1], {}), args[1] if len(args) > 1 else "")


# Writes.


def _set_data(func, args, kwargs):
    func(*args)
    mark(args[0], index_of(args[1]))


def _set_grad(func, args, kwargs):
    tensor, grad = args
    if isinstance(grad, Tensor) and index_of(grad) != index_of(tensor):
        if not getattr(_thread, "lenient", False):
            raise RuntimeError("assigned grad has data located on a different device")
    func(*args)


def index_tensor(func, args, kwargs):
    """Tensor.__getitem__; the key of a tensor of the GPU may be on the host."""
    _check_key(*args)
    result = func(*args)
    index = index_of(args[0])
    if index is not None:
        mark(result, index)
    return result


def _check_key(tensor, key):
    """Raises torch's error where a tensor of the host is indexed by one of the GPU."""
    if index_of(tensor) is None and not getattr(_thread, "lenient", False):
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, Tensor) and k.dim() and index_of(k) is not None for k in keys):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )


def set_items(func, args, kwargs):
    """Tensor.__setitem__; a slice takes values of both devices, a list of places does not."""
    tensor, key, value = args
    _check_key(tensor, key)
    keys = key if isinstance(key, tuple) else (key,)
    gathers = any(isinstance(k, Tensor) and k.dim() for k in keys)
    if gathers and isinstance(value, Tensor) and value.dim():
        if index_of(value) != index_of(tensor):
            _refuse_mixed(func, args)
    return func(*args)


def _first_marked(func, args, kwargs):
    """Packed sequences: torch keeps the lengths on the host."""
    result = func(*args, **kwargs)
    index = index_of(args[0])
    if index is not None:
        mark(result[0], index)
    return result


# Backward passes and mixed precision.


@contextmanager
def _lenient():
    before = getattr(_thread, "lenient", False)
    _thread.lenient = True
    try:
        with Mode():
            yield
    finally:
        _thread.lenient = before


def _backward(func, args, kwargs):
    """Tensor.backward; its hooks are the user's code and see the GPU as well."""
    names = ("gradient", "retain_graph", "create_graph", "inputs")
    given = {**dict(zip(names, args[1:])), **kwargs}
    gradient = given.get("gradient")
    if isinstance(gradient, Tensor) and gradient.dim() and index_of(gradient) != index_of(args[0]):
        _refuse_mixed(func, args)
    with _lenient():
        torch.autograd.backward(
            args[0],
            gradient,
            given.get("retain_graph"),
            given.get("create_graph", False),
            inputs=given.get("inputs"),
        )


def _unscale(func, args, kwargs):
    """What GradScaler does to gradients; older releases of torch have it for CUDA only."""
    grads, found_inf, inverse_scale = args
    for grad in grads:
        if not torch.isfinite(grad).all():
            found_inf.fill_(1)
        grad.mul_(inverse_scale)


def _update_scale(func, args, kwargs):
    """How GradScaler moves its scale after a step."""
    scale, growth_tracker, found_inf, growth, backoff, interval = args
    if found_inf.item():
        scale.mul_(backoff)
        growth_tracker.zero_()
    elif growth_tracker.item() + 1 == interval:
        scale.mul_(growth)
        growth_tracker.zero_()
    else:
        growth_tracker.add_(1)
    return scale


_GETTERS = {"device": _device, "is_cuda": _is_cuda, "is_cpu": _is_cpu, "grad": _grad}
_SETTERS = {"data": _set_data, "grad": _set_grad}
_RULES = {
    "_parse_to": _pass_on,
    "to": _to,
    "cuda": _cuda,
    "cpu": _cpu,
    "type": _type,
    "type_as": _type_as,
    "tensor": _tensor,
    "as_tensor": as_tensor,
    "copy_": _pass_on,
    "numpy": _numpy,
    "__array__": _numpy,
    "pin_memory": _pin_memory,
    "is_pinned": lambda func, args, kwargs: False,
    "get_device": _get_device,
    "__repr__": _repr,
    "__format__": _format,
    "__getitem__": index_tensor,
    "__setitem__": set_items,
    "_pack_padded_sequence": _first_marked,
    "_pad_packed_sequence": _first_marked,
    "backward": _backward,
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "_amp_update_scale_": _update_scale,
}
# Functions that take tensors of both devices.
_MIXED = frozenset(
    "lstm gru rnn_tanh rnn_relu ctc_loss tensor_split view_as expand_as reshape_as result_type "
    "is_same_size is_set_to _has_compatible_shallow_copy_type".split()
)
