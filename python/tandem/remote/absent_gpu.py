"""A GPU that is not there: on a machine without a card, torch accepts `device="cuda"`.

Tensors of the GPU lie in host memory and compute on the CPU, so that shapes and devices are checked
before a cell waits for a GPU. Remote cells take them to the real one. `expect` installs it when
torch is imported. absent_mode.py has the rules, absent_cuda.py the functions of `torch.cuda`.

Threading: the thread that installs, and the threads that it starts from then on.
"""

import functools
import importlib.util
import inspect
import sys
import threading

_installed = None  # what is in force, or None
_expected = None  # the import hook that waits for torch, or None


def expect(name, on_install=None):
    """Installs the GPU as soon as torch is there, if torch has none of its own.

    `name` is what `torch.cuda.get_device_name()` says. `on_install()` is called after the
    installation. Nothing here imports torch.
    """
    global _expected
    _forget()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda"):
        return _install_where_missing(name, on_install)
    _expected = _Hook(lambda: _install_where_missing(name, on_install))
    sys.meta_path.insert(0, _expected)


def _forget():
    global _expected
    if _expected in sys.meta_path:
        sys.meta_path.remove(_expected)
    _expected = None


def _install_where_missing(name, on_install):
    import torch

    before = installed()
    if before == name or (before is None and torch.cuda.is_available()):
        return
    install(name)
    if on_install is not None:
        on_install()


def installed():
    """Returns the name of the GPU in force, or None."""
    return None if _installed is None else _installed.name


def expected():
    """Returns whether the GPU is in force, or will be once torch is imported."""
    return _installed is not None or _expected is not None


def install(name):
    """Lets torch accept the GPU, in this thread and those that it starts; imports torch."""
    global _installed
    if _installed is not None:
        _installed.restore()
    _installed = _Installed(name)


def uninstall():
    """Lets torch be as it was. Tensors of the GPU become tensors of the host."""
    global _installed
    _forget()
    if _installed is not None:
        _installed.restore()
        _installed = None


class _Hook:
    """A finder of sys.meta_path that calls a function after torch's import."""

    def __init__(self, after):
        self._after = after
        self._searching = False

    def find_spec(self, name, path=None, target=None):
        """Returns the spec of torch with a loader that calls the function; None for others."""
        if name != "torch" or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            if _expected is self:
                _forget()
                self._after()

        spec.loader.exec_module = exec_module
        return spec


_entered = threading.local()


def _enter_mode():
    """Puts the mode in force in this thread."""
    from .absent_mode import Mode

    if getattr(_entered, "mode", None) is None:
        _entered.mode = Mode()
        _entered.mode.__enter__()


def _leave_mode():
    """Ends the mode in this thread, unless another lies on top; `Mode.active` ends it anyway."""
    import torch

    top = getattr(torch.overrides, "_get_current_function_mode", lambda: None)()
    if top is not None and top is getattr(_entered, "mode", None):
        top.__exit__(None, None, None)
        _entered.mode = None


class _Installed:
    """The replaced attributes of torch, of `threading.Thread` and of `torch.cuda`."""

    def __init__(self, name):
        import torch

        from . import absent_cuda, indexing
        from .absent_mode import Mode

        self.name = name
        self._replaced = []
        for attribute, value in absent_cuda.replacements(name).items():
            if hasattr(torch.cuda, attribute):
                self._replace(torch.cuda, attribute, value)
        self._replace(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
        self._replace(threading.Thread, "start", _starting(threading.Thread.start))
        self._indexing = indexing.hidden() and indexing.replace(_getting, _setting)
        for kind in (torch.Tensor, torch.nn.Parameter):
            self._replace(kind, "__reduce_ex__", _reducing(kind.__reduce_ex__))
        self._replace(torch, "save", _noting_saves(torch.save))
        self._replace(torch, "load", _loading(torch.load))
        self._replace(torch, "Generator", _generators(torch.Generator))
        self._replace(torch.autograd.Function, "apply", _applying(torch.autograd.Function))
        if hasattr(torch, "asarray"):
            self._replace(torch, "asarray", _converting(torch.asarray))
        if hasattr(torch.Tensor, "_make_subclass"):
            make = staticmethod(_subclassing(torch.Tensor._make_subclass))
            self._replace(torch.Tensor, "_make_subclass", make)
        else:
            new = _subclassing(torch.nn.Parameter.__new__)
            self._replace(torch.nn.Parameter, "__new__", staticmethod(new))
        _enter_mode()
        Mode.active = True

    def _replace(self, owner, name, value):
        own = name in vars(owner)
        self._replaced.append((owner, name, own, vars(owner).get(name)))
        setattr(owner, name, value)

    def restore(self):
        """Gives every attribute its former value."""
        from . import indexing
        from .absent_mode import Mode

        Mode.active = False
        _leave_mode()
        for owner, name, own, value in reversed(self._replaced):
            setattr(owner, name, value) if own else delattr(owner, name)
        if self._indexing:
            indexing.restore()


# The functions that a mode does not see, at least in torch 1.13.


def _starting(start):
    @functools.wraps(start)
    def started(thread):
        run = thread.run

        def run_with_mode():
            vars(thread).pop("run", None)
            _enter_mode()
            run()

        thread.run = run_with_mode
        start(thread)

    return started


def _getting(getitem):
    from .absent_mode import index_tensor

    @functools.wraps(getitem)
    def got(tensor, key):
        return index_tensor(getitem, (tensor, key), {})

    return got


def _setting(setitem):
    from .absent_mode import set_items

    @functools.wraps(setitem)
    def put(tensor, key, value):
        set_items(setitem, (tensor, key, value), {})

    return put


_saving = threading.local()


def _reducing(reduce):
    """Pickles carry the mark, the files of torch.save do not: torch reads them anywhere."""
    from . import tags

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
    from .absent_mode import as_tensor

    @functools.wraps(convert)
    def converted(*args, **kwargs):
        return as_tensor(convert, args, kwargs)

    return converted


def _generators(base):
    """Random numbers of the GPU are the host's here."""
    from .absent_mode import index_of_device

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
    from .absent_mode import mark_results

    apply = inspect.getattr_static(function, "apply")

    def applied(cls, *args, **kwargs):
        return mark_results(apply.__get__(None, cls)(*args, **kwargs), args)

    return classmethod(applied)


def _subclassing(make):
    from .absent_mode import index_of
    from .tags import mark

    @functools.wraps(make)
    def made(cls, data=None, *args, **kwargs):
        result = make(cls, data, *args, **kwargs)
        index = None if data is None else index_of(data)
        if index is not None:
            mark(result, index)
        return result

    return made


def _loading(load):
    from .absent_mode import mark_all

    @functools.wraps(load)
    def loaded(file, map_location=None, *args, **kwargs):
        if callable(map_location):
            return load(file, map_location, *args, **kwargs)
        found = set()

        def place(storage, location):
            if isinstance(map_location, dict):
                location = map_location.get(location, location)
            elif map_location is not None:
                location = str(map_location)
            found.add(location.startswith("cuda"))
            return storage

        value = load(file, place, *args, **kwargs)
        if True in found:
            mark_all(value, 0)
        elif map_location is not None:
            mark_all(value, None)
        return value

    return loaded
