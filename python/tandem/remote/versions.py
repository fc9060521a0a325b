"""What has to be equal in the notebook and in the worker."""

import platform

import cloudpickle

PROTOCOL = 1  # of the messages between the notebook and the worker


def versions():
    """Returns the versions by name, as strings and integers."""
    return {
        "protocol": PROTOCOL,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "cloudpickle": cloudpickle.__version__,
    }
