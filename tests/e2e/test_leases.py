"""Leases: a cluster engine lends GPUs to its jobs, and only their processes use them."""

import contextlib
import json
import os
import signal
import tempfile
from pathlib import Path

import pytest

import users
from harness import MIB, PATIENCE_S, SANITIZED, SOFT_GPU, TANDEM, Card, DeviceProgram, finish, train, wait_until
from test_sharing import solo

JOB = ["--job", "17", "--user", str(os.getuid()), "--gpu", "gpu0"]


@pytest.fixture
def card(make_card):
    """A budget of 54 MiB."""
    card = make_card(vram="64M", context="2M")
    card.start_daemon()
    return card


def create(card, *terms, job=JOB):
    return json.loads(card.tandem("lease", "create", *job, *terms, "--json"))


def environment(card, *terms, job=JOB):
    """What the processes of the job are given."""
    lines = card.tandem("lease", "create", *job, *terms, "--environment").splitlines()
    return {**card.env, **dict(line.split("=", 1) for line in lines)}


def refused(card, *words, status=1):
    process = card.spawn([TANDEM, "lease", *words])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "")
    assert len(err.splitlines()) == 1 and err.startswith("tandem: "), err
    return err


@pytest.mark.sanitized
def test_processes_of_a_job_share_its_lease(card):
    job = train("10M", 5)
    expected = solo(card, job)
    env = environment(card, "--memory-request", "30M", "--memory-limit", "52M", "--name", "vision-17",
                      "--project", "vision")  # fmt: skip
    both = [card.spawn(job, env=env) for _ in range(2)]
    wait_until(lambda: len(card.sessions()) == 2 or both[0].poll() is not None, both[1], "both are there")
    for session in card.sessions():
        assert (session["name"], session["lease"], session["project"]) == ("vision-17", "17", "vision")
        assert session["limit_bytes"] == 52 * MIB
    assert [finish(process) for process in both] == [expected, expected]
    # Together they may have no more than the limit.
    failed = card.spawn(train("60M", 1), env=env)
    _, err = failed.communicate(timeout=60)
    assert failed.returncode == 1 and "CUDA_ERROR_OUT_OF_MEMORY" in err


@pytest.mark.sanitized
def test_jobs_beyond_the_gpu_take_turns_and_end_right(card):
    job = train("40M", 10)
    expected = solo(card, job)
    one = environment(card, "--memory-request", "20M", "--memory-limit", "50M")
    other = environment(card, "--memory-request", "30M", "--memory-limit", "50M",
                        job=["--job", "18", *JOB[2:]])  # fmt: skip
    both = [card.spawn(job, env=env) for env in (one, other)]
    assert [finish(process) for process in both] == [expected, expected]
    listed = json.loads(card.tandem("lease", "list", "--json"))
    assert [lease["job"] for lease in listed["leases"]] == ["17", "18"]
    assert listed["gpus"][0]["guaranteed_bytes"] == 50 * MIB
    assert "50 MiB of 54 MiB guaranteed" in card.tandem("lease", "list")


def test_guarantees_never_exceed_the_gpu(card):
    create(card, "--memory-request", "40M")
    said = refused(card, "create", "--job", "18", *JOB[2:], "--memory-request", "15M")
    assert "cannot guarantee 15 MiB on gpu0" in said and "14 MiB are left" in said
    create(card, "--memory-request", "14M", job=["--job", "18", *JOB[2:]])


def test_the_same_lease_again_is_the_same(card):
    first = create(card, "--memory-request", "10M")
    assert create(card, "--memory-request", "10M") == first
    assert card.tandem("lease", "create", *JOB, "--memory-request", "10M").strip() == str(first["token"])
    assert "other terms" in refused(card, "create", *JOB, "--memory-request", "11M")


def test_leases_outlive_the_daemon(card):
    token = create(card, "--memory-request", "10M", "--memory-limit", "40M")["token"]
    env = environment(card, "--memory-request", "10M", "--memory-limit", "40M")
    program = DeviceProgram(card, room=20 * MIB, LD_PRELOAD=env["LD_PRELOAD"], TANDEM_RUN=str(token))
    program.ask("fill 1")
    card.daemon.send_signal(signal.SIGKILL)
    card.daemon.wait()
    card.start_daemon()
    wait_until(lambda: len(card.sessions()) == 1, program.process, "its program comes back")
    assert card.sessions()[0]["lease"] == "17"
    assert card.sessions()[0]["limit_bytes"] == 40 * MIB
    assert create(card, "--memory-request", "10M", "--memory-limit", "40M")["token"] == token
    program.ask("fill 2")
    finish(card.spawn(train("8M", 1), env=env))  # another process of the job joins


