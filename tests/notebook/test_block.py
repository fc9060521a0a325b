"""`with tandem.gpu():` and `@tandem.gpu` in scripts."""

import signal
import subprocess
import sys

import pytest
from harness import MIB, SOURCE, TANDEM, DeviceProgram, finish

sys.path.insert(0, str(SOURCE / "python"))
from tandem.limit import TimeLimit  # noqa: E402

PYTHON = "/usr/bin/python3"


@pytest.fixture
def script(card):
    """Runs Python text, under `tandem run` or not; returns what it prints."""

    def run(text, shared=True, flags=()):
        env = {**card.env, "PYTHONPATH": str(SOURCE / "python")}
        start = card.shared if shared else card.bare
        process = start([PYTHON, "-c", text], *flags, env=env) if shared else card.spawn(
            [PYTHON, "-c", text], env=env, stderr=subprocess.STDOUT
        )  # fmt: skip
        return finish(process)

    return run


def test_a_block_holds_the_gpu_and_gives_it_up(script):
    printed = script("""
import tandem
with tandem.gpu(wait="1m", memory="64M") as block:
    inside = tandem.status()
print(inside.holds, inside.leases, block.shared, block.waited_s < 60, tandem.status().leases)
""")
    assert printed == "True 1 True True 0\n"


def test_blocks_inside_a_block_take_no_second_lease(script):
    printed = script("""
import tandem
with tandem.gpu():
    with tandem.gpu():
        print(tandem.status().leases)
    print(tandem.status().leases)
print(tandem.status().leases)
""")
    assert printed == "1\n1\n0\n"


def test_functions_generators_and_coroutines_hold_it_while_they_run(script):
    printed = script("""
import asyncio, tandem
leases = lambda: tandem.status().leases

@tandem.gpu
def plain(): return leases()

@tandem.gpu(duration=lambda count: count)
def generate(count):
    for _ in range(count): yield leases()

@tandem.gpu(duration="30s")
async def call(): return leases()

@tandem.gpu()
async def stream():
    yield leases()

async def read(): return [value async for value in stream()]

running = generate(2)
print(plain(), leases(), next(running), leases(), list(running), leases())
print(asyncio.run(call()), asyncio.run(read()), leases(), generate.__name__)
""")
    assert printed == "1 0 1 1 [1] 0\n1 [1] 0 generate\n"


def test_an_exception_in_a_block_ends_the_lease(script):
    printed = script("""
import tandem
try:
    with tandem.gpu():
        raise KeyError("x")
except KeyError as error:
    print(error, tandem.status().leases)
""")
    assert printed == "'x' 0\n"


def test_a_block_that_runs_for_too_long_is_ended_in_any_thread(script):
    printed = script("""
import tandem, threading, time
def work():
    try:
        with tandem.gpu(limit="100ms"):
            while True: time.sleep(0.01)
    except tandem.TimeLimitExceeded as error:
        print(error, tandem.status().leases)
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
with tandem.gpu(limit="1h"): pass
""")
    line = "the block ran for more than its limit of 100 ms; raise the limit, or do less in one block 0\n"
    assert printed == line * 2


CATCHES = """
import tandem, threading, time
from tandem.limit import TimeLimit
looks, was_caught = [], TimeLimit._was_caught
def look(limit):
    looks.append(limit)
    return was_caught(limit)
TimeLimit._was_caught = look
def work():
    said = []
    def attempt():
        try:
            while True: time.sleep(0.01)
        except Exception as error:
            seen = len(looks)
            while len(looks) < seen + 2: time.sleep(0.01)  # the handler is left in peace
            said.append(type(error).__name__)
    try:
        with tandem.gpu(limit="100ms"):
            attempt()
            LAST
    except tandem.TimeLimitExceeded:
        print(said, tandem.status().leases)
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("last", ["while True: time.sleep(0.01)", "pass"])
def test_a_limit_that_the_block_catches_is_raised_again(script, last):
    assert script(CATCHES.replace("LAST", last)) == "['TimeLimitExceeded'] 0\n" * 2


def test_an_error_that_answers_a_limit_is_not_replaced(script):
    printed = script("""
import tandem, time
try:
    with tandem.gpu(limit="100ms"):
        try: time.sleep(60)
        except tandem.TimeLimitExceeded as error: raise KeyError("mine") from error
except KeyError as error: print(error, type(error.__cause__).__name__)
""")
    assert printed == "'mine' TimeLimitExceeded\n"


GENERATORS = """
import asyncio, signal, tandem, threading
from tandem.limit import TimeLimit
limits, start = [], TimeLimit.start
def noted(limit):
    limits.append(limit)
    start(limit)
TimeLimit.start = noted
def over():
    with limits[-1]._lock: return limits[-1]._fired  # what it does then is done

@tandem.gpu(limit="200ms")
def numbers(log):
    try:
        for number in range(100): yield number
    except tandem.TimeLimitExceeded: log.append("in the generator"); raise

@tandem.gpu(limit="200ms")
async def numbers_async():
    for number in range(100): yield number

