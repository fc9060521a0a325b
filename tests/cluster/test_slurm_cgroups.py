"""Slurm as most sites run it: jobs in cgroups of their own, which open no device that is not theirs."""

import contextlib
import os
from pathlib import Path

import pytest

from harness import finish, train, wait_until
from slurm_cluster import Slurm

FREEZER, _ = CONTROLLERS = [Path("/sys/fs/cgroup") / name for name in ("freezer", "devices")]
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not all(os.access(folder / "cgroup.procs", os.W_OK) for folder in CONTROLLERS),
                       reason="needs cgroups of version 1, which Slurm 22.05 uses here"),
]  # fmt: skip


class SlurmWithCgroups(Slurm):
    def start(self):
        self.change_conf({"proctrack/linuxproc": "proctrack/cgroup", "task/none": "task/cgroup",
                          "PrologFlags=Alloc": "PrologFlags=Contain"})  # fmt: skip
        self.add_plugin_words("cgroup=/slurm_%n/uid_%u/job_%j")
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainDevices=yes\n")
        super().start()

    def is_stopped(self, pid):
        cgroups = dict(line.split(":")[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
        return (FREEZER / cgroups["freezer"][1:] / "freezer.state").read_text() == "FROZEN\n"

    def close(self):
        super().close()
        for folder in (folder for parent in CONTROLLERS for folder in parent.glob("slurm_n1")):
            for path, _, _ in os.walk(folder, topdown=False):
                os.rmdir(path)


@pytest.fixture(scope="module")
def slurm():
    with contextlib.closing(SlurmWithCgroups(nodes=("n1",))) as cluster:
        cluster.start()
        yield cluster


def test_jobs_that_overflow_the_gpu_end_right(slurm):
    node = slurm.nodes["n1"]
    job = train("40M", 10)
    expected = finish(node.card.bare(job))
    where = finish(slurm.srun("--gpu-mem=1M", "cat", "/proc/self/cgroup"))
    assert ":freezer:/slurm_n1/" in where and ":devices:/slurm_n1/" in where
    go = slurm.root / "go"
    both = [slurm.srun("--gpu-mem=50M", *job, "--hold", go) for _ in range(2)]
    wait_until(lambda: len(node.card.sessions()) == 2, both[0], "both are on the GPU")
    go.touch()
    assert [finish(process) for process in both] == [expected, expected]


def test_a_suspended_job_leaves_the_gpu_and_comes_back(slurm):
    node = slurm.nodes["n1"]
    job = slurm.srun("--gpu-mem=50M", *train("40M", 100000))
    resident = lambda: [s["resident_bytes"] for s in node.card.sessions()]
    wait_until(lambda: sum(resident()) > 0, job, "it is on the GPU")
    number = slurm.suspend(job, node)
    slurm.command("scontrol", "resume", number)
    wait_until(lambda: sum(resident()) > 0, job, "it is back")
    slurm.command("scancel", number)
    job.wait(timeout=60)
    wait_until(lambda: node.leases() == [] and node.card.sessions() == [], node.slurmd, "nothing is left of it")


def test_only_processes_in_the_jobs_cgroup_use_its_lease(slurm, tmp_path):
    node, go = slurm.nodes["n1"], tmp_path / "go"
    job = slurm.srun("--gpu-mem=20M", *train("8M", 1), "--hold", go)
    wait_until(lambda: len(node.card.sessions()) == 1, job, "it is on the GPU")
    (lease,) = node.leases()
    assert lease["cgroup"] == f"/slurm_n1/uid_0/job_{lease['job']}"
    lines = node.card.tandem("lease", "environment", "--job", lease["job"]).splitlines()
    env = {**node.card.env, **dict(line.split("=", 1) for line in lines)}
    other = node.card.spawn(train("8M", 1), env=env)
    _, err = other.communicate(timeout=60)
    assert other.returncode != 0 and f"is not one of job {lease['job']}: it is outside of the job's cgroup" in err, err
    go.touch()
    finish(job)


def test_a_jobs_cgroup_is_there_between_its_steps(slurm):
    """The daemon ends a lease whose cgroup is gone."""
    steps = f"srun true; test -d {FREEZER}/slurm_n1/uid_0/job_$SLURM_JOB_ID && srun {' '.join(train('8M', 1))}"
    assert "checksum" in slurm.command("salloc", "--gpu-mem=20M", "bash", "-c", steps)[1]


def test_only_a_job_with_shards_opens_the_gpus_device(slurm):
    """Of the one node, /dev/full stands for the GPU."""
    assert finish(slurm.srun("--gpu-mem=10M", "head", "-c1", "/dev/full")) == "\0"
    code, _, err = slurm.command("srun", "head", "-c1", "/dev/full", check=False)
    assert code != 0 and "Operation not permitted" in err
