"""What people type: tandem run, ps and status, and the errors they meet."""

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from harness import (BUILD, MIB, PATIENCE_S, REFUSED, SHIM, SOCKET, TANDEM, TANDEMD, TRAIN, VERSION, finish, frame, receive,
                     text, train, wait_until)


def fails(card, argv, expect, *words):
    """Runs a command that must fail with status `expect`; its message must hold all words."""
    process = card.spawn(argv)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == expect, err
    for word in words:
        assert word in err, err
    return err


def run(*argv):
    return [TANDEM, "run", *argv]


# ---- tandem run is the program


@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_exit_status_is_the_programs(card, status):
    finish(card.shared(["sh", "-c", f"exit {status}"]), expect=status)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_death_by_signal_is_the_programs(card, number):
    finish(card.shared(["sh", "-c", f"kill -{int(number)} $$"]), expect=-number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_program(card, number):
    process = card.shared(["sh", "-c", f"sleep 1000 >&- & trap 'kill $!; exit 7' {int(number)}; echo up; wait"])
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE_S) == 7


def test_standard_streams_pass_through(card):
    process = subprocess.run(
        [*map(str, run("--", "cat"))], input="hello\n", env=card.env, capture_output=True, text=True
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "hello\n", "")


def test_programs_without_a_gpu_see_nothing_of_us(card):
    before = card.ask("sessions")
    process = card.shared(["ls", "/"])
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and err == "" and "usr" in out
    assert card.ask("sessions") == before


def test_a_daemon_is_started_where_none_runs(make_card):
    card = make_card()
    finish(card.shared(train("20M", 2)))
    assert card.ask("status")["gpus"][0]["card_bytes"] == 256 << 20


def test_two_at_once_start_one_daemon(make_card):
    card = make_card()
    for process in [card.shared(train("20M", 2)) for _ in range(4)]:
        finish(process)
    log = (card.runtime / "tandemd-soft.log").read_text()
    assert log.count(" to share, ") == 1, log


def test_a_run_within_a_run_shares_its_limit(card):
    program = [TANDEM, "run", "--", *train("160M", 2)]
    process = card.shared(program, "--memory", "100M")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "OUT_OF_MEMORY" in err