def read():
    log = []
    running = numbers(log)
    log.append(next(running))
    while not over(): pass  # the caller is not interrupted
    log.append("still here")
    try: next(running)
    except tandem.TimeLimitExceeded: log.append("raised")
    print(log, tandem.status().leases)

async def read_async():
    running = numbers_async()
    first = await running.__anext__()
    while not over(): await asyncio.sleep(0.01)
    try: await running.__anext__()
    except tandem.TimeLimitExceeded: print(first, "raised", tandem.status().leases)

read()
thread = threading.Thread(target=read)
thread.start()
thread.join()
asyncio.run(read_async())
one, two = numbers([]), numbers([])
print(next(one), next(two), list(one)[-1], sum(two), tandem.status().leases)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_the_limit_of_a_generator_is_raised_only_while_it_runs(script):
    read = "[0, 'still here', 'in the generator', 'raised'] 0\n"
    assert script(GENERATORS) == f"{read}{read}0 raised 0\n0 0 99 4950 0\nTrue\n"


def test_an_interrupt_at_the_end_of_a_limit_leaves_the_handler_of_before(monkeypatch):
    """It comes in the middle of signal.signal, which the limit calls."""
    limit, before, change = TimeLimit(60, lambda frame: True), signal.getsignal(signal.SIGINT), signal.signal
    limit.start()
    source = """def late(number, handler):
        limit._pending = True
        limit._on_interrupt(number, sys._getframe())
        return change(number, handler)"""
    space = {"__name__": "signal", "limit": limit, "change": change, "sys": sys}
    exec(source, space)
    monkeypatch.setattr(signal, "signal", space["late"])
    limit.stop(limit._error())
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is before


def test_errors_say_what_to_do(script):
    printed = script("""
import tandem
def attempt(**options):
    try:
        with tandem.gpu(**options): pass
    except tandem.Error as error:
        print(f"{type(error).__name__}: {error}")
attempt(memory="100G")
attempt(device=7)
attempt(wait="5x")
attempt(memory="8")
attempt(work_class="urgent")
attempt(device=-1)
""")
    assert printed.splitlines() == [
        "TooLarge: memory=100 GiB is more than this run may have; ask for less, or raise it with "
        "`tandem limit RUN --memory SIZE`",
        "NoDevice: there is no GPU 7; `tandem status` lists the GPUs",
        "InvalidUse: '5x' is no time; write for example '30s', '5m' or '1h30m'",
        "InvalidUse: '8' is no size; write for example '8G' or '512M'",
        "InvalidUse: work_class='urgent' is none of production, interactive, batch, opportunistic",
        "InvalidUse: device=-1 is no GPU; write its number, for example 0",
    ]


def test_worker_processes_of_a_data_loader_go_on(script):
    printed = script("""
import multiprocessing, tandem
def work(number):
    with tandem.gpu(): return number, tandem.status().shared
if __name__ == "__main__":
    with tandem.gpu(): print(work(0))
    with multiprocessing.get_context("fork").Pool(1) as pool: print(pool.map(work, [1]))
""")
    assert printed.startswith("(0, True)\n[(1, ")


def test_without_tandem_blocks_have_no_effect_and_say_so_once(script):
    printed = script(
        """
import tandem
for _ in range(2):
    with tandem.gpu(): print("runs")
print(tandem.status(), tandem.release())
""",
        shared=False,
    )
    assert printed.count("has no effect") == 1
    assert printed.endswith("runs\nruns\nnot under Tandem False\n")


def test_memory_may_leave_before_another_program_needs_the_room(script):
    printed = script(f"""
import tandem
exec(open({str(SOURCE / "bench" / "_cells.py")!r}).read())
with tandem.gpu():
    memory = Memory(32 << 20)
    try: tandem.release()
    except tandem.InvalidUse as error: print(error)
print(tandem.release())
while tandem.status().resident_bytes: time.sleep(0.01)
print(tandem.status().swapped_bytes >> 20)
with tandem.gpu(): print(memory.wrong_words())
""")
    assert printed.splitlines() == [
        "tandem.release() inside `with tandem.gpu():`; call it after the block",
        "True",
        "32",
        "0",
    ]


def test_other_tasks_run_while_a_coroutine_waits_and_a_cancelled_one_leaves_the_line(card, script):
    busy = DeviceProgram(card, [TANDEM, "run", "--name", "busy", "--"])
    busy.ask("endless")
    busy.ask("begun")
    card.tandem("policy", "all", "fcfs")
    mib = card.gpu()["budget_bytes"] // MIB - 32  # not beside the other
    printed = script(f"""
import asyncio, tandem
async def hold():
    async with tandem.gpu(memory="{mib}M"): return "held"
async def main():
    task = asyncio.create_task(hold())
    while not any(session["state"] == "waiting" for session in tandem.status().sessions):
        await asyncio.sleep(0.01)  # other tasks run
    task.cancel()
    try: await task
    except asyncio.CancelledError: print("cancelled", tandem.status().leases)
asyncio.run(main())
""")
    assert printed == "cancelled 0\n"
    busy.kill()
