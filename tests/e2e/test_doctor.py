"""tandem doctor: what it finds on this machine, with a real daemon on the software GPU, and what it gives away."""

import getpass
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from harness import (BUILD, PATIENCE_S, REFUSED, SHIM, SOCKET, SOFT_GPU, SOURCE, TANDEM, VERSION, finish, frame, receive,
                     text, train, wait_until)
from users import STRANGER, Stranger, can_be_others

# A libnvidia-ml.so.1 with one card in a mode that the environment sets.
NVML = """
#include <stdlib.h>
#include <string.h>
static unsigned number(const char* name) { return getenv(name) ? atoi(getenv(name)) : 0; }
int nvmlInit_v2(void) { for (; number("TEST_HANGS");) {} return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { *device = (void*)1; return 0; }
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned room) { strcpy(uuid, "GPU-1"); return 0; }
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) { memset(memory, 0, 24); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void* infos) { *count = 0; return 0; }
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* pending) { *now = number("TEST_MIG"); return 0; }
int nvmlDeviceGetComputeMode(void* device, unsigned* mode) { *mode = number("TEST_COMPUTE"); return 0; }
"""


def doctor(card, *words, **options):
    """The report, and its findings by their codes."""
    process = card.spawn([TANDEM, "doctor", "--json", *words], **options)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert err == "", err
    report = json.loads(out)
    findings = {f["code"]: f for check in report["checks"] for f in check["findings"]}
    problems = [f for f in findings.values() if f["severity"] == "problem"]
    assert report["problems"] == len(problems)
    assert process.returncode == (1 if problems else 0)
    for finding in findings.values():
        assert (finding["remedy"] is None) == (finding["severity"] == "ok"), finding
    return report, findings


def with_driver(card, tmp_path, **environment):
    """An environment for the card, with a driver that works and an NVML of one card."""
    source = tmp_path / "nvml.c"
    source.write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    if not library.exists():
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    path = f"{BUILD / 'bin/tests/answering'}:{tmp_path}"
    devices = {"TANDEM_TEST_CUINIT": "0", "TANDEM_TEST_DEVICES": "1"}
    return {**card.env, "TANDEM_GPU": "cuda", "LD_LIBRARY_PATH": path, **devices, **environment}


def test_all_is_well(card):
    report, findings = doctor(card)
    assert report["kind"] == "soft" and report["problems"] == 0
    assert report["severity"] in ("ok", "note", "warning")
    for code in ("software_gpu", "files_fine", "preload_works", "daemon_answers", "versions_agree", "no_other_programs"):
        assert findings[code]["severity"] == "ok"
    assert f"Process {card.daemon.pid} of this user" in findings["daemon_answers"]["sentence"]


def test_it_starts_and_changes_nothing_without_a_daemon(make_card):
    card = make_card()
    _, findings = doctor(card)
    assert findings["no_daemon"]["severity"] == "note"
    assert os.listdir(card.runtime) == os.listdir(card.soft) == []


@pytest.mark.parametrize("version", [VERSION + 8, 1])
def test_a_daemon_of_another_version(make_card, version):
    card = make_card()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(card.runtime / SOCKET))
        listener.listen()
        process = card.spawn([TANDEM, "doctor"])
        connection, _ = listener.accept()
        with connection:
            receive(connection)
            payload = version.to_bytes(2, "little") + bytes([1, 0]) + text("another version")
            connection.sendall(frame(REFUSED, payload, version=version))
            out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "problem  daemon" in out and f"version {version}, this tandem version {VERSION}." in out
    assert f"Do: once the programs under it have ended, restart it: `kill {os.getpid()}`" in out


def test_a_daemon_that_is_gone_while_it_answers(make_card):
    card = make_card()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(card.runtime / SOCKET))
        listener.listen()
        process = card.spawn([TANDEM, "doctor"])
        listener.accept()[0].close()
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "does not answer" in out and f"`kill -9 {os.getpid()}`" in out


def test_a_directory_that_others_can_write_to(card):
    card.runtime.chmod(0o777)
    _, findings = doctor(card)
    assert str(card.runtime) in findings["directory_unsafe"]["sentence"]
    card.runtime.chmod(0o700)


def listen(path, line):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        line.sendall(b"x")
        line.recv(1)


@pytest.mark.skipif(not can_be_others(), reason="needs root")
def test_a_socket_of_another_user(make_card):
    card = make_card()
    card.runtime = Path(tempfile.mkdtemp(prefix="tandem-doctor-"))  # where others can reach it
    card.env["TANDEM_RUNTIME_DIR"] = str(card.runtime)
    card.runtime.chmod(0o777)
    stranger = Stranger(listen, str(card.runtime / SOCKET), line=True)
    try:
        stranger.await_begin()
        card.runtime.chmod(0o700)
        _, findings = doctor(card)
        assert f"user {STRANGER}" in findings["socket_owner"]["sentence"]
    finally:
        stranger.end()
        shutil.rmtree(card.runtime)