def test_a_lease_that_has_ended_takes_no_process(card):
    env = environment(card, "--memory-request", "20M")
    program = DeviceProgram(card, room=16 * MIB, LD_PRELOAD=env["LD_PRELOAD"], TANDEM_RUN=env["TANDEM_RUN"])
    program.ask("fill 1")
    assert "1 session of the job still runs" in card.tandem("lease", "end", "--job", "17")
    late = card.spawn(train("8M", 1), env=env)
    _, err = late.communicate(timeout=60)
    assert late.returncode != 0
    assert "has ended" in err
    program.ask("fill 2")  # goes on
    assert "There are no leases" in card.tandem("lease", "list")
    assert "job 17 has no lease" in refused(card, "end", "--job", "17")


@pytest.mark.sanitized
def test_tandem_run_within_a_job_belongs_to_it(card):
    env = environment(card, "--memory-request", "30M")
    program = card.spawn([TANDEM, "run", "--", *train("16M", 400)], env=env)
    session = wait_until(lambda: card.sessions() and card.sessions()[0], program, "it is there")
    assert (session["lease"], session["limit_bytes"]) == ("17", 30 * MIB)
    program.kill()
    raised = card.spawn([TANDEM, "run", "--memory", "50M", "--", *train("8M", 1)], env=env)
    assert raised.wait(timeout=60) == 125  # it cannot have more


def test_only_jobs_are_served_where_that_is_asked_for():
    if not users.can_be_others():
        pytest.skip("needs root, to be another user")
    with tempfile.TemporaryDirectory(prefix="tandem-users-") as folder:
        root = Path(folder)
        root.chmod(0o711)
        programs = users.install(root)
        card = Card(root, vram="64M", context="2M")
        with contextlib.closing(card):
            card.soft.chmod(0o755)
            card.env.update(TANDEM_SOFT_SHARED="1", LD_LIBRARY_PATH=str(root / "lib/tandem/soft"))
            card.start_daemon("--everybody", "--leases-only")
            finish(card.shared(train("8M", 1)))  # root's
            user = ["setpriv", f"--reuid={users.STRANGER}", f"--regid={users.STRANGER}", "--clear-groups"]
            env = {**card.env, "LD_PRELOAD": str(root / "lib/libtandem.so")}
            program = card.spawn([*user, programs / "train", "--memory", "8M", "--steps", "1"], env=env)
            _, err = program.communicate(timeout=PATIENCE_S)
            assert program.returncode != 0
            assert "start the program as a job; device 0 is out of memory for this program" in err


@pytest.mark.parametrize("words, said", [
    (["create"], "needs --job"),
    (["create", "--job", "1"], "needs --user"),
    (["create", "--job", "1", "--user", "0"], "needs --gpu"),
    (["create", "--job", "1", "--user", "0", "--gpu", "0"], "needs --memory-request or --memory-limit"),
    (["end"], "needs --job"),
    (["create", "--job", "1", "--memory-request", "8"], "8"),
    (["create", "--job", "1", "--compute-share", "much"], "is no share"),
    (["create", "--job", "1", "--name", "12"], "would be taken for the number of a session"),
    (["renew"], "renew"),
    ([], "action is required"),
])  # fmt: skip
def test_a_mistake_is_said_in_one_line(make_card, words, said):
    assert said in refused(make_card(), *words, status=2)


@pytest.mark.parametrize("words, said, status", [
    (["--user", "no-such-user"], "no user called", 2),
    (["--gpu", "gpu7"], "there is no gpu7", 1),
    (["--gpu", "first"], "is no GPU", 2),
    (["--memory-limit", "1T"], "is more than programs can share", 1),
    (["--memory-limit", "1M"], "is less than the request", 1),
    (["--cgroup", "slurm"], "slash", 1),
])  # fmt: skip
def test_terms_that_cannot_be_are_refused(card, words, said, status):
    terms = {"--job": "17", "--user": str(os.getuid()), "--gpu": "gpu0", "--memory-request": "8M"}
    terms[words[0]] = words[1]
    assert said in refused(card, "create", *(word for pair in terms.items() for word in pair), status=status)


def test_without_a_daemon_that_is_said(make_card):
    assert "no daemon" in refused(make_card(), "list")
