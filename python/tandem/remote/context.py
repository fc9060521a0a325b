"""State of the process that a cell expects to find: random numbers, directory, environment."""

import contextlib
import os
import random
import sys


def capture(environment_before=None):
    """Returns the context of this process as a dict of plain values. The directory may be gone.

    `environment_before` limits the environment to the variables that changed since.
    """
    context = {"random": random.getstate(), "cwd": _directory()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        context["numpy"] = numpy.random.get_state()
    if torch is not None:
        context["torch"] = torch.get_rng_state().numpy().tobytes()
        context["dtype"] = str(torch.get_default_dtype()).split(".")[1]
    if environment_before is not None:
        context["environment"] = {
            name: os.environ.get(name)
            for name in set(environment_before) | set(os.environ)
            if environment_before.get(name) != os.environ.get(name)
        }
    return context


def restore(context):
    """Puts a captured context in force; a directory that cannot be entered here is skipped."""
    random.setstate(context["random"])
    if context["cwd"] not in (None, _directory()):
        with contextlib.suppress(OSError):
            os.chdir(context["cwd"])
    if "numpy" in context:
        import numpy

        numpy.random.set_state(context["numpy"])
    if "torch" in context:
        import torch

        torch.set_rng_state(torch.frombuffer(bytearray(context["torch"]), dtype=torch.uint8))
        torch.set_default_dtype(getattr(torch, context["dtype"]))
    for name, value in context.get("environment", {}).items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def _directory():
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
