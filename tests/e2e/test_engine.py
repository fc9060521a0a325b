"""Being one GPU for several processes: the engine in turns, the bus shared, who stops and who dies.

Times asserted here are device times of the model clock, which do not depend on the host.
"""

import os
import signal

import pytest

from harness import DeviceProgram, finish
from test_nvml import Monitor

# Of one piece of work each: 10 ms of kernel by the model clock, 10 ms of a bus of 200 MB/s.
ROUNDS = 66_000
BYTES = 2_000_000
MODEL = {"TANDEM_SOFT_CLOCK": "model", "TANDEM_SOFT_PCIE": "200MB/s"}


def times_of_ten(programs, work):
    """What ten pieces of work take each of them while all have work all the time."""
    for program in programs:
        assert program.ask(f"steady {work} 4") == "running"
    for program in programs:
        program.tell("mark")
    times = [int(program.line().split()[1]) for program in programs]
    for program in programs:
        assert program.ask("end") == "ended"
    return times


@pytest.fixture
def load(card_alone):
    """Another program that keeps every core busy."""
    loop = "import sys\nprint('on', flush=True)\nwhile True: pass"
    for _ in range(os.cpu_count()):
        process = card_alone.spawn(["/usr/bin/python3", "-c", loop])
        assert process.stdout.readline() == "on\n"


@pytest.fixture
def card_alone(make_card):
    """A card without a daemon."""
    return make_card(vram="1G")


ATTEMPTS = 3  # a host that stalls for longer than the model's ceiling does show


def within(programs, work, expected, tolerance):
    """Whether each program's ten pieces take what is expected, unless the host stalls every time."""
    seen = []
    for _ in range(ATTEMPTS):
        seen.append(times_of_ten(programs, work))
        if all(abs(time / expected - 1) <= tolerance for time in seen[-1]):
            return
    raise AssertionError((expected, seen))


def shares(card, work):
    programs = [DeviceProgram(card, **MODEL) for _ in range(3)]
    alone = min(times_of_ten(programs[:1], work)[0] for _ in range(2))
    within(programs[:2], work, 2 * alone, 0.05)
    within(programs, work, 3 * alone, 0.05)
    # Two who have nothing to do cost nothing.
    within(programs[:1], work, alone, 0.02)


@pytest.mark.parametrize("work", [f"kernel {ROUNDS}", f"up {BYTES}", f"down {BYTES}"])
def test_so_many_at_once_take_so_many_times_as_long(card_alone, work):
    shares(card_alone, work)


@pytest.mark.parametrize("work", [f"kernel {ROUNDS}", f"up {BYTES}", f"down {BYTES}"])
def test_a_busy_host_is_not_to_be_seen_in_device_time(card_alone, load, work):
    shares(card_alone, work)


def test_work_takes_what_it_is_worth(card_alone):
    program = DeviceProgram(card_alone, **MODEL)
    # Three instructions a round, 50 ns each.
    within([program], f"kernel {ROUNDS}", 10 * ROUNDS * 150, 0.01)
    within([program], f"up {BYTES}", 100e6, 0.01)


def test_the_two_directions_of_the_bus_do_not_share(card_alone):
    one, two = DeviceProgram(card_alone, **MODEL), DeviceProgram(card_alone, **MODEL)
    (alone,) = times_of_ten([one], f"up {BYTES}")
    assert two.ask(f"steady down {BYTES} 4") == "running"
    within([one], f"up {BYTES}", alone, 0.02)
    assert two.ask("end") == "ended"


@pytest.mark.parametrize("direction", ["up", "down"])
def test_computing_and_copying_do_not_share(card_alone, direction):
    computing, copying = f"kernel {ROUNDS}", f"{direction} {BYTES}"
    one, two = DeviceProgram(card_alone, **MODEL), DeviceProgram(card_alone, **MODEL)
    for program, work, other, others_work in ((one, computing, two, copying), (two, copying, one, computing)):
        alone = min(times_of_ten([program], work)[0] for _ in range(2))
        assert other.ask(f"steady {others_work} 4") == "running"
        within([program], work, alone, 0.02)
        assert other.ask("end") == "ended"


def test_the_global_timer_shows_the_timeline(card_alone):
    program = DeviceProgram(card_alone, **MODEL)
    before = program.number("timer")
    took = program.number(f"measure kernel {ROUNDS}")
    assert program.number("timer") - before >= took


@pytest.mark.parametrize("clock", ["real", "model"])
def test_an_endless_kernel_leaves_the_others_their_turns(card_alone, clock):
    endless, other = (DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock) for _ in range(2))
    endless.ask("endless")
    for _ in range(3):
        other.ask(f"kernel {ROUNDS}")
        assert other.ask("sync") == "sync 0"


