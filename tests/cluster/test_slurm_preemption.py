"""A job of a partition that goes first has Slurm stop, or start anew, one of a partition that goes last."""

import contextlib

import pytest

from harness import MIB, finish, train, wait_until
from slurm_cluster import Slurm

WHOLE_NODE = ("-c32", "--gpu-mem=50M")  # of all cores, only one such job runs


class SlurmThatPreempts(Slurm):
    def start(self):
        self.change_conf({"Default=YES": "Default=YES PriorityTier=2"},
                         "PartitionName=again Nodes=ALL PreemptMode=REQUEUE\n"
                         "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n")  # fmt: skip
        super().start()


@pytest.fixture(scope="module")
def slurm():
    with contextlib.closing(SlurmThatPreempts(nodes=("n1",))) as cluster:
        cluster.start()
        yield cluster


def states(slurm):
    return {number: state for number, state, _ in slurm.queue()}


def resident(node):
    return sum(session["resident_bytes"] for session in node.card.sessions())


def test_a_preempted_job_leaves_the_gpu_and_goes_on_after_the_other(slurm, tmp_path):
    node, go = slurm.nodes["n1"], tmp_path / "go"
    job = train("40M", 10)
    expected = finish(node.card.bare(job))
    low = slurm.srun("-p", "background", *WHOLE_NODE, *job, "--hold", go)
    wait_until(lambda: resident(node) > 20 * MIB, low, "its memory is there")
    number = slurm.job_of(low)
    first = []

    def preempt():
        first[:] = [slurm.srun("-p", "main", *WHOLE_NODE, *job, "--hold", go)]

    def cancel():
        slurm.command("scancel", "-p", "main")
        first[0].wait()

    slurm.stop_off_gpu(low, node, preempt, cancel)
    assert states(slurm)[number] == "SUSPENDED"
    wait_until(lambda: resident(node) > 20 * MIB, first[0], "the other has the GPU")
    go.touch()
    assert finish(first[0]) == expected
    assert finish(low) == expected


def test_a_job_that_starts_anew_has_a_lease_of_its_own(slurm, tmp_path):
    node, go, out = slurm.nodes["n1"], tmp_path / "go", tmp_path / "out"
    job = train("40M", 10)
    expected = finish(node.card.bare(job))
    number = slurm.sbatch(" ".join([*job, "--hold", str(go)]), "-p", "again", *WHOLE_NODE, f"--output={out}")
    wait_until(lambda: resident(node) > 20 * MIB, node.slurmd, "its memory is there")
    (before,) = node.leases()
    assert finish(slurm.srun("-p", "main", *WHOLE_NODE, *job)) == expected
    wait_until(lambda: states(slurm) == {number: "PENDING"} and node.leases() == [], node.slurmd, "it waits, without a lease")
    # Slurm itself waits two minutes. Within two seconds slurmd 22.05 takes the job for one that runs: no prolog.
    slurm.command("scontrol", "update", f"jobid={number}", "starttime=now+3")
    wait_until(lambda: resident(node) > 20 * MIB, node.slurmd, "it has started again")
    (after,) = node.leases()
    assert after["job"] == before["job"] == number and after["token"] != before["token"]
    go.touch()
    wait_until(lambda: not slurm.queue(), slurm.slurmctld, "it has ended")
    assert out.read_text().endswith(expected)
