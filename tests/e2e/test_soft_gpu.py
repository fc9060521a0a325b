"""The size of the software GPU where the environment does not set it."""

import json

import pytest

from harness import MIB, PATIENCE_S, TANDEM, finish

GIB = 1024 * MIB
TOTAL = """
import ctypes
cuda, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
print(total.value)
"""


@pytest.fixture
def home(make_card, tmp_path):
    """A card whose size the environment does not set, on a host with 12 GiB free."""
    card = make_card()
    for name in ("TANDEM_SOFT_VRAM", "TANDEM_SOFT_DEVICES"):
        del card.env[name]
    card.env["XDG_CONFIG_HOME"] = str(tmp_path)
    card.host_memory = tmp_path / "available"
    card.host_memory.write_text(str(12 * GIB))
    card.env["TANDEM_HOST_AVAILABLE_FILE"] = str(card.host_memory)
    return card


def gpu_soft(card, *words):
    return json.loads(finish(card.spawn([TANDEM, "gpu", "soft", *words, "--json"])))


def sizes(card):
    return [gpu["card_bytes"] for gpu in card.ask("status")["gpus"]]


def test_it_is_a_part_of_the_hosts_memory_and_the_same_for_all_processes(home):
    assert gpu_soft(home)["memory_bytes"] == 6 * GIB
    assert gpu_soft(home)["memory_from"] == "host" and gpu_soft(home)["daemon_pid"] is None
    finish(home.shared(["true"]))  # starts the daemon
    assert sizes(home) == [6 * GIB]
    home.host_memory.write_text(str(4 * GIB))
    status = gpu_soft(home)
    assert status["memory_bytes"] == 6 * GIB and not status["restart_needed"]
    assert finish(home.bare(["/usr/bin/python3", "-c", TOTAL])) == f"{6 * GIB}\n"


def test_the_setting_holds_for_the_next_daemon(home):
    changed = gpu_soft(home, "--memory", "300M", "--count", "2")
    assert (changed["memory_bytes"], changed["count"], changed["memory_from"]) == (300 * MIB, 2, "setting")
    assert gpu_soft(home) == changed
    finish(home.shared(["true"]))
    assert sizes(home) == [300 * MIB, 300 * MIB]
    assert not gpu_soft(home)["restart_needed"]
    said = finish(home.spawn([TANDEM, "gpu", "soft", "--memory", "400M"]))
    assert f"`kill {home.ask('status')['pid']}`" in said
    assert sizes(home) == [300 * MIB, 300 * MIB]
    assert gpu_soft(home, "--memory", "auto", "--count", "1")["memory_from"] == "host"


def test_the_environment_wins(home):
    gpu_soft(home, "--memory", "300M", "--count", "2")
    home.env["TANDEM_SOFT_VRAM"] = "200M"
    assert gpu_soft(home)["environment_wins"]
    finish(home.shared(["true"]))
    assert sizes(home) == [200 * MIB]


@pytest.mark.parametrize("words", [["--memory", "100T"], ["--memory", "1M"], ["--count", "17"], ["--memory", "8"]])
def test_sizes_without_sense_are_refused(home, words):
    process = home.spawn([TANDEM, "gpu", "soft", *words])
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2 and err.startswith("tandem: "), err
    assert gpu_soft(home)["memory_from"] == "host", "nothing was set"


def test_a_setting_without_sense_is_named_and_can_be_replaced(home):
    gpu_soft(home, "--count", "1")
    file = gpu_soft(home)["file"]
    with open(file, "w", encoding="utf-8") as text:
        text.write("garbage\n")
    process = home.shared(["true"])
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 125
    assert f"{file}: 'garbage' sets nothing" in err and "Install" not in err
    gpu_soft(home, "--memory", "300M")
    finish(home.shared(["true"]))
