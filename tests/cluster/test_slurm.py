"""Slurm's jobs share GPUs by --gpu-mem: the real daemons, three nodes, more memory asked for than there is."""

import pwd
import re

import pytest

import users
from harness import MIB, TANDEM, TRAIN, finish, train, wait_until
from slurm_cluster import Slurm


NOBODY = pwd.getpwnam("nobody")  # Slurm's users need an account


def alone(slurm, job):
    """What the job prints by itself on a GPU, without Tandem and without Slurm."""
    return finish(slurm.nodes["n1"].card.bare(job))


def waiting(slurm, folder, *flags):
    """A job that runs, and ends when the file `go` is in the folder: the job, and that file."""
    go, runs = folder / "go", folder / "runs"
    script = f"touch {runs}; until [ -e {go} ]; do sleep 0.05; done"
    process = slurm.srun(*flags, "bash", "-c", script)
    wait_until(runs.exists, process, "the job runs")
    return process, go


def refused(process):
    """The one line of Tandem in what a command that failed has said."""
    _, err = process.communicate(timeout=300)
    assert process.returncode != 0
    said = [line for line in err.splitlines() if "tandem: " in line]
    assert len(said) == 1, err
    return said[0]


def test_jobs_that_want_twice_the_memory_end_right(slurm):
    job = train("40M", 5)
    expected = alone(slurm, job)
    go = slurm.root / "go"  # none ends before all have begun
    jobs = [slurm.srun("--gpu-mem=34M:50M", *job, "--hold", str(go)) for _ in range(9)]
    allocated = lambda: sum(session["allocated_bytes"] for session in slurm.sessions())  # noqa: E731
    wait_until(lambda: allocated() >= 9 * 40 * MIB, jobs[0], "all jobs have their memory")
    assert allocated() >= 2 * sum(node.card.gpu()["budget_bytes"] for node in slurm.nodes.values())
    numbers = {number for number, _, _ in slurm.queue()}
    assert {s["lease"] for s in slurm.sessions()} == numbers
    for node in slurm.nodes.values():
        assert [s["limit_bytes"] for s in node.card.sessions()] == 3 * [50 * MIB]
        listed = node.card.tandem("ps")
        assert all(f"job-{lease['job']}" in listed for lease in node.leases())
    go.touch()
    assert [finish(process) for process in jobs] == [expected] * 9


def test_an_array_of_jobs_with_several_tasks(slurm):
    job = train("12M", 5)
    expected = alone(slurm, job)
    number = slurm.sbatch(f"srun --ntasks=2 {' '.join(job)}", "--array=0-5", "--ntasks=2", "--gpu-mem=50M",
                          f"--output={slurm.root}/array-%a.out")  # fmt: skip
    wait_until(lambda: not slurm.queue(), slurm.slurmctld, f"array {number} has ended")
    for index in range(6):
        lines = (slurm.root / f"array-{index}.out").read_text().splitlines()
        assert sorted(lines) == sorted(2 * expected.splitlines())


def test_a_job_takes_whole_nodes_and_its_limit_is_for_all_of_its_tasks(slurm):
    said = slurm.srun("-N3", "-l", "--gpu-mem=30M:50M", TRAIN, "--memory", "36M", "--steps", "2")
    assert len(re.findall(r"^\d: checksum", finish(said), re.M)) == 3
    both = slurm.srun("-n2", "-N1", "--gpu-mem=30M:50M", TRAIN, "--memory", "36M", "--steps", "200")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in both.communicate(timeout=300)[1]


def test_a_suspended_job_has_left_the_gpu_before_it_is_stopped(slurm, tmp_path):
    node, go = slurm.nodes["n2"], tmp_path / "go"
    job = train("40M", 10)
    expected = alone(slurm, job)
    process = slurm.srun("-w", "n2", "--gpu-mem=50M", *job, "--hold", go)
    resident = lambda: sum(session["resident_bytes"] for session in node.card.sessions())  # noqa: E731
    wait_until(lambda: resident() > 20 * MIB, process, "its memory is there")
    number = slurm.suspend(process, node)
    assert resident() == 0
    assert finish(slurm.srun("-w", "n2", "--gpu-mem=50M", *job)) == expected  # has the GPU for itself
    slurm.command("scontrol", "resume", number)
    go.touch()
    assert finish(process) == expected


def test_a_cancelled_job_leaves_nothing(slurm):
    jobs = [slurm.srun("-w", "n1", "--gpu-mem=50M", *train("40M", 100000)) for _ in range(2)]
    node = slurm.nodes["n1"]
    wait_until(lambda: len(node.card.sessions()) == 2, jobs[0], "both are on the GPU")
    slurm.command("scancel", *[number for number, _, _ in slurm.queue()])
    for process in jobs:
        process.communicate(timeout=300)
        assert process.returncode != 0
    wait_until(lambda: node.card.sessions() == [] and node.leases() == [], node.slurmd, "nothing is left")
    kept = node.card.runtime / "slurm"
    wait_until(lambda: list(kept.glob("*")) == [], node.slurmd, "the epilog has ended")


