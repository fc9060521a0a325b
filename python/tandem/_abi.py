"""include/tandem/tandem.h by ctypes: the interface of the preloaded libtandem.so."""

import ctypes
from typing import Optional

VERSION = 1

OK, UNAVAILABLE, NO_DEVICE, TIMEOUT, CANCELLED, INVALID, TOO_LARGE, NO_ANSWER = range(8)


class Wait(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("interrupted", ctypes.c_uint32),
        ("waited_ms", ctypes.c_uint64),
        ("place", ctypes.c_uint64),
        ("expected_ms", ctypes.c_int64),
        ("holders", ctypes.c_uint64),
        ("holder", ctypes.c_char_p),
        ("state", ctypes.c_char_p),
        ("reason", ctypes.c_char_p),
        ("gpu", ctypes.c_char_p),
    ]


ON_WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Wait))


class LeaseOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("device", ctypes.c_int32),
        ("wait_ms", ctypes.c_int64),
        ("memory_bytes", ctypes.c_uint64),
        ("expected_ms", ctypes.c_uint64),
        ("work_class", ctypes.c_char_p),
        ("on_wait", ON_WAIT),
        ("context", ctypes.c_void_p),
    ]


class State(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("session", ctypes.c_uint32),
        ("holds", ctypes.c_uint32),
        ("contended", ctypes.c_uint32),
        ("suspended", ctypes.c_uint32),
        ("leases", ctypes.c_uint32),
        ("allocated_bytes", ctypes.c_uint64),
        ("resident_bytes", ctypes.c_uint64),
        ("swapped_bytes", ctypes.c_uint64),
        ("limit_bytes", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
    ]


_LEASE = ctypes.c_void_p
_RESULT = ctypes.c_int
_FUNCTIONS = (
    (
        "lease_create",
        ctypes.CFUNCTYPE(_RESULT, ctypes.POINTER(LeaseOptions), ctypes.POINTER(_LEASE)),
    ),
    ("lease_begin", ctypes.CFUNCTYPE(_RESULT, _LEASE)),
    ("lease_cancel", ctypes.CFUNCTYPE(None, _LEASE)),
    ("lease_end", ctypes.CFUNCTYPE(_RESULT, _LEASE)),
    ("lease_destroy", ctypes.CFUNCTYPE(None, _LEASE)),
    ("release", ctypes.CFUNCTYPE(_RESULT, ctypes.c_int32)),
    ("get_state", ctypes.CFUNCTYPE(_RESULT, ctypes.c_int32, ctypes.POINTER(State))),
    (
        "query",
        ctypes.CFUNCTYPE(
            _RESULT, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)
        ),
    ),
)


class Api(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("size", ctypes.c_uint32), *_FUNCTIONS]


_api: Optional[Api] = None


def api() -> Optional[Api]:
    """Returns the library's functions; None where the program does not run under Tandem."""
    global _api
    if _api is None:
        try:
            find = ctypes.CDLL(None).tandem_find_api
        except AttributeError:
            return None
        find.restype = ctypes.POINTER(Api)
        found = find(VERSION)
        if not found:
            return None
        _api = found.contents
    return _api