def test_what_outlives_its_run_starts_runs_of_its_own(card, tmp_path):
    """As a terminal multiplexer does that was started by `tandem run`."""
    go, out = tmp_path / "go", tmp_path / "out"
    job = " ".join(map(str, run("--memory", "100M", "--", *train("160M", 2))))
    late = f"until [ -e {go} ]; do sleep 0.05; done; {job} 2>{out}.part; mv {out}.part {out}"
    finish(card.shared(["setsid", "--fork", "sh", "-c", late], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    go.touch()
    wait_until(out.exists, None, "the late run ended")
    assert "OUT_OF_MEMORY" in out.read_text()


def test_a_daemon_that_cannot_start_says_which_variable_is_wrong(make_card):
    card = make_card()
    card.env["TANDEM_TURN"] = "soon"
    fails(card, run("--", "true"), 125, 'TANDEM_TURN is "soon"')


def test_each_kind_of_gpu_has_a_daemon_of_its_own(make_card):
    """A program for the card never meets the daemon of the software GPU."""
    card = make_card()
    card.start_daemon()
    process = card.shared(["true"], "--gpu", "cuda")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 125 and "no GPU to share" in err
    assert "No daemon" in finish(card.spawn([TANDEM, "ps", "--gpu", "cuda"]))


NO_CARD = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has NVIDIA's driver")
SAYS_SOFTWARE = "tandem: no NVIDIA driver was found: this run uses the software GPU"


def answering(card, init):
    """An environment that asks for no kind of GPU, and a driver whose cuInit returns `init`."""
    env = {k: v for k, v in card.env.items() if k != "TANDEM_GPU"}
    return {**env, "LD_LIBRARY_PATH": str(BUILD / "bin/tests/answering"), "TANDEM_TEST_CUINIT": str(init)}


@NO_CARD
def test_the_software_gpu_is_announced_where_nothing_asked_for_it(card):
    def said(*flags, env):
        process = card.shared(["true"], *flags, env=env)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return err

    unasked = answering(card, 100)  # no device
    err = said(env=unasked)
    assert err.startswith(SAYS_SOFTWARE) and err.count("\n") == 1
    assert said("--gpu", "soft", env=unasked) == said("--quiet", env=unasked) == said(env=card.env) == ""
    inner = ["--", TANDEM, "run"]
    assert said(*inner, env=unasked).count(SAYS_SOFTWARE) == 1, "a run within it says nothing"


@NO_CARD
def test_a_broken_driver_ends_the_run(card):
    broken = answering(card, 803)
    process = card.shared(["echo", "ran"], env=broken)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (125, "")
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in err and "--gpu soft" in err
    assert finish(card.shared(["echo", "ran"], "--gpu", "soft", env=broken)) == "ran\n"


def test_the_daemons_log_is_bounded(make_card):
    card = make_card()
    log, older = card.runtime / "tandemd-soft.log", card.runtime / "tandemd-soft.1.log"
    for _ in range(2):
        log.write_text("x" * MIB)
        daemon = card.spawn([TANDEMD, "--log", log])
        wait_until(lambda: card.ask("status"), daemon, "the daemon answers")
        daemon.terminate()
        daemon.wait(timeout=PATIENCE_S)
        assert log.stat().st_size < MIB and older.stat().st_size == MIB
    assert len(list(card.runtime.glob("*.log"))) == 2


# ---- errors


def test_unknown_program(card):
    fails(card, run("--", "no-such-program"), 127, "no-such-program")


def test_not_executable(card, tmp_path):
    path = tmp_path / "data"
    path.write_text("x")
    fails(card, run("--", path), 126, str(path))


def test_limit_larger_than_the_card(card):
    fails(card, run("--memory", "100G", "--", *train()), 125, "100 GiB", "222 MiB")


def test_unshared_has_neither_limit_nor_name(card):
    for flags in (["--memory", "1G"], ["--name", "x"]):
        fails(card, run("--unshared", *flags, "--", "true"), 2, "--unshared", flags[0])


def test_oversubscribing_takes_a_limit(card):
    fails(card, run("--oversubscribe", "--", "true"), 2, "--oversubscribe", "--memory")
    fails(card, run("--memory", "1G", "--oversubscribe", "--unshared", "--", "true"), 2, "--unshared")
    fails(card, run("--memory", "100G", "--oversubscribe", "--", *train()), 125, "100 GiB", "a run may have")


# A mistake in a command line has status 2 and one line, which says what to write instead.
MISTAKES = [
    ([TANDEM, "runn", "--", "ls"], ['"runn"', '"run"']),
    ([TANDEM, "help", "runn"], ['"runn"', '"run"']),
    ([TANDEM, "--verison"], ["--verison", "--version"]),
    ([TANDEM, "ps", "--jsn"], ["--jsn", "--json"]),
    ([TANDEM, "run", "--memry", "8G", "--", "ls"], ["tandem run", "--memry", "--memory"]),
    ([TANDEM, "run", "--memory", "lots", "--", "ls"], ["lots", "8G"]),
    ([TANDEM, "run", "--memory", "8", "--", "ls"], ["'8' has no unit", "8G"]),
    ([TANDEM, "run", "--memory", "0", "--", "ls"], ["no GPU memory"]),
    ([TANDEM, "run", "--name", "12", "--", "ls"], ["'12'", "session"]),
    ([TANDEM, "run", "--class", "urgent", "--", "ls"], ["production, interactive, batch, opportunistic"]),
    ([TANDEM, "run", "--gpu", "sotf", "--", "ls"], ["did you mean soft?"]),
    ([TANDEM, "run"], ["program is required"]),
    ([TANDEM, "limit", "3", "--memory", "8"], ["has no unit"]),
    ([TANDEM, "limit", "3", "--memory", "0"], ["no GPU memory"]),
    ([TANDEM, "suspend", "3", "--timeout", "soon"], ["soon", "5m"]),
    ([TANDEM, "policy", "gpu0", "quickest"], ["'quickest'", "fcfs"]),
    ([TANDEM, "plan", "--users", "3", "--burst", "soon"], ["soon", "5m"]),
    ([TANDEM, "doctor", "--bundel", "x"], ["--bundel", "--bundle"]),
    ([TANDEMD, "--polcy", "fair"], ["--polcy", "--policy"]),
    ([TANDEMD, "--policy", "fairr"], ["did you mean fair?"]),
    ([TANDEMD, "--exit-when-idle", "-3"], ["--exit-when-idle"]),
    ([TANDEMD, "stray"], ["stray"]),
    ([TANDEMD, "--host-memory", "64"], ["has no unit"]),
    ([TANDEMD, "--host-memory", "100000T"], ["more than this machine has"]),
    ([TANDEMD, "--spill", "/tmp:100000T"], ["more than the file system of /tmp holds"]),
]


@pytest.mark.parametrize("argv, words", MISTAKES)
def test_a_usage_error_has_status_2_and_one_line(make_card, argv, words):
    assert fails(make_card(), argv, 2, *words).count("\n") == 1


def test_version_and_help_in_all_forms(make_card):
    card = make_card()
    say = lambda *words: finish(card.spawn([TANDEM, *words]))  # noqa: E731
    assert say("--version") == say("version") and say("--version").startswith("tandem ")
    assert say() == say("help") == say("--help") and "Subcommands:" in say()
    assert say("help", "run") == say("run", "--help") and "--oversubscribe" in say("help", "run")


def test_unknown_device_is_the_drivers_own_error(card):
    """A program that asks for a device that is not there hears it from the driver."""
    process = card.shared([TRAIN, "--device", "7", "--memory", "20M", "--steps", "1"])
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "CUDA_ERROR_INVALID_DEVICE" in err


def test_stale_socket_is_replaced(make_card):
    card = make_card()
    daemon = card.start_daemon()
    daemon.kill()
    daemon.wait()
    assert (card.runtime / SOCKET).exists()
    finish(card.shared(train("20M", 2)))


def static_program(tmp_path):
    source, program = tmp_path / "hello.c", tmp_path / "hello"
    source.write_text('#include <stdio.h>\nint main() { puts("hello"); }\n')
    subprocess.run(["gcc", "-static", "-o", program, source], check=True)
    return program


def test_static_program(card, tmp_path):
    program = static_program(tmp_path)
    fails(card, run("--", program), 125, "static", "--unshared")
    assert finish(card.shared([program], "--unshared")) == "hello\n"


def test_set_uid_program(card, tmp_path):
    program = tmp_path / "true"
    program.write_bytes(open("/bin/true", "rb").read())
    program.chmod(0o755 | stat.S_ISUID)
    fails(card, run("--", program), 125, "set-uid", "--unshared")
    finish(card.shared([program], "--unshared"))


def test_a_daemon_of_another_version_is_named(make_card, tmp_path):
    """A listener that answers as a daemon of another version would."""
    import socket

    card = make_card()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(card.runtime / SOCKET))
    listener.listen()
    other = VERSION + 8
    process = card.shared(train("20M", 2))
    connection, _ = listener.accept()
    receive(connection)
    reason = f"this daemon speaks protocol version {other}"
    payload = bytes([other, 0, 1, 0]) + text(reason)
    connection.sendall(frame(REFUSED, payload, version=other))
    out, err = process.communicate(timeout=PATIENCE_S)
    connection.close()
    listener.close()
    assert process.returncode == 125
    assert f"version {other}" in err and "restart" in err


# ---- listings


def test_ps_and_status(card):
    process = card.shared(train("60M", 100000), "--name", "my\x1b[31mjob")

    def works():
        session = card.session_of(process)
        return session and session["state"] == "running" and session["allocated_bytes"] >= 60 << 20

    wait_until(works, process, "it runs with all its memory")
    sessions = json.loads(finish(card.spawn([TANDEM, "ps", "--json"])))["sessions"]
    assert len(sessions) == 1
    table = finish(card.spawn([TANDEM, "ps"]))
    assert "running" in table and "\x1b" not in table
    status = json.loads(finish(card.spawn([TANDEM, "status", "--json"])))
    assert status["gpus"][0]["holders"] == [sessions[0]["id"]]
    assert "256 MiB" in finish(card.spawn([TANDEM, "status"]))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE_S) in (-signal.SIGINT, 130)


