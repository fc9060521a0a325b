"""What `torch.cuda` says about a GPU that is not there.

The sizes of the GPU are those of the host, whose memory its tensors use; nothing is allocated on a
card. Streams and events do nothing.
"""

import contextlib
import os
import time
import types

import torch

from .absent_mode import index_of_device


_CAPABILITY = (8, 0)  # the oldest cards with every dtype that autocast takes


class Stream:
    """A stream of the GPU. All of its work has run already."""

    cuda_stream = 0

    def __init__(self, device=None, priority=0, **_):
        self.device = torch.device("cuda", 0)
        self.priority = priority

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def query(self):
        """Returns True: nothing is pending."""
        return True

    def record_event(self, event=None):
        """Records an event, a new one by default; returns it."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self, *_):
        """Returns at once."""

    wait_event = wait_stream = synchronize


class Event:
    """An event; `elapsed_time` is the host's."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self._at = None

    def record(self, stream=None):
        """Takes the time."""
        self._at = time.perf_counter()

    def elapsed_time(self, end):
        """Returns the milliseconds from this event to `end`."""
        return (end._at - self._at) * 1e3

    def query(self):
        """Returns True: nothing is pending."""
        return True

    def synchronize(self, *_):
        """Returns at once."""

    wait = synchronize


def replacements(name):
    """Returns {attribute of torch.cuda: value} for a GPU that is described as `name`."""
    stream = Stream()

    def described(device=None):
        if device is not None:
            _check(device)
        return name

    def properties(device=None):
        return types.SimpleNamespace(
            name=described(device),
            total_memory=_host_memory()[1],
            major=_CAPABILITY[0],
            minor=_CAPABILITY[1],
            multi_processor_count=os.cpu_count(),
        )

    def needs_gpu():
        raise RuntimeError(
            f"this needs the GPU itself, and it is elsewhere: {name}. Use it in a cell under %%gpu."
        )

    values = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": described,
        "get_device_properties": properties,
        "get_device_capability": lambda device=None: _CAPABILITY,
        "get_arch_list": lambda: [],
        "set_device": _check,
        "memory_stats": lambda device=None: {},
        "memory_snapshot": lambda *_: [],
        "memory_summary": lambda *_, **__: f"No memory is in use here. {name}",
        "mem_get_info": lambda device=None: _host_memory(),
        "Stream": Stream,
        "Event": Event,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
        "set_rng_state_all": lambda states: torch.set_rng_state(list(states)[0]),
        "initial_seed": torch.initial_seed,
        "_lazy_init": needs_gpu,  # torch calls it where the GPU itself is needed
    }
    values.update(dict.fromkeys(_SIZES.split(), lambda device=None: 0))
    values.update(dict.fromkeys(_ACTIONS.split(), lambda *_, **__: None))
    values.update(dict.fromkeys(_CONTEXTS.split(), lambda *_: contextlib.nullcontext()))
    return values


def _host_memory():
    """Returns the free and all bytes of the host's memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _check(device):
    """Raises RuntimeError where `device` is no GPU of this machine, as torch does."""
    if not isinstance(device, int) or device >= 0:
        index_of_device(device)


_SIZES = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached "
    "max_memory_cached memory_usage utilization"
)
_ACTIONS = (
    "init synchronize empty_cache ipc_collect reset_peak_memory_stats reset_max_memory_allocated "
    "reset_max_memory_cached reset_accumulated_memory_stats set_per_process_memory_fraction "
    "manual_seed manual_seed_all seed seed_all set_stream"
)
_CONTEXTS = "device device_of stream StreamContext"
