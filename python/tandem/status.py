"""How the program stands on a GPU, and what the daemon says of all others."""

import ctypes
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List

from . import _abi
from .errors import InvalidUse, NoAnswer
from .units import format_size

_FIRST_ROOM = 1 << 16


@dataclass(frozen=True)
class Status:
    """The program's standing on one GPU. Sizes in bytes; all 0 where it has no session there.

    `leases` counts the blocks that hold it now. `gpus` and `sessions` are the lists of
    `tandem status --json` and `tandem ps --json` (docs/json.md); empty where the daemon does not
    answer.
    """

    shared: bool
    device: int = 0
    session: bool = False
    holds: bool = False
    leases: int = 0
    contended: bool = False
    suspended: bool = False
    allocated_bytes: int = 0
    resident_bytes: int = 0
    swapped_bytes: int = 0
    limit_bytes: int = 0
    used_bytes: int = 0
    gpus: List[Dict[str, Any]] = field(default_factory=list, repr=False)
    sessions: List[Dict[str, Any]] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        if not self.shared:
            return "not under Tandem"
        if not self.session:
            text = f"GPU {self.device}: not used yet by this program"
        else:
            standing = "not held"
            if self.holds:
                standing = "held" if self.leases else "held until another program needs it"
            text = (
                f"GPU {self.device}: {standing}; {format_size(self.resident_bytes)} on the card, "
                f"{format_size(self.swapped_bytes)} in host memory"
            )
        lines = [text + ("; suspended" if self.suspended else "")]
        for other in self.sessions:
            bytes_there = format_size(other.get("resident_bytes") or 0)
            lines.append(f"  {other['name']}: {other['state']}, {bytes_there} on the card")
        return "\n".join(lines)


def query(what: str) -> Dict[str, Any]:
    """Returns what the daemon answers to "status", "sessions" or "handovers" (docs/json.md).

    Raises NoAnswer where no daemon answers.
    """
    api = _abi.api()
    size = ctypes.c_size_t(_FIRST_ROOM)
    result = _abi.UNAVAILABLE
    while api is not None:
        buffer = ctypes.create_string_buffer(size.value)
        result = api.query(what.encode(), buffer, ctypes.byref(size))
        if result == _abi.OK:
            return json.loads(buffer.value)
        if result != _abi.TOO_LARGE:
            break
    if result == _abi.INVALID:
        raise InvalidUse(f"{what!r} is none of 'status', 'sessions', 'handovers'")
    raise NoAnswer("tandemd does not answer; is this program under `tandem run`?")


def status(device: int = 0) -> Status:
    """Returns how the program stands on a GPU, with the queue of the machine."""
    api = _abi.api()
    if api is None:
        return Status(shared=False, device=device)
    state = _abi.State(size=ctypes.sizeof(_abi.State))
    if api.get_state(device, ctypes.byref(state)) != _abi.OK:
        return Status(shared=False, device=device)
    try:
        gpus, sessions = query("status")["gpus"], query("sessions")["sessions"]
    except NoAnswer:
        gpus, sessions = [], []
    flags = ("session", "holds", "contended", "suspended")
    sizes = ("leases", "allocated_bytes", "resident_bytes", "swapped_bytes", "limit_bytes", "used_bytes")
    known = {name: bool(getattr(state, name)) for name in flags}
    known.update({name: getattr(state, name) for name in sizes})
    return Status(shared=True, device=device, gpus=gpus, sessions=sessions, **known)


def release(device: int = 0) -> bool:
    """Lets the program's memory leave the card now; it comes back with the next work.

    Returns whether there is anything that may leave. Raises InvalidUse inside a block.
    """
    api = _abi.api()
    result = _abi.UNAVAILABLE if api is None else api.release(device)
    if result == _abi.INVALID:
        raise InvalidUse("tandem.release() inside `with tandem.gpu():`; call it after the block")
    return result == _abi.OK