def test_jobs_outlive_the_controller_and_the_nodes_daemons(slurm, tmp_path):
    """slurmctld and slurmd are restarted, tandemd is killed; the node is drained and resumed."""
    node, go = slurm.nodes["n3"], tmp_path / "go"
    job = train("30M", 10)
    expected = alone(slurm, job)
    out = tmp_path / "out"
    slurm.sbatch(" ".join([*job, "--hold", str(go)]), "-w", "n3", "--gpu-mem=40M", f"--output={out}")
    wait_until(lambda: len(node.card.sessions()) == 1, node.slurmd, "it is on the GPU")
    lease = node.leases()[0]["token"]
    slurm.command("scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    slurm.restart_controller()
    node.stop()
    node.start()
    node.kill_daemon()
    node.start_daemon()
    wait_until(lambda: len(node.card.sessions()) == 1, node.card.daemon, "its session comes back")
    assert node.leases()[0]["token"] == lease
    go.touch()
    wait_until(lambda: not slurm.queue(), slurm.slurmctld, "it has ended")
    assert expected in out.read_text()
    slurm.command("scontrol", "update", "nodename=n3", "state=resume")
    wait_until(lambda: node.leases() == [], node.slurmd, "its lease has ended")


def test_a_job_that_ends_without_the_daemon_keeps_no_lease(slurm, tmp_path):
    node = slurm.nodes["n1"]
    process, go = waiting(slurm, tmp_path, "-w", "n1", "--gpu-mem=10M")
    number = node.leases()[0]["job"]
    node.kill_daemon()
    go.touch()
    finish(process)
    wait_until(lambda: not slurm.queue(), slurm.slurmctld, "it has ended")
    wait_until((node.card.runtime / "slurm" / f"ended-{number}").exists, node.slurmd, "its end is kept")
    node.start_daemon()
    assert [lease["job"] for lease in node.leases()] == [number]
    finish(slurm.srun("-w", "n1", "--gpu-mem=10M", "true"))  # the next job ends it
    wait_until(lambda: node.leases() == [], node.slurmd, "no lease is left")


def test_two_hundred_short_jobs(slurm):
    job = train("4M", 1)
    expected = alone(slurm, job)
    slurm.sbatch(f"{' '.join(job)}", "--array=0-199", "--gpu-mem=20M", f"--output={slurm.root}/short-%a.out")
    wait_until(lambda: not slurm.queue(), slurm.slurmctld, "all have ended")
    wrong = [i for i in range(200) if (slurm.root / f"short-{i}.out").read_text() != expected]
    assert wrong == []


def test_the_class_and_the_share_are_the_jobs_its_accounts_or_its_partitions(slurm, tmp_path):
    flags = ["-w", "n1", "--gpu-mem=10M"]
    main, go = waiting(slurm, tmp_path, *flags, "-p", "main", "--gpu-class=production", "--gpu-share=0.5")
    (tmp_path / "runs").unlink()
    background, _ = waiting(slurm, tmp_path, *flags, "-p", "background")
    (tmp_path / "runs").unlink()
    account, _ = waiting(slurm, tmp_path, *flags, "-p", "background", "-A", "lab")
    node = slurm.nodes["n1"]
    assert sorted((lease["class"], lease["compute_share"]) for lease in node.leases()) == [
        ("batch", ""), ("opportunistic", "3"), ("production", "0.5")]  # fmt: skip
    go.touch()
    finish(main), finish(background), finish(account)


# ---- errors

WRONG_TOKEN = ("tandem: the lease that TANDEM_RUN names has ended, or is another user's; "
               "device 0 is out of memory for this program")  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu-mem=20"], "--gpu-mem=20: give a size such as 20G, or 20G:40G for a limit above it"),
        (["--gpu-mem=20M:10M"], "the limit is below the size"),
        (["--gpu-mem=10M", "--gpu-class=fast"], '"fast" is no class of work: there are production, interactive'),
        (["--gpu-mem=10M", "--gpu-share=0"], '"0" is no share: give a weight from 0.001 to 1000, such as 2, or a part of the time'),
        (["--gpu-mem=55M"], "--gpu-mem=55M exceeds the largest GPU: ask for 54M at most"),
        (["--gpu-mem=10M", "--gres=gpu:1"], "a job has --gpu-mem or whole GPUs (--gres, --gpus), not both"),
        (["--gpu-mem=10M", "--gpu-share=2"], "--gpu-share=2 is above 1, the most on this cluster"),
        (["--gpu-mem=10M", "-p", "background", "--gpu-class=production"], "the class production is not for this user"),
        (["--gpu-class=batch"], "--gpu-class and --gpu-share need --gpu-mem"),
    ],
)
@pytest.mark.parametrize("command", ["srun", "sbatch"])
def test_bad_options_are_refused_at_submit(slurm, command, words, said):
    job = ["--wrap", "true"] if command == "sbatch" else ["true"]
    assert said in refused(slurm.spawn(command, *words, *job))
    assert slurm.queue() == []