# ---- The shim and libraries in its way


def test_a_run_that_has_lost_the_shim(card):
    words = ["env", "-u", "LD_PRELOAD", str(TANDEM), "doctor", "--json"]
    process = card.shared(words)
    findings = json.loads(finish(process, expect=1))
    codes = [f["code"] for check in findings["checks"] for f in check["findings"]]
    assert "preload_lost" in codes
    within = json.loads(finish(card.shared([TANDEM, "doctor", "--json"])))
    assert within["problems"] == 0 and card.sessions() == [], "it makes no session of its own"


def test_a_shim_that_cannot_be_loaded(card, tmp_path):
    for folder in ("bin", "lib/tandem"):
        (tmp_path / folder).mkdir(parents=True)
    for tool in ("tandem", "tandemd"):
        shutil.copy(BUILD / "bin" / tool, tmp_path / "bin")
    (tmp_path / "lib" / SHIM.name).write_text("no library")
    process = card.spawn([tmp_path / "bin" / "tandem", "doctor"])
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "problem  preload" in out and "ld.so" in out
    assert "problem  files" in out, "the software GPU is missing"
    (tmp_path / "bin" / "tandemd").unlink()
    out, _ = card.spawn([tmp_path / "bin" / "tandem", "doctor"]).communicate(timeout=PATIENCE_S)
    assert re.search(r"problem +files +.*/tandemd is missing", out)


def test_another_libcuda_before_the_drivers(card, tmp_path):
    env = with_driver(card, tmp_path)
    _, findings = doctor(card, env=env)
    assert findings["driver_works"]["severity"] == "ok"
    assert "tests/answering" in findings["other_libcuda"]["sentence"]


def test_a_broken_driver(card, tmp_path):
    _, findings = doctor(card, env=with_driver(card, tmp_path, TANDEM_TEST_CUINIT="803"))
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in findings["driver_broken"]["sentence"]
    assert "restart the machine" in findings["driver_broken"]["remedy"]


def test_programs_that_cannot_be_shared(card, tmp_path):
    source = tmp_path / "hello.c"
    source.write_text("int main() { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "static", source], check=True)
    (tmp_path / "libcuda.so.1").touch()
    rpath = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["gcc", *rpath, "-o", tmp_path / "rpath", source], check=True)
    assert "--unshared" in doctor(card, tmp_path / "static")[1]["program_not_shareable"]["remedy"]
    assert str(tmp_path) in doctor(card, tmp_path / "rpath")[1]["program_rpath"]["sentence"]
    assert "program_missing" in doctor(card, "no-such-program")[1]
    assert doctor(card, "ffmpeg")[1]["program_fine"]["severity"] == "ok"


# ---- The host and the cards


def test_little_host_memory(card, tmp_path):
    available = tmp_path / "available"
    available.write_text(str(100 << 20))
    _, findings = doctor(card, env={**card.env, "TANDEM_HOST_AVAILABLE_FILE": str(available)})
    assert "100 MiB" in findings["host_memory_low"]["sentence"]


def test_limits_of_the_process(card, tmp_path):
    def lower():
        for limit, most in ((resource.RLIMIT_MEMLOCK, 1 << 20), (resource.RLIMIT_AS, 1 << 36)):
            resource.setrlimit(limit, (most, most))

    _, findings = doctor(card, env=with_driver(card, tmp_path), preexec_fn=lower)
    assert "1 MiB" in findings["locked_memory_limited"]["sentence"]
    assert "64 GiB" in findings["address_space_limited"]["sentence"]


def test_programs_outside_tandem(card):
    bare = card.bare(train("60M", 100000))
    wait_until(lambda: card.vram_used() > 60 << 20, bare, "it has its memory")
    shared = card.shared(train("20M", 100000))
    wait_until(lambda: card.session_of(shared), shared, "it has a session")
    _, findings = doctor(card)
    assert findings["other_programs"]["sentence"].startswith("1 program outside Tandem holds ")
    assert f"`ps -p {bare.pid}`" in findings["other_programs"]["remedy"]


@pytest.mark.parametrize("mode, code", [({"TEST_MIG": "1"}, "mig"), ({"TEST_COMPUTE": "2"}, "compute_prohibited"),
                                        ({"TEST_COMPUTE": "3"}, "compute_exclusive"), ({}, "card_modes_fine")])
