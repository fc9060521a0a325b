"""Slurm's health check ends the leases of jobs whose epilog never ran, and no others."""

import contextlib
import os
import shlex
import subprocess

import pytest

from harness import BUILD, SOURCE, wait_until
from slurm_cluster import Slurm

HEALTH = SOURCE / "integrations" / "slurm" / "tandem-health"


class SlurmWithHealthChecks(Slurm):
    def start(self):
        """slurmd gives the program no environment of its own; here it says where Slurm and the daemon are."""
        card = self.nodes["n1"].card.env
        variables = [f"{name}={shlex.quote(value)}" for name, value in card.items() if name.startswith("TANDEM_")]
        self.health = self.root / "health"
        variables += [f"SLURM_CONF={self.env['SLURM_CONF']}", f"PATH={BUILD}/bin:$PATH"]
        self.write("health", f"#!/bin/sh\nexport {' '.join(variables)}\nexec {HEALTH}\n")
        self.health.chmod(0o755)
        conf = (self.root / "slurm.conf").read_text()
        self.write("slurm.conf", f"{conf}HealthCheckProgram={self.health}\nHealthCheckInterval=1\n")
        super().start()

    def check_health(self):
        """As slurmd does it."""
        environment = {**self.env, "SLURMD_NODENAME": "n1"}
        return subprocess.run([self.health], env=environment, timeout=100, check=False).returncode


@pytest.fixture(scope="module")
def slurm():
    with contextlib.closing(SlurmWithHealthChecks(nodes=("n1",))) as cluster:
        cluster.start()
        yield cluster


def create_lease(node, job):
    node.card.tandem("lease", "create", "--job", job, "--user", str(os.getuid()), "--gpu", "0", "--memory-limit", "1M")


def jobs_with_leases(node):
    return {lease["job"] for lease in node.leases()}


def test_the_lease_of_a_job_that_slurm_gave_up_is_ended(slurm):
    """The node is away when the job ends, and slurmctld, restarted, no longer tells it of that."""
    node = slurm.nodes["n1"]
    slurm.command("salloc", "--no-shell", "--gpu-mem=10M")  # a job without processes
    node.stop()
    slurm.command("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    wait_until(lambda: slurm.queue() == [], slurm.slurmctld, "Slurm gives the job up")
    slurm.restart_controller()
    assert len(node.leases()) == 1
    node.start()
    wait_until(lambda: node.leases() == [], node.slurmd, "the lease has ended")


def test_other_leases_stay(slurm):
    """Of a job that runs, of one that is suspended, and of those that Slurm did not make."""
    node = slurm.nodes["n1"]
    running, suspended = jobs = [slurm.sbatch("sleep 600", "--gpu-mem=10M", "-o/dev/null") for _ in range(2)]
    wait_until(lambda: jobs_with_leases(node) == set(jobs), node.slurmd, "both have leases")
    slurm.command("scontrol", "suspend", suspended)
    create_lease(node, "100000")
    create_lease(node, "100001")
    kept = node.card.runtime / "slurm" / "job-100001"  # as if Slurm had made it
    kept.touch()
    wait_until(lambda: not kept.exists(), node.slurmd, "its lease has ended")
    assert jobs_with_leases(node) == {running, suspended, "100000"}
    assert dict((number, state) for number, state, _ in slurm.queue()) == {running: "RUNNING", suspended: "SUSPENDED"}
    node.card.tandem("lease", "end", "--job", "100000")


def test_nothing_changes_where_an_answer_is_missing(slurm):
    node = slurm.nodes["n1"]
    create_lease(node, "100002")
    kept = node.card.runtime / "slurm" / "job-100002"
    try:
        slurm.stop_controller()
        kept.touch()
        assert slurm.check_health() == 0
        assert kept.exists() and jobs_with_leases(node) == {"100002"}
        node.kill_daemon()
        slurm.start_controller()
        wait_until(lambda: slurm.states() == {"idle"}, slurm.slurmctld, "the node is back")
        assert slurm.check_health() == 0
        assert kept.exists()
    finally:
        node.start_daemon()
    wait_until(lambda: not kept.exists() and node.leases() == [], node.slurmd, "the lease has ended")