@pytest.mark.parametrize("clock", ["real", "model"])
def test_the_watchdog_ends_an_endless_kernel(card_alone, clock):
    watched = DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock, TANDEM_SOFT_WATCHDOG="200ms")
    other = DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock)
    watched.ask("endless")
    assert watched.ask("sync") == "sync 702"  # CUDA_ERROR_LAUNCH_TIMEOUT
    assert watched.ask("sync") == "sync 702"
    other.ask(f"kernel {ROUNDS}")
    assert other.ask("sync") == "sync 0"


@pytest.mark.parametrize("clock", ["real", "model"])
def test_the_stopped_keep_their_memory_and_not_the_engine(card_alone, clock):
    stopped, other = (DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock) for _ in range(2))
    free = other.number("free")
    stopped.ask("endless")
    assert stopped.ask("begun") == "begun"
    stopped.stop()
    for _ in range(3):
        other.ask(f"kernel {ROUNDS}")
        assert other.ask("sync") == "sync 0"
    assert other.number("free") == free
    stopped.proceed()
    stopped.kill()
    assert other.number("free") > free


@pytest.mark.parametrize("clock", ["real", "model"])
def test_the_stopped_leave_the_bus_and_go_on_with_their_copies(card_alone, clock):
    size = 2 << 20
    stopped = DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock, TANDEM_SOFT_PCIE="4MB/s")
    other = DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock)
    stopped.ask(f"slowly {size}")
    assert stopped.ask("begun") == "begun"
    stopped.stop()
    for direction in ("up", "down") * 3:
        other.ask(f"{direction} {BYTES}")
        assert other.ask("sync") == "sync 0"
    stopped.proceed()
    assert stopped.ask("sync") == "sync 0"
    assert stopped.ask(f"arrived {size}") == "arrived yes"


@pytest.mark.parametrize("clock", ["real", "model"])
def test_a_kernel_that_is_stopped_in_the_middle_goes_on(card_alone, clock):
    stopped, other = (DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock) for _ in range(2))
    digests = []
    for program in (other, stopped):
        filled = program.ask("fill 7")
        program.ask(f"halves {ROUNDS}")
        assert program.ask("begun") == "begun"
        if program is stopped:
            stopped.stop()
            other.ask(f"kernel {ROUNDS}")
            assert other.ask("sync") == "sync 0"
            stopped.proceed()
        program.ask("release")
        assert program.ask("sync") == "sync 0"
        digests.append(program.ask("digest"))
    assert digests[0] == digests[1] != filled


def die_at_work(card, work):
    """A program that is killed in the middle of it."""
    program = DeviceProgram(card, TANDEM_SOFT_PCIE="1MB/s")
    program.ask(work)
    assert program.ask("begun") == "begun"
    program.kill()


def test_a_hundred_killed_processes_leave_nothing_behind(card_alone):
    # The witness lives on: with no process left the device itself would be new.
    witness, monitor = DeviceProgram(card_alone), Monitor(card_alone)
    assert monitor("call('nvmlInit_v2')") == 0

    def seen():
        shared = [name for name in os.listdir("/dev/shm") if "tandem" in name]
        processes = monitor("processes('nvmlDeviceGetComputeRunningProcesses_v3', device())")
        return witness.number("free"), processes, sorted(os.listdir(card_alone.soft)), shared

    before = seen()
    assert [pid for pid, _ in before[1]] == [witness.process.pid]
    die = (
        "import ctypes, os, signal\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "context, memory = ctypes.c_void_p(), ctypes.c_uint64()\n"
        "assert cuda.cuInit(0) == 0\n"
        "assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0\n"
        "assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(8 << 20)) == 0\n"
        "assert cuda.cuMemsetD8_v2(memory, 1, ctypes.c_size_t(8 << 20)) == 0\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for turn in range(25):
        dying = [card_alone.bare(["/usr/bin/python3", "-c", die]) for _ in range(3)]
        die_at_work(card_alone, "endless" if turn % 2 == 0 else f"slowly {32 << 20}")
        for process in dying:
            finish(process, expect=-signal.SIGKILL)
    assert seen() == before
    witness.ask(f"kernel {ROUNDS}")
    assert witness.ask("sync") == "sync 0"


@pytest.mark.parametrize("clock", ["real", "model"])
def test_a_higher_priority_has_the_engine(card_alone, clock):
    low = DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock, TANDEM_SOFT_PRIORITY="-1")
    high = DeviceProgram(card_alone, TANDEM_SOFT_CLOCK=clock)
    low.ask("endless")
    if clock == "model":
        within([high], f"kernel {ROUNDS}", 10 * ROUNDS * 150, 0.05)
    else:
        times_of_ten([high], f"kernel {ROUNDS}")
