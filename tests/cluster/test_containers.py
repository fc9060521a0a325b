"""Containers share a GPU by CDI devices: nothing of Tandem is in the image."""

import contextlib
import json
import os
import signal

import pytest

from harness import MIB, TANDEM, finish, train, wait_until
from podman import Podman, fails, inside, unusable

pytestmark = pytest.mark.skipif(bool(WHY := unusable()), reason=f"no containers here: {WHY}")


@pytest.fixture(scope="module")
def podman():
    """Two GPUs of 54 MiB each that can be shared."""
    with contextlib.closing(Podman(devices="gpu0,gpu1")) as engine:
        yield engine


def alone(podman, job):
    """What the job prints by itself on the GPU, without Tandem and without a container."""
    return finish(podman.card.bare(job))


def session_of(podman, name, process):
    """The first session of a container. Those of the test before may still be listed."""

    def first():
        return next((session for session in podman.card.sessions() if session["name"] == name), None)

    return wait_until(first, process, f"{name} has a session")


class TrainingLoop:
    """A training loop in a container that goes on until it is told to end."""

    def __init__(self, podman, name, folder):
        self.podman = podman
        self.folder = folder
        self.log = folder / "log"
        self.log.touch()
        endless = " ".join(inside(train("40M", 1000000, "--until", "/tmp/enough")))
        script = f"{endless} >/tmp/log"
        self.process = podman.run("/bin/sh", "-c", script, device="0", name=name, flags=[f"--volume={folder}:/tmp"])

    def steps(self):
        return self.log.read_text().count("step")

    def await_step(self):
        before = self.steps()
        wait_until(lambda: self.steps() > before, self.process, "the loop goes on")

    def ends_as_if_undisturbed(self):
        (self.folder / "enough").touch()
        finish(self.process)
        undisturbed = train("40M", self.steps(), "--until", "/nothing")
        return self.log.read_text() == alone(self.podman, undisturbed)


def test_containers_that_want_twice_the_memory_end_right(podman, tmp_path):
    job = train("40M", 9)
    expected = alone(podman, job)
    names = ["anna", "bert", "carl"]
    # None ends before the others have begun.
    held = [*inside(job), "--hold", "/tmp/go"]
    volume = [f"--volume={tmp_path}:/tmp"]
    all_of_them = [podman.run(*held, device="0-50m", name=name, flags=volume) for name in names]
    podman.await_overflow(all_of_them[0])
    assert sorted(lease["name"] for lease in podman.leases()) == names
    assert {s["limit_bytes"] for s in podman.card.sessions()} == {50 * MIB}
    assert {s["lease"] for s in podman.card.sessions()} == {lease["job"] for lease in podman.leases()}
    (tmp_path / "go").touch()
    assert [finish(process) for process in all_of_them] == [expected] * 3
    assert podman.leases() == []


def test_a_container_has_the_limit_of_its_device(podman):
    failed = podman.run(*inside(train("40M", 1)), device="0-40m")
    _, err = failed.communicate(timeout=300)
    assert failed.returncode != 0 and "this run may have 40 MiB" in err
    assert "`tandem limit ID --memory SIZE` changes a limit" in err
    # All of its processes together, whatever started them.
    script = "/bin/train --memory 12M --steps 200 & /bin/train --memory 12M --steps 200; wait -n; echo $?"
    assert "this run may have 40 MiB" in podman.run("/bin/sh", "-c", script, device="any-40m").communicate(timeout=300)[1]


def test_a_gpu_comes_and_goes_ten_times_in_a_training_loop(podman, tmp_path):
    """The loop goes on with the GPU, and stands still without."""
    loop = TrainingLoop(podman, "loop", tmp_path)
    for _ in range(10):
        loop.await_step()
        detached = json.loads(podman.card.tandem("detach", "loop", "--json"))["sessions"]
        assert [(s["state"], s["resident_bytes"]) for s in detached] == [("suspended", 0)]
        before = loop.steps()
        finish(podman.card.shared(train("12M", 5)))  # another program has the GPU meanwhile
        assert loop.steps() <= before + 1  # of a step that had ended, but not printed it
        attached = json.loads(podman.card.tandem("attach", "loop", "--json"))["sessions"]
        assert [s["state"] == "suspended" for s in attached] == [False]
    assert loop.ends_as_if_undisturbed()