def test_modes_of_a_card(card, tmp_path, mode, code):
    assert code in doctor(card, env=with_driver(card, tmp_path, **mode))[1]


def test_an_nvml_that_hangs_is_waited_for_no_longer_than_said(card, tmp_path):
    _, findings = doctor(card, env=with_driver(card, tmp_path, TEST_HANGS="1"))
    assert "card_modes_unknown" in findings and "other_programs_unknown" in findings


def test_an_mps_server(card, tmp_path):
    (tmp_path / "control").touch()
    _, findings = doctor(card, env=with_driver(card, tmp_path, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path)))
    assert str(tmp_path) in findings["mps"]["sentence"]


# ---- What it prints


def test_lines_fit_the_terminal(card, tmp_path):
    (tmp_path / "available").write_text(str(5 << 30))  # which does not change
    card.env["TANDEM_HOST_AVAILABLE_FILE"] = str(tmp_path / "available")
    out = card.on_a_terminal("doctor")
    assert "\x1b[32mok     \x1b[0m  driver" in out
    plain = card.on_a_terminal("doctor", NO_COLOR="1")
    assert "\x1b" not in plain and re.sub(r"\x1b\[\d+m", "", out) == plain
    lines = plain.splitlines()
    assert max(len(line) for line in lines if str(card.runtime) not in line) <= 80
    sentences = [line for line in lines[:-1] if not line.startswith(" ")]
    assert len({re.match(r"\w+ +\S+( \S+)? +", line).end() for line in sentences}) == 1
    assert lines[-1].startswith("No problem found")


def test_paths_are_escaped(card, tmp_path):
    odd = tmp_path / "a\x1b[31mb"
    odd.mkdir()
    (odd / "libcuda.so.1").touch()
    env = {**with_driver(card, tmp_path), "LD_LIBRARY_PATH": f"{BUILD / 'bin/tests/answering'}:{odd}"}
    out, _ = card.spawn([TANDEM, "doctor"], env=env).communicate(timeout=PATIENCE_S)
    assert "\x1b" not in out and r"a\x1b[31mb" in out


def test_a_bundle_gives_nothing_private_away(card, tmp_path):
    """With a planted secret in each place that doctor or the daemon reads."""
    secret = "xyzzy"
    env = {**card.env, "HOME": f"/home/{secret}", "PLANTED": secret, "USER": secret, "LD_PRELOAD": f"/{secret}.so",
           "LD_LIBRARY_PATH": f"/{secret}"}  # fmt: skip
    program = tmp_path / secret
    shutil.copy(BUILD / "bin" / "train", program)
    running = card.shared([program, "--memory", "20M", "--steps", "100000"], "--name", secret + "run")
    wait_until(lambda: card.session_of(running), running, "it has a session")
    log = card.runtime / "tandemd-soft.log"
    log.write_text(f'2026-11-26 02:44:29.123 info: session 1 ("{secret}", program "{secret}", process 1, user 0, gpu0) '
                   f"has started\n{secret}\n")  # fmt: skip
    bundle = tmp_path / "report.json"
    out = finish(card.spawn([TANDEM, "doctor", "--bundle", bundle, program], env=env))
    assert secret in out and f"Wrote {bundle}" in out
    assert bundle.stat().st_mode & 0o777 == 0o600
    written = bundle.read_text()
    private = [secret, getpass.getuser(), socket.gethostname(), str(Path.home()), str(card.runtime), str(BUILD)]
    assert [word for word in private if len(word) > 4 and word in written] == []
    report = json.loads(written)
    assert report["report"]["version"] == report["status"]["version"]
    assert [s["state"] for s in report["sessions"]] != []
    assert report["log"] == ["2026-11-26 02:44:29.123 info: session 1 … has started", "…"]
    assert report["system"]["memory_bytes"] > 0


def test_a_bundle_that_cannot_be_written(card, tmp_path):
    process = card.spawn([TANDEM, "doctor", "--bundle", tmp_path / "no" / "report.json"])
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (1, "") and "cannot write" in err


def test_every_finding_is_documented():
    """By its code, with its severity."""
    sources = "".join(path.read_text() for path in (SOURCE / "src/cli/doctor").glob("*_checks.cc"))
    found = re.findall(r'\b(Fine|Note|Warning|Problem)\(\s*"(\w+)"', sources)
    assert len(found) > 50
    severity = {"Fine": "ok", "Note": "note", "Warning": "warning", "Problem": "problem"}
    page = (SOURCE / "docs" / "doctor.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert {(code, severity[kind]) for kind, code in found} == rows
