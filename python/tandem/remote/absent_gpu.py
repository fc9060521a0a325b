"""A GPU that is not there: on a machine without a card, torch accepts `device="cuda"`.

Tensors of the GPU lie in host memory and compute on the CPU, so that shapes and devices are checked
before a cell waits for a GPU. Remote cells take them to the real one. `expect` installs it when
torch is imported. absent_mode.py has the rules, absent_methods.py what these rules cannot reach,
and absent_cuda.py the functions of `torch.cuda`.

Threading: the thread that installs, and the threads that it starts from then on.
"""

import functools
import importlib.util
import sys
import threading
import warnings

_installed = None  # what is in force, or None
_expected = None  # the import hook that waits for torch, or None


def expect(name, on_install=None, ask=True):
    """Installs the GPU as soon as torch is there, if torch has none of its own.

    `name` is what `torch.cuda.get_device_name()` says. `on_install()` is called after the
    installation. Where `ask` is false, a torch that is built for CUDA counts as one with a card:
    the question would start the driver. Nothing here imports torch.
    """
    global _expected
    _forget()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda"):
        return _install_where_missing(name, on_install, ask)
    _expected = _Hook(lambda: _install_where_missing(name, on_install, ask))
    sys.meta_path.insert(0, _expected)


def _forget():
    global _expected
    if _expected in sys.meta_path:
        sys.meta_path.remove(_expected)
    _expected = None


def _install_where_missing(name, on_install, ask):
    import torch

    before = installed()
    if before == name or (before is None and _has_card(ask)):
        return
    try:
        install(name)
    except Exception as error:  # the import of torch, or of a cell, goes on without
        text = f"torch {torch.__version__} accepts no GPU that is elsewhere: {error!r}"
        warnings.warn(f"{text}. Move tensors to the GPU in cells under %%gpu.", stacklevel=2)
        return
    if on_install is not None:
        on_install()


def _has_card(ask):
    import torch

    return torch.cuda.is_available() if ask else torch.backends.cuda.is_built()


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
        self.name = name
        self._replaced, self._indexing = [], False
        try:
            self._replace_all()
        except BaseException:
            self.restore()
            raise

    def _replace_all(self):
        import torch

        from . import absent_cuda, absent_methods
        from .absent_mode import Mode

        for attribute, value in absent_cuda.replacements(self.name).items():
            if hasattr(torch.cuda, attribute):
                self._replace(torch.cuda, attribute, value)
        self._replace(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
        self._replace(threading.Thread, "start", _starting(threading.Thread.start))
        for owner, attribute, value in absent_methods.replacements():
            self._replace(owner, attribute, value)
        self._indexing = absent_methods.replace_indexing()
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