@pytest.mark.parametrize("argv", [["ps"], ["status"], ["ps", "--json"], ["status", "--json"]])
def test_listings_without_a_daemon(make_card, argv):
    out = finish(make_card().spawn([TANDEM, *argv]))
    if "--json" in argv:
        assert json.loads(out)[{"ps": "sessions", "status": "gpus"}[argv[0]]] == []
    else:
        assert "No daemon" in out


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["ps", "--help"], ["status", "--help"],
                                  ["suspend", "--help"], ["resume", "--help"], ["limit", "--help"], ["doctor", "--help"]])
def test_help_has_examples(card, argv):
    assert "Example" in finish(card.spawn([TANDEM, *argv]))


def test_a_listing_that_cannot_be_written(card):
    with open("/dev/full", "w") as full:
        process = card.spawn([TANDEM, "ps"], stdout=full)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "No space left" in err


# ---- the shim as a guest


def test_the_shim_links_nothing_but_libc():
    dynamic = subprocess.run(["readelf", "-d", SHIM], capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert all(name.startswith(("libc.so.", "ld-linux")) for name in needed), needed


def test_the_shim_is_silent_and_does_nothing_for_others(card):
    """`ls` under the preload: no word, no session, no file."""
    env = {**card.env, "LD_PRELOAD": str(SHIM)}
    process = subprocess.run(["ls", "/"], env=env, capture_output=True, text=True)
    assert process.returncode == 0 and process.stderr == ""
    assert card.ask("status")["gpus"][0]["handovers"] == 0 and card.sessions() == []
    assert all("tandemd" in name or name == "history" for name in os.listdir(card.runtime))
