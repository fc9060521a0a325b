"""libnvidia-ml.so.1 beside the software GPU: what monitoring programs are told of it."""

import subprocess

import pytest

from harness import MIB, PATIENCE_S, SOFT_GPU, DeviceProgram, finish, wait_until

NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT, INVALID, UNINITIALIZED = 3, 6, 7, 2, 1

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

def device(index=0):
    handle = ctypes.c_void_p()
    assert call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)) == 0
    return handle

for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Monitor:
    def __init__(self, card, **environment):
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-c", MONITOR],
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
    assert ask("number('nvmlSystemGetCudaDriverVersion', kind=ctypes.c_int)") == 12040
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
    for bus_id in (b"0000:02:00.0", b"00000000:02:00.0"):
        assert ask(f"number('nvmlDeviceGetHandleByPciBusId_v2', {bus_id}, kind=ULL)") == ask("device(1).value")
    pci = ask(
        "struct('nvmlDeviceGetPciInfo_v3', device(1), legacy=(ctypes.c_char * 16, b''), domain=(UINT,),"
        " bus=(UINT,), device=(UINT,), id=(UINT,), subsystem=(UINT,), bus_id=(ctypes.c_char * 32, b''))"
    )
    assert (pci["legacy"], pci["bus"], pci["bus_id"]) == (b"0000:02:00.0", 2, b"00000000:02:00.0")


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
    assert ask(f"struct('nvmlDeviceGetMemoryInfo_v2', device(), version=(UINT, 1), {v2}") == {"error": 25}
    expected = sorted((program.process.pid, 72 * MIB) for program in programs)
    for version, words in (("", 2), ("_v2", 3), ("_v3", 3)):
        name = f"nvmlDeviceGetComputeRunningProcesses{version}"
        assert sorted(ask(f"processes('{name}', device(), words={words})")) == expected
        assert ask(f"processes('{name}', device(), room=0)") == {"error": INSUFFICIENT, "count": 2}
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
    for name in ("PowerUsage", "FanSpeed", "PerformanceState", "EnforcedPowerLimit", "MaxPcieLinkWidth"):
        assert ask(f"number('nvmlDeviceGet{name}', device())") == {"error": NOT_SUPPORTED}
    for name in ("Temperature", "ClockInfo", "PcieThroughput"):
        assert ask(f"number('nvmlDeviceGet{name}', device(), 0)") == {"error": NOT_SUPPORTED}
    assert ask("call('nvmlErrorString', 3) and nvml.nvmlErrorString(3)") == b"Not Supported"


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
    refused = Monitor(card_alone, TANDEM_SOFT_VRAM="lots")
    assert refused("call('nvmlInit_v2')") == 9
