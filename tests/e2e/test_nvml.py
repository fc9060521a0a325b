"""libnvidia-ml.so.1 beside the software GPU: what monitoring programs are told of it."""

import re
import subprocess
from pathlib import Path

import pytest

from harness import MIB, PATIENCE_S, SHIM, SOFT_GPU, TANDEM, DeviceProgram, finish, wait_until

NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT, INVALID, UNINITIALIZED = 3, 6, 7, 2, 1
TIMEOUT, VERSION_MISMATCH = 10, 25

ROWS = Path(__file__).parents[2] / "softgpu/nvml/nvml_api.def"
# Of the functions that a software GPU has nothing for: name, parameters, those that must be there.
WITHOUT = [
    (name, parameters.split(", "), set(required.split(", ")))
    for name, parameters, required in re.findall(
        r"^NVML_WITHOUT\((\w+), \((.+?)\), \((.+?)\)\)$", ROWS.read_text(), re.M
    )
]

# Lists that are not there while their length is asked for, and the driver model, of which one asks
# for the half that one needs.
MAY_BE_NULL = {
    "addresses", "current", "devices", "mhz", "pending", "pids", "samples", "sessions", "times",
}  # fmt: skip

# Answers each line, an expression over the functions below, with what it is.
MONITOR = """
import ctypes, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlErrorString.restype = ctypes.c_char_p
UINT, ULL = ctypes.c_uint, ctypes.c_ulonglong

def call(name, *arguments):
    return getattr(nvml, name)(*arguments)

def number(name, *arguments, kind=UINT):
    value = kind()
    result = call(name, *arguments, ctypes.byref(value))
    return value.value if result == 0 else {"error": result}

def text(name, *arguments, room=96):
    value = ctypes.create_string_buffer(room)
    result = call(name, *arguments, value, UINT(room))
    return value.value.decode() if result == 0 else {"error": result}

def struct(name, handle, **fields):
    kind = type("Struct", (ctypes.Structure,), {"_fields_": [(k, v[0]) for k, v in fields.items()]})
    value = kind(*(v[1] if len(v) > 1 else 0 for v in fields.values()))
    result = call(name, handle, ctypes.byref(value))
    return {k: getattr(value, k) for k in fields} if result == 0 else {"error": result}

def processes(name, device, room=32, words=3):
    class Info(ctypes.Structure):
        _fields_ = [("pid", UINT), ("used", ULL), ("instances", UINT * 2)][:words]
    count, infos = UINT(room), (Info * room)()
    result = call(name, device, ctypes.byref(count), infos if room else None)
    if result != 0:
        return {"error": result, "count": count.value}
    return [(infos[i].pid, infos[i].used) for i in range(count.value)]

def samples(device, since=0):
    class Sample(ctypes.Structure):
        _fields_ = [("pid", UINT), ("time", ULL), ("util", UINT * 4)]
    count, entries = UINT(32), (Sample * 32)()
    result = call("nvmlDeviceGetProcessUtilization", device, entries, ctypes.byref(count), ULL(since))
    if result != 0:
        return {"error": result}
    return [(entries[i].pid, entries[i].util[0]) for i in range(count.value)]

def numbers(name, *arguments, count):
    values = [UINT(7) for _ in range(count)]
    result = call(name, *arguments, *map(ctypes.byref, values))
    return [value.value for value in values] if result == 0 else {"error": result}

def raw(name, *arguments, room, size):
    # Of the room that there is, a function writes the size of its structure.
    value = ctypes.create_string_buffer(b"\\xa5" * room, room)
    result = call(name, *arguments, value)
    assert value.raw[size:] == b"\\xa5" * (room - size)
    return value.raw[:size] if result == 0 else {"error": result}

def without(name, parameters, handle, missing=None):
    # With an argument for each parameter but the missing one.
    def argument(parameter):
        kind, own_name = parameter.rsplit(" ", 1)
        if own_name == missing:
            return None
        if kind == "nvmlDevice_t":
            return handle
        return ctypes.create_string_buffer(4096) if "*" in kind else 0
    return call(name, *map(argument, parameters))

def event_set():
    value = ctypes.c_void_p()
    assert call("nvmlEventSetCreate", ctypes.byref(value)) == 0
    return value

def fields(handle, *ids):
    class Field(ctypes.Structure):
        _fields_ = [("id", UINT), ("scope", UINT), ("times", ULL * 2), ("kind", UINT), ("result", UINT),
                    ("value", ULL)]
    values = (Field * len(ids))(*((number, 0) for number in ids))
    return call("nvmlDeviceGetFieldValues", handle, len(ids), values), [v.result for v in values]

def error_texts(*codes):
    return [nvml.nvmlErrorString(code).decode() for code in codes]

def device(index=0):
    handle = ctypes.c_void_p()
    assert call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)) == 0
    return handle

for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Monitor:
    """`prefix`: what it is started by."""

    def __init__(self, card, prefix=(), **environment):
        self.process = subprocess.Popen(
            [*prefix, "/usr/bin/python3", "-c", MONITOR],
            env={**card.env, "LD_LIBRARY_PATH": str(SOFT_GPU), **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        card.processes.append(self.process)

    def __call__(self, expression):
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=PATIENCE_S)
        return eval(line)


@pytest.fixture
def card_alone(make_card):
    return make_card(vram="256M", context="8M")


@pytest.fixture
def ask(card_alone):
    monitor = Monitor(card_alone, TANDEM_SOFT_DEVICES="gpu0,small:64M")
    assert monitor("call('nvmlInit_v2')") == 0
    return monitor


MEMORY = "struct('nvmlDeviceGetMemoryInfo', device(), total=(ULL,), free=(ULL,), used=(ULL,))"


def test_the_devices_are_the_drivers_devices(card_alone, ask):
    assert ask("number('nvmlDeviceGetCount_v2')") == 2
    assert ask("text('nvmlDeviceGetName', device())") == "Tandem Software GPU"
    assert ask("number('nvmlDeviceGetIndex', device(1))") == 1
    assert ask("number('nvmlSystemGetCudaDriverVersion', kind=ctypes.c_int)") == 13000
    uuid = ask("text('nvmlDeviceGetUUID', device())")
    of_the_driver = finish(card_alone.bare(["/usr/bin/python3", "-c", (
        "import ctypes\n"
        "cuda, uuid = ctypes.CDLL('libcuda.so.1'), ctypes.create_string_buffer(16)\n"
        "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetUuid(uuid, 0) == 0\n"
        "h = uuid.raw.hex()\n"
        "print('GPU-' + '-'.join((h[:8], h[8:12], h[12:16], h[16:20], h[20:])))"
    )]))  # fmt: skip
    assert uuid == of_the_driver.strip()
    assert ask(f"number('nvmlDeviceGetHandleByUUID', {uuid.encode()}, kind=ULL)") == ask("device().value")
    by_bus_id = "number('nvmlDeviceGetHandleByPciBusId_v2', {}, kind=ULL)"
    for bus_id in (b"0000:02:00.0", b"00000000:02:00.0", b"0:2:0.0", b"0:2:0", b"02:00.0"):
        assert ask(by_bus_id.format(bus_id)) == ask("device(1).value")
    for bus_id, error in ((b"0000:03:00.0", NOT_FOUND), (b"0:2:0.1", NOT_FOUND), (b"1:2:0.0", NOT_FOUND),
                          (b"02:00", INVALID), (b"0:2:0.0.0", INVALID), (b"", INVALID)):  # fmt: skip
        assert ask(by_bus_id.format(bus_id)) == {"error": error}, bus_id
    pci = ask(
        "struct('nvmlDeviceGetPciInfo_v3', device(1), legacy=(ctypes.c_char * 16, b''), domain=(UINT,),"
        " bus=(UINT,), device=(UINT,), id=(UINT,), subsystem=(UINT,), bus_id=(ctypes.c_char * 32, b''))"
    )
    assert (pci["legacy"], pci["bus"], pci["bus_id"]) == (b"0000:02:00.0", 2, b"00000000:02:00.0")


    place = b"0000:02:00.0".ljust(16, b"\0") + bytes([0, 0, 0, 0, 2]).ljust(16, b"\0")
    assert ask("raw('nvmlDeviceGetPciInfo', device(1), room=128, size=32)") == place
    assert ask("raw('nvmlDeviceGetPciInfo_v2', device(1), room=128, size=52)") == place.ljust(52, b"\0")


def test_what_kind_of_device_it_is(ask):
    AMPERE, PCIE, OK, NO_LINKS = 7, 2, 0, 5
    for name, value in (("Architecture", AMPERE), ("BusType", PCIE), ("BoardId", 0x200), ("MultiGpuBoard", 0),
                        ("VirtualizationMode", 0), ("ComputeMode", 0), ("PersistenceMode", 0)):  # fmt: skip
        assert ask(f"number('nvmlDeviceGet{name}', device(1))") == value, name
    assert ask("number('nvmlDeviceIsMigDeviceHandle', device())") == 0
    assert ask("numbers('nvmlDeviceGetCudaComputeCapability', device(), count=2)") == [8, 6]
    for one, same in ((0, 1), (1, 0)):
        assert ask(f"number('nvmlDeviceOnSameBoard', device(), device({one}))") == same
    for capability, status in enumerate((OK, OK, NO_LINKS, OK, OK)):
        assert ask(f"number('nvmlDeviceGetP2PStatus', device(0), device(1), {capability})") == status
    for arguments in ("device(0), device(0), 0", "device(0), device(1), 5"):
        assert ask(f"number('nvmlDeviceGetP2PStatus', {arguments})") == {"error": INVALID}


def test_what_there_is_none_of(ask):
    assert ask("number('nvmlUnitGetCount')") == 0
    assert ask("number('nvmlUnitGetHandleByIndex', 0, kind=ULL)") == {"error": INVALID}
    assert ask("number('nvmlGetExcludedDeviceCount')") == 0
    assert ask("call('nvmlGetExcludedDeviceInfoByIndex', 0, ctypes.create_string_buffer(256))") == INVALID
    assert ask("numbers('nvmlSystemGetHicVersion', count=2)") == [0, 7]
    assert ask("text('nvmlSystemGetDriverBranch')") == {"error": NOT_SUPPORTED}
    assert ask("call('nvmlSystemGetDriverBranch', None, 96)") == INVALID
    assert ask("number('nvmlDeviceGetHandleBySerial', b'0', kind=ULL)") == {"error": NOT_FOUND}


def test_events_never_come(ask):
    assert ask("number('nvmlDeviceGetSupportedEventTypes', device(), kind=ULL)") == 0
    assert ask("call('nvmlDeviceRegisterEvents', device(), ULL(0), event_set())") == 0
    assert ask("call('nvmlDeviceRegisterEvents', device(), ULL(8), event_set())") == NOT_SUPPORTED
    for name in ("nvmlEventSetWait", "nvmlEventSetWait_v2"):
        assert ask(f"call('{name}', event_set(), ctypes.create_string_buffer(64), 1)") == TIMEOUT
        assert ask(f"call('{name}', event_set(), None, 1)") == INVALID
    assert ask("call('nvmlEventSetFree', ctypes.c_void_p(77))") == INVALID
    assert ask("call('nvmlEventSetFree', event_set())") == 0


def test_memory_and_processes_are_what_the_driver_gives_out(card_alone, ask):
    assert ask(MEMORY) == {"total": 256 * MIB, "free": 256 * MIB, "used": 0}
    programs = [DeviceProgram(card_alone) for _ in range(2)]
    memory = ask(MEMORY)
    assert memory["used"] == 2 * (8 + 64) * MIB
    assert memory["free"] == programs[0].number("free")
    v2 = "total=(ULL,), reserved=(ULL,), free=(ULL,), used=(ULL,))"
    assert ask(f"struct('nvmlDeviceGetMemoryInfo_v2', device(), version=(UINT, 40 | 2 << 24), {v2}")[
        "used"
    ] == memory["used"]
    for version in (0, 1, 2, 40 | 1 << 24, 40 | 3 << 24, 2 << 24):
        answer = ask(f"struct('nvmlDeviceGetMemoryInfo_v2', device(), version=(UINT, {version}), {v2}")
        assert answer == {"error": VERSION_MISMATCH}
    expected = sorted((program.process.pid, 72 * MIB) for program in programs)
    for version, words in (("", 2), ("_v2", 3), ("_v3", 3)):
        name = f"nvmlDeviceGetComputeRunningProcesses{version}"
        assert sorted(ask(f"processes('{name}', device(), words={words})")) == expected
        assert ask(f"processes('{name}', device(), room=0)") == {"error": INSUFFICIENT, "count": 2}
        assert ask(f"processes('{name}', device(), room=1)") == {"error": INSUFFICIENT, "count": 2}
        assert ask(f"processes('nvmlDeviceGetGraphicsRunningProcesses{version}', device())") == []
    assert ask("processes('nvmlDeviceGetComputeRunningProcesses_v3', device(1))") == []
    assert ask(f"text('nvmlSystemGetProcessName', {programs[0].process.pid})") == "/usr/bin/python3"
    programs[0].kill()
    assert ask(MEMORY)["used"] == 72 * MIB


def test_utilisation_is_of_the_compute_engine(card_alone, ask):
    rates = "struct('nvmlDeviceGetUtilizationRates', device(), gpu=(UINT,), memory=(UINT,))"
    program = DeviceProgram(card_alone)
    assert ask(rates) == {"gpu": 0, "memory": 0}
    assert ask("samples(device())") == {"error": NOT_FOUND}
    program.ask("endless")
    # Most of a second; the machine may be too busy for all of it.
    wait_until(lambda: ask(rates)["gpu"] >= 50, program.process, "the engine is seen to be busy")
    ((pid, percent),) = ask("samples(device())")
    assert pid == program.process.pid and percent > 0
    program.kill()
    assert ask(rates) == {"gpu": 0, "memory": 0}


def test_what_a_software_gpu_has_not_got_is_not_supported(ask):
    assert "nvmlDeviceGetTemperature" in {name for name, _, _ in WITHOUT}
    for name, parameters, required in WITHOUT:
        pointers = {parameter.split()[-1] for parameter in parameters if "*" in parameter}
        assert pointers - required <= MAY_BE_NULL, name
        assert ask(f"without('{name}', {parameters}, device())") == NOT_SUPPORTED, name
        assert ask(f"without('{name}', {parameters}, ctypes.c_void_p(77))") == INVALID, name
        for missing in required:
            assert ask(f"without('{name}', {parameters}, device(), '{missing}')") == INVALID, (name, missing)
    assert ask("fields(device(), 1, 138)") == (0, [NOT_SUPPORTED, NOT_SUPPORTED])
    assert ask("call('nvmlDeviceGetFieldValues', device(), 1, None)") == INVALID


def test_every_error_has_a_text(ask):
    texts = ask("error_texts(*range(30))")
    assert texts[:4] == ["Success", "Uninitialized", "Invalid Argument", "Not Supported"]
    assert len(set(texts)) == 30 and "Unknown Error" not in texts
    assert ask("error_texts(999, 12345)") == ["Unknown Error"] * 2


def test_a_run_sees_itself(make_card):
    """Its limit as the card's memory, and its own processes; a process in no run sees the card."""
    card = make_card(vram="128M")
    card.start_daemon()
    DeviceProgram(card, [TANDEM, "run", "--memory", "80M", "--"])
    DeviceProgram(card, [TANDEM, "run", "--"])  # both together are too big for the card
    budget = card.gpu()["budget_bytes"]
    runs = {session["run"]: session for session in card.sessions()}
    assert sorted(session["limit_bytes"] for session in runs.values()) == [80 * MIB, budget]
    v2 = "version=(UINT, 40 | 2 << 24), total=(ULL,), reserved=(ULL,), free=(ULL,), used=(ULL,)"
    for run, session in runs.items():
        # In the same run, and itself no user of the GPU.
        monitor = Monitor(card, TANDEM_RUN=str(run), LD_PRELOAD=str(SHIM))
        assert monitor("call('nvmlInit_v2')") == 0
        limit = session["limit_bytes"]
        expected = {"total": limit, "free": limit - 64 * MIB, "used": 64 * MIB}
        assert monitor(MEMORY) == expected
        shown = monitor(f"struct('nvmlDeviceGetMemoryInfo_v2', device(), {v2})")
        assert {**shown, **expected} == shown and shown["reserved"] == 0
        for version, words in (("", 2), ("_v2", 3), ("_v3", 3)):
            name = f"nvmlDeviceGetComputeRunningProcesses{version}"
            assert monitor(f"processes('{name}', device(), words={words})") == [(session["pid"], 64 * MIB)]
            assert monitor(f"processes('{name}', device(), room=0)") == {"error": INSUFFICIENT, "count": 1}
            assert monitor(f"processes('nvmlDeviceGetGraphicsRunningProcesses{version}', device())") == []
        assert monitor("struct('nvmlDeviceGetMemoryInfo', ctypes.c_void_p(77), total=(ULL,))") == {"error": INVALID}
    assert len(card.sessions()) == 2  # looking at the card is no use of it
    # Whatever outlives its run is in none.
    for monitor in (Monitor(card), Monitor(card, TANDEM_RUN="12345", LD_PRELOAD=str(SHIM))):
        assert monitor("call('nvmlInit_v2')") == 0
        assert monitor(MEMORY)["total"] == 128 * MIB
        used = {pid for pid, _ in monitor("processes('nvmlDeviceGetComputeRunningProcesses_v3', device())")}
        assert used == {session["pid"] for session in runs.values()}


