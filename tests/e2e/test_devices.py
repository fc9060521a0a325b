"""Programs that use several GPUs, each of which is shared."""

import subprocess

import pytest

from harness import PATIENCE_S, finish, wait_until
from test_bad_input import DRIVER_TEST, verdicts

pytestmark = pytest.mark.sanitized

# Holds BLOCKS blocks of 4 MiB on each of the devices that it is told, in that order, each with
# contents of its own. It says so, and goes on at the end of its standard input. In each round it
# writes some anew, copies some from one device to the next, and looks at all.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
BYTES, DEVICES = 4 << 20, [int(each) for each in sys.argv[1].split(",")]
BLOCKS, ROUNDS, SEED = (int(each) for each in sys.argv[2:5])
SIZE = ctypes.c_size_t(BYTES)

def check(result):
    assert result == 0, result

check(cuda.cuInit(0))
contexts, blocks, values = [], [], []
host = (ctypes.c_uint32 * (BYTES // 4))()

def fill(place, index, value):
    check(cuda.cuCtxSetCurrent(contexts[place]))
    check(cuda.cuMemsetD32_v2(blocks[place][index], value, ctypes.c_size_t(BYTES // 4)))
    values[place][index] = value

for place, device in enumerate(DEVICES):
    contexts.append(ctypes.c_void_p())
    check(cuda.cuCtxCreate_v2(ctypes.byref(contexts[-1]), 0, device))
    blocks.append([ctypes.c_uint64() for _ in range(BLOCKS)])
    values.append([None] * BLOCKS)
    for index, block in enumerate(blocks[-1]):
        check(cuda.cuMemAlloc_v2(ctypes.byref(block), SIZE))
        fill(place, index, SEED + 1000 * place + index)
print("filled", flush=True)
sys.stdin.read()
for round in range(1, ROUNDS + 1):
    for place in range(len(DEVICES)):
        for index in range(round % 3, BLOCKS, 3):
            fill(place, index, SEED + 100 * round + 1000 * place + index)
        next = (place + 1) % len(DEVICES)
        index = round % BLOCKS
        check(cuda.cuMemcpyPeer(blocks[next][index], contexts[next], blocks[place][index], contexts[place], SIZE))
        values[next][index] = values[place][index]
    for place in range(len(DEVICES)):
        check(cuda.cuCtxSetCurrent(contexts[place]))
        for block, value in zip(blocks[place], values[place]):
            check(cuda.cuMemcpyDtoH_v2(host, block, SIZE))
            assert bytes(host) == value.to_bytes(4, "little") * (BYTES // 4), (place, value, host[0])
for context in contexts:
    check(cuda.cuCtxDestroy_v2(context))
print("done")
"""
# Under Tandem cuCtxEnablePeerAccess grants access to the blocks of a pool, too.
NOT_YET = {"PeerKernelTest.APoolIsWhoseItWasSetToBe"}


def program(devices, blocks, rounds, seed):
    return ["/usr/bin/python3", "-c", PROGRAM, devices, str(blocks), str(rounds), str(seed)]


@pytest.fixture
def cards(make_card):
    card = make_card(devices="one,two", vram="64M", context="2M")  # budgets of 54 MiB
    card.start_daemon()
    return card


def test_a_driver_with_two_devices_is_still_one(cards):
    cases = "--gtest_filter=Devices*:Peer*:ErrorsDeviceTest.*:IpcEventTest.*:VmmTest.*:ContextTest.*"
    bare = verdicts(finish(cards.bare([DRIVER_TEST, cases])))
    # A failure is the suite's, which then ends with 1.
    shared = verdicts(cards.shared([DRIVER_TEST, cases]).communicate(timeout=PATIENCE_S)[0])
    assert "FAILED" not in bare.values() and bare["PeerKernelTest.KernelsReachAPeersMemoryIfTheyMay"] == "OK"
    assert {name for name in bare if shared.get(name) != bare[name]} == NOT_YET


def test_programs_on_one_card_or_both_in_any_order(cards):
    """Each needs more than half of a card, so that they take turns on either."""
    argvs = [program(devices, 9, 3, 10000 * number) for number, devices in enumerate(("0,1", "1,0", "0", "1"), 1)]
    running = [cards.shared(argv, stdin=subprocess.PIPE) for argv in argvs]
    # Three at a time on either card.
    assert [each.stdout.readline() for each in running] == ["filled\n"] * 4
    for each in running:
        each.stdin.close()
        each.stdin = None  # or communicate() would write to it
    assert [finish(each) for each in running] == ["done\n"] * 4
    both = cards.ask("status")["gpus"]
    assert [gpu["charged_bytes"] for gpu in both] == [0, 0]
    moved = {record["gpu"] for record in cards.handovers() if record["out_bytes"] > 0}
    assert len(moved) == 2
    assert cards.sessions() == []


def test_who_needs_both_cards_gets_them_from_busy_neighbours(cards):
    busy = [cards.shared(program(device, 9, 100000, 7)) for device in ("0", "1")]
    wait_until(lambda: len(cards.sessions()) == 2, busy[0], "both neighbours are there")
    assert finish(cards.shared(program("0,1", 9, 2, 1000))) == "filled\ndone\n"
    assert all(each.poll() is None for each in busy)