def test_a_program_goes_from_gpu_to_gpu_ten_times(podman, tmp_path):
    """With all it has, and nothing of it stays where it comes from."""
    loop = TrainingLoop(podman, "goes", tmp_path)
    for number in range(10):
        loop.await_step()
        here, there = number % 2, 1 - number % 2
        podman.card.tandem("detach", "goes")
        attached = json.loads(podman.card.tandem("attach", "goes", "--gpu", there, "--json"))["sessions"]
        assert [s["gpu"] for s in attached] == [there]
        assert [lease["gpus"] for lease in podman.leases()] == [[there]]
        finish(podman.card.bare(train("50M", 1, "--device", str(here))))  # all of the GPU, without Tandem
    assert loop.ends_as_if_undisturbed()


def test_a_program_that_cannot_move_says_why(podman, tmp_path):
    job = train("20M", 3)
    expected = alone(podman, job)
    process = podman.run(*inside(job), "--hold", "/tmp/end", device="0", name="stays", flags=[f"--volume={tmp_path}:/tmp"])
    session = session_of(podman, "stays", process)
    attach = ["attach", "stays", "--gpu", "1"]
    said = fails(podman.card.spawn([TANDEM, *attach]))
    assert said == f"tandem: process {session['pid']} uses gpu0: take that away with `tandem detach` first\n"
    podman.card.tandem("detach", "stays")
    restart_daemon(podman)  # the next daemon moves it as well
    wait_until(lambda: podman.card.sessions(), process, "it comes back")
    podman.card.tandem(*attach)
    assert [s["gpu"] for s in podman.card.sessions()] == [1]
    (tmp_path / "end").touch()
    assert finish(process) == expected


def test_a_move_that_takes_long_says_what_it_waits_for(podman, tmp_path):
    job = train("20M", 3)
    expected = alone(podman, job)
    process = podman.run(*inside(job), "--hold", "/tmp/end", device="0", name="slow", flags=[f"--volume={tmp_path}:/tmp"])
    pid = session_of(podman, "slow", process)["pid"]
    podman.card.tandem("detach", "slow")
    os.kill(pid, signal.SIGSTOP)
    waiting = podman.card.spawn([TANDEM, "attach", "slow", "--gpu", "1"])
    line = f"tandem: waiting up to 1 min for process {pid} to move to gpu1. Ctrl-C stops only the waiting\n"
    assert waiting.stderr.readline() == line
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == -signal.SIGINT
    os.kill(pid, signal.SIGCONT)
    podman.card.tandem("attach", "slow", "--gpu", "1")
    assert [s["gpu"] for s in podman.card.sessions()] == [1]
    (tmp_path / "end").touch()
    assert finish(process) == expected


def test_a_container_without_a_gpu_gets_one(podman):
    job = train("20M", 3)
    expected = alone(podman, job)
    process = podman.run(*inside(job), device="none", name="later")
    session = session_of(podman, "later", process)
    assert (session["state"], session["resident_bytes"]) == ("suspended", 0)
    # By a process in it, as an administrator sees it.
    podman.card.tandem("attach", session["pid"], "--memory", "32M")
    assert podman.card.sessions() == [] or podman.card.sessions()[0]["limit_bytes"] == 32 * MIB
    assert finish(process) == expected


def once_told(job, directory="/tmp"):
    """A job that begins once the file `go` is there."""
    return ["/bin/sh", "-c", f"until [ -e {directory}/go ]; do :; done; exec {' '.join(inside(job))}"]


def restart_daemon(podman, *flags):
    podman.card.daemon.send_signal(signal.SIGKILL)
    podman.card.daemon.wait()
    podman.card.start_daemon("--everybody", *flags)


def test_calls_of_a_detached_container_fail_where_the_order_says_so(podman):
    job = train("20M", 3)
    expected = alone(podman, job)
    long = " ".join(inside(train("40M", 100000)))
    script = f"{long} >/dev/null || echo failed; until {' '.join(inside(job))} 2>/dev/null; do :; done"
    process = podman.run("/bin/sh", "-c", script, device="0", name="told")
    first = session_of(podman, "told", process)
    podman.card.tandem("detach", "told", "--fail-after", "100ms")
    gone = lambda: all(session["pid"] != first["pid"] for session in podman.card.sessions())
    wait_until(gone, process, "the program is told, and ends")
    podman.card.tandem("attach", "told")
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, f"failed\n{expected}")
    assert "the GPU has been taken away" in err and "CUDA_ERROR_DEVICE_UNAVAILABLE" in err