def test_a_run_sees_its_new_limit_and_no_more_without_a_daemon(card):
    program = DeviceProgram(card, [TANDEM, "run", "--name", "it", "--memory", "80M", "--"])
    monitor = Monitor(card, TANDEM_RUN=str(card.session_of(program.process)["run"]), LD_PRELOAD=str(SHIM))
    assert monitor("call('nvmlInit_v2')") == 0
    assert monitor(MEMORY)["total"] == 80 * MIB
    finish(card.spawn([TANDEM, "limit", "it", "--memory", "100M"]))
    expected = {"total": 100 * MIB, "free": 36 * MIB, "used": 64 * MIB}
    assert monitor(MEMORY) == expected
    program.stop()  # only the guard, which would start another daemon
    card.daemon.kill()
    card.daemon.wait()
    assert monitor(MEMORY) == expected
    assert len(monitor("processes('nvmlDeviceGetComputeRunningProcesses_v3', device(), words=3)")) == 1
    program.proceed()


def test_wrong_arguments(card_alone, ask):
    assert ask("number('nvmlDeviceGetHandleByIndex_v2', 2, kind=ULL)") == {"error": INVALID}
    assert ask("text('nvmlDeviceGetName', ctypes.c_void_p(77))") == {"error": INVALID}
    assert ask("text('nvmlDeviceGetUUID', device(), room=8)") == {"error": INSUFFICIENT}
    assert ask("number('nvmlDeviceGetHandleByUUID', b'GPU-none', kind=ULL)") == {"error": NOT_FOUND}
    assert ask("call('nvmlInit')") == 0
    assert ask("call('nvmlShutdown')") == 0
    assert ask("number('nvmlDeviceGetCount_v2')") == 2  # initialised twice
    assert ask("call('nvmlShutdown')") == 0
    assert ask("number('nvmlDeviceGetCount_v2')") == {"error": UNINITIALIZED}
    assert ask("call('nvmlShutdown')") == UNINITIALIZED
    assert ask("text('nvmlSystemGetDriverBranch')") == {"error": UNINITIALIZED}
    for name, parameters, _ in WITHOUT:
        assert ask(f"without('{name}', {parameters}, ctypes.c_void_p(1))") == UNINITIALIZED, name
    refused = Monitor(card_alone, TANDEM_SOFT_VRAM="lots")
    assert refused("call('nvmlInit_v2')") == 9