def test_salloc_refuses_a_bad_size(slurm):
    assert "--gpu-mem=20: give a size such as 20G" in refused(slurm.spawn("salloc", "--gpu-mem=20", "true"))
    assert "exceeds the largest GPU" in refused(slurm.spawn("salloc", "--gpu-mem=55M", "true"))
    assert slurm.queue() == []


def test_help_tells_the_options(slurm):
    for command in ("srun", "sbatch", "salloc"):
        text = slurm.command(command, "--help")[1]
        assert "--gpu-mem=SIZE[:LIMIT]" in text and "--gpu-class=CLASS" in text and "--gpu-share=SHARE" in text


def test_a_node_whose_daemon_is_down_says_so(slurm):
    node = slurm.nodes["n2"]
    node.kill_daemon()
    said = refused(slurm.srun("-w", "n2", "--gpu-mem=10M", "true"))
    assert "tandem: n2: " in said and "no daemon" in said, said
    node.start_daemon()
    finish(slurm.srun("-w", "n2", "--gpu-mem=10M", "true"))


def test_a_limit_above_the_gpu_is_refused(slurm):
    assert "tandem: n1: " in (said := refused(slurm.srun("-w", "n1", "--gpu-mem=10M:1G", "true")))
    assert "1 GiB" in said and "54 MiB" in said


def test_a_step_cannot_have_what_its_job_has_not(slurm):
    out = slurm.command("salloc", "-w", "n1", "srun", "--gpu-mem=10M", "true", check=False)
    assert out[0] != 0
    assert "the job was submitted without --gpu-mem. Give it to salloc or sbatch" in out[2]


def test_a_step_cannot_enlarge_what_its_job_has(slurm):
    limit = f"{TANDEM} lease list --json | grep -o 'memory_limit_bytes\":[0-9]*'"
    out = slurm.command("salloc", "-w", "n1", "--gpu-mem=10M", "srun", "--gpu-mem=50M", "bash", "-c", limit)[1]
    assert out == f'memory_limit_bytes":{10 * MIB}\n'


def test_a_made_up_token_is_refused(slurm):
    """It has the form of a lease's token."""
    process = slurm.srun("-w", "n1", "--gpu-mem=10M", "env", f"TANDEM_RUN={2**52 + 1}", *train("8M", 1))
    assert refused(process) == WRONG_TOKEN


needs_users = pytest.mark.skipif(not users.can_be_others(), reason="needs root, and other users")


@needs_users
def test_a_job_runs_as_its_user(slurm):
    job = train("12M", 3)
    expected = alone(slurm, job)
    process = slurm.srun("-w", "n1", "--chdir=/", "--gpu-mem=30M", "bash", "-c", f"id -u; {slurm.train} {' '.join(job[1:])}",
                         preexec_fn=lambda: users.become(NOBODY.pw_uid))  # fmt: skip
    assert finish(process) == f"{NOBODY.pw_uid}\n{expected}"


@needs_users
def test_another_users_token_is_refused(slurm, tmp_path):
    process, go = waiting(slurm, tmp_path, "-w", "n1", "--gpu-mem=50M")
    node = slurm.nodes["n1"]
    lease = node.leases()[0]
    lines = node.card.tandem("lease", "environment", "--job", lease["job"]).splitlines()
    env = {**node.card.env, **dict(line.split("=", 1) for line in lines)}
    steal = [slurm.train, "--memory", "8M", "--steps", "1"]
    stolen = node.card.spawn(steal, env=env, preexec_fn=lambda: users.become(users.STRANGER))
    assert refused(stolen) == WRONG_TOKEN
    go.touch()
    finish(process)


def test_without_job_submit_lua_the_job_says_what_is_missing():
    cluster = Slurm(nodes=("n1",), lua=False)
    try:
        cluster.start()
        assert "Slurm gave the job no GPU. The administrator adds tandem.lua" in refused(
            cluster.srun("--gpu-mem=10M", "true"))  # fmt: skip
        cluster.settle()  # the node is not drained for it
    finally:
        cluster.close()