def test_a_detached_container_stays_so_when_the_daemon_restarts(podman, tmp_path):
    job = train("20M", 3)
    expected = alone(podman, job)
    process = podman.run(*once_told(job), device="none", name="later", flags=[f"--volume={tmp_path}:/tmp"])
    wait_until(lambda: [l for l in podman.leases() if l["suspended"]], process, "it has a lease, and waits")
    restart_daemon(podman)
    (tmp_path / "go").touch()
    session = session_of(podman, "later", process)
    assert (session["state"], session["resident_bytes"]) == ("suspended", 0)
    podman.card.tandem("attach", "later")
    assert finish(process) == expected


def test_a_container_gets_another_gpu_before_it_uses_one(podman, tmp_path):
    job = train("20M", 3, "--device", "1")
    expected = alone(podman, job)
    held = [*job, "--hold", "/tmp/end"]
    process = podman.run(*once_told(held), device="none", name="later", flags=[f"--volume={tmp_path}:/tmp"])
    wait_until(lambda: [l for l in podman.leases() if l["suspended"]], process, "it has a lease, and waits")
    assert [lease["gpus"] for lease in podman.leases()] == [[0]]
    podman.card.tandem("attach", "later", "--gpu", "1")
    (tmp_path / "go").touch()
    session = session_of(podman, "later", process)
    assert session["gpu"] == 1
    said = fails(podman.card.spawn([TANDEM, "attach", "later", "--gpu", "0", "--memory", "1M"]))
    assert f"process {session['pid']} uses gpu1: take that away with `tandem detach` first" in said
    assert [lease["gpus"] for lease in podman.leases()] == [[1]]
    assert podman.card.sessions()[0]["limit_bytes"] == session["limit_bytes"]
    (tmp_path / "end").touch()
    assert finish(process) == expected


def test_the_daemon_writes_the_specification(podman, tmp_path):
    file = tmp_path / "new" / "tandem.json"
    restart_daemon(podman, "--cdi", file)
    assert file.read_text() == podman.card.tandem("cdi", "generate")
    assert oct(file.stat().st_mode & 0o777) == "0o644"
    restart_daemon(podman, "--cdi", "/proc/nothing/tandem.json", "--log", tmp_path / "log")
    said = "the GPUs are no devices of containers: cannot write /proc/nothing/tandem.json"
    assert (tmp_path / "log").read_text().count(said) == 1


def test_containers_outlive_the_daemon(podman, tmp_path):
    job = train("30M", 10)
    expected = alone(podman, job)
    flags = [f"--volume={tmp_path}:/tmp"]
    process = podman.run(*inside(job), "--hold", "/tmp/go", device="0-40m", flags=flags)
    wait_until(lambda: len(podman.card.sessions()) == 1, process, "it is on the GPU")
    restart_daemon(podman)
    wait_until(lambda: len(podman.card.sessions()) == 1, process, "it comes back")
    assert podman.card.sessions()[0]["limit_bytes"] == 40 * MIB
    (tmp_path / "go").touch()
    assert finish(process) == expected


def test_a_killed_container_leaves_nothing(podman):
    """Also where its memory moves at that moment."""
    job = inside(train("40M", 100000))
    both = [podman.run(*job, device="0", name=name) for name in ("one", "two")]
    wait_until(lambda: len(podman.card.handovers()) > 3, both[0], "they take turns")
    podman.command("kill", "one", "two")
    for process in both:
        process.communicate(timeout=300)
    wait_until(lambda: podman.card.sessions() == [] and podman.leases() == [], podman.card.daemon, "nothing is left")


def test_a_container_runs_as_its_user(podman):
    job = train("20M", 3)
    expected = alone(podman, job)
    said = finish(podman.run("/bin/sh", "-c", f"/bin/id -u; {' '.join(inside(job))}", device="0-40m", flags=["--user=1234"]))
    assert said == f"1234\n{expected}"


# ---- errors


def test_without_the_daemon_the_container_does_not_start(podman):
    podman.card.daemon.send_signal(signal.SIGKILL)
    podman.card.daemon.wait()
    assert "tandem: no daemon runs at" in fails(podman.run("/bin/cat", "/dev/null", device="0"))
    assert "tandem: no daemon runs at" in fails(podman.card.spawn([TANDEM, "attach", "absent"]))


def test_an_image_with_musl_is_refused(podman):
    podman.import_image("tandem-musl", musl=True)
    assert "tandem: this image uses musl" in fails(podman.run("/bin/cat", device="0", image="tandem-musl"))


def test_a_device_that_does_not_exist_is_refused(podman):
    for device in ("7", "0-999g"):  # the specification has no size above the GPU's
        said = fails(podman.run("/bin/cat", device=device))
        assert said == f"Error: setting up CDI devices: unresolvable CDI devices {podman.kind}={device}\n"


def test_a_limit_above_the_gpu_is_refused(podman):
    sentence = "tandem: a limit of 1 TiB is more than programs can share, 54 MiB. Use 54M or less"
    process = podman.run("/bin/sleep", "1000", device="none", name="held")
    before = wait_until(lambda: [l for l in podman.leases() if l["suspended"]], process, "it has a lease, and waits")
    held = fails(podman.card.spawn([TANDEM, "attach", "held", "--memory", "1T"]))
    assert held == f"{sentence}; `tandem run --oversubscribe` may have more, which is much slower\n"
    plain = podman.run("/bin/sleep", "1000", name="plain")
    wait_until(lambda: "plain" in podman.command("ps", "--format", "{{.Names}}"), plain, "it runs")
    assert fails(podman.card.spawn([TANDEM, "attach", "plain", "--memory", "1T"])) == f"{sentence}\n"
    assert podman.leases() == before
    assert "tandem" not in podman.command("exec", "plain", "/bin/cat", "/proc/self/mounts")


def test_a_container_without_a_device_is_given_a_gpu_while_it_runs(podman):
    job = train("20M", 3)
    expected = alone(podman, job)
    process = podman.run("/bin/sleep", "1000", name="plain")
    wait_until(lambda: podman.command("ps", "-q"), process, "it runs")
    assert "no CUDA driver here" in fails(podman.spawn("exec", "plain", *inside(job)))
    said = fails(podman.card.spawn([TANDEM, "attach", "plain", "--gpu", "7"]))
    assert "this machine shares no GPU 7 (`tandem status` lists them)" in said
    lease = json.loads(podman.card.tandem("attach", "plain", "--memory", "40M", "--json"))
    assert (lease["name"], lease["gpus"], lease["memory_limit_bytes"]) == ("plain", [0], 40 * MIB)
    variables = [f"--env={variable}" for variable in lease["environment"]]
    assert finish(podman.spawn("exec", *variables, "plain", *inside(job))) == expected
    # Again: what it has stays. And it comes and goes as that of any container with a device.
    podman.card.tandem("attach", "plain")
    podman.card.tandem("detach", "plain")
    waiting = podman.spawn("exec", *variables, "plain", *inside(job))
    session = session_of(podman, "plain", waiting)
    assert (session["state"], session["limit_bytes"]) == ("suspended", 40 * MIB)
    podman.card.tandem("attach", session["pid"])
    assert finish(waiting) == expected
    podman.command("rm", "--force", "--time", "0", "plain")
    wait_until(lambda: podman.leases() == [], podman.card.daemon, "the lease has ended with it")


def test_a_container_that_cannot_have_a_gpu_is_left_as_it_was(podman, tmp_path):
    (tmp_path / "preload").write_text("/lib/theirs.so\n")
    for name, flag, why in (
        ("musl", f"--volume={tmp_path}/preload:/lib/ld-musl-x86_64.so.1", "this image uses musl"),
        ("other", f"--volume={tmp_path}/preload:/etc/ld.so.preload", "preloads a library already"),
        ("fixed", "--read-only", "cannot make /opt/tandem"),
    ):
        process = podman.run("/bin/sleep", "1000", name=name, flags=[flag])
        wait_until(lambda name=name: name in podman.command("ps", "--format", "{{.Names}}"), process, "it runs")
        assert why in fails(podman.card.spawn([TANDEM, "attach", name]))
        assert podman.leases() == []
        assert "tandem" not in podman.command("exec", name, "/bin/cat", "/proc/self/mounts")
    assert 'no container "absent" runs here' in fails(podman.card.spawn([TANDEM, "attach", "absent"]))
    assert "is in no container" in fails(podman.card.spawn([TANDEM, "attach", str(os.getpid())]))


def test_a_specification_that_cannot_be_written_is_an_error(podman):
    said = podman.card.spawn([TANDEM, "cdi", "generate", "--output", "/proc/nothing/tandem.json"])
    assert "cannot write /proc/nothing/tandem.json" in fails(said)
    for terms, why in (
        (["--gpu", "7"], "this machine shares no GPU 7"),
        (["--memory", "1T"], "--memory 1T is more than containers can share of a GPU, 54 MiB"),
    ):
        assert why in fails(podman.card.spawn([TANDEM, "cdi", "generate", "--name", "one", *terms]))
