"""Notebooks as jobs of Slurm: `tandem notebook submit --where slurm:PARTITION,gpu-mem=8G`."""

import json
import os
import re
import signal
import sys

import pytest

from harness import SOURCE, TANDEM, wait_until

sys.path[:0] = [str(SOURCE / "tests" / "notebook"), str(SOURCE / "python")]
pytest.importorskip("nbclient")
from nbformat.v4 import new_raw_cell  # noqa: E402
from run_fixtures import BLOCK, DEAF, PATIENCE_S, desk  # noqa: E402

__all__ = ["desk"]
# A cell that blocks the first time only.
BLOCK_ONCE = f"import os\nif not os.path.exists('begun'):\n    {BLOCK.replace(chr(10), chr(10) + '    ')}\nprint('two')"


class Submits:
    """A desk whose notebooks become jobs of the cluster."""

    def __init__(self, desk, slurm):
        self.desk, self.slurm = desk, slurm
        for name in [name for name in desk.env if name.startswith(("SLURM", "SBATCH"))]:
            del desk.env[name]
        card = slurm.nodes["n2"].card.env  # for `tandem ps`, which would start a daemon; jobs have their own
        desk.env.update({name: value for name, value in card.items() if name.startswith("TANDEM_")})
        desk.env.update(SLURM_CONF=slurm.env["SLURM_CONF"], TANDEM_COMMAND=str(TANDEM))

    def __call__(self, *words, where="slurm:main", cells=(), name="a.ipynb"):
        """Submits a notebook of these cells; the number of the job."""
        if cells:
            self.desk.notebook(name, *cells)
        return int(self.desk.tandem("notebook", "submit", "--where", where, *words, name)[0])

    def refused(self, *words, where="slurm:main", name="a.ipynb"):
        """Submits what is refused; the one line that is said. Nothing is left."""
        out, err = self.desk.tandem("notebook", "submit", "--where", where, *words, name, expect=2)
        assert out == "" and err.count("\n") == 1 and err.startswith("tandem: ")
        assert self.slurm.queue() == [] and not list(self.desk.records.glob("*"))
        assert not self.desk.path("a.out.ipynb").exists()
        return err

    def ended(self, number):
        """The record of a job, when it has ended."""
        self.desk.start("wait", number).communicate(timeout=PATIENCE_S)
        return self.desk.jobs()[number]


@pytest.fixture
def submit(slurm, desk):
    return Submits(desk, slurm)


def field(slurm, job, name):
    """A field of what `scontrol show job` says."""
    return re.search(rf"\b{name}=(\S*)", slurm.command("scontrol", "--oneliner", "show", "job", job)[1])[1]


def until_state(slurm, record, state):
    """Waits until Slurm's job of a record is in this state of Slurm."""
    job = record["slurm_job"]
    wait_until(lambda: field(slurm, job, "JobState") == state, slurm.slurmctld, f"job {job} is {state}")


def test_a_notebook_runs_under_its_lease_and_leaves_its_outputs(slurm, desk, submit):
    train = [str(slurm.train), "--steps", "2", "--memory"]
    runs = f"subprocess.run({train} + [size], capture_output=True, text=True)"
    cells = [
        new_raw_cell("# for Slurm\n#SBATCH --nodelist=n2\n#SBATCH --partition=background"),
        f"import os, subprocess\nfor size in ('12M', '36M'):\n    ran = {runs}\n    print(ran.stdout, ran.stderr)",
        BLOCK_ONCE,
    ]
    number = submit("-p", "x=1", where="slurm:main,gpu-mem=30M", cells=cells)
    desk.until("begun")
    record = desk.jobs()[number]
    job = record["slurm_job"]
    assert (record["state"], record["slurm_state"], record["cell"]) == ("running", "RUNNING n2", 3)
    assert record["sbatch"] == ["#SBATCH --nodelist=n2", "#SBATCH --partition=background"]
    (lease,) = slurm.nodes["n2"].leases()
    assert (lease["job"], lease["memory_limit_bytes"]) == (job, 30 << 20)
    assert field(slurm, job, "Partition") == "main"  # the command line wins
    assert field(slurm, job, "JobName") == "a"
    table = desk.tandem("jobs")[0].splitlines()
    assert table[0].split()[-1] == "SLURM" and table[1].endswith(f"  {job} RUNNING n2")
    assert desk.load("a.out.ipynb").metadata.tandem.state == "running"
    printed = desk.outputs("a.out.ipynb")[1]
    assert printed.count("checksum") == 1 and "CUDA_ERROR_OUT_OF_MEMORY" in printed

    assert "job 1: cancelled" in desk.tandem("cancel", number)[1]
    record = desk.jobs()[number]
    assert (record["state"], record["slurm_state"], record["finished"]) == ("cancelled", None, 2)
    number = int(desk.tandem("notebook", "submit", "--resume", number)[0])  # at the same place
    assert desk.tandem("wait", number) == ("", "")
    assert desk.outputs("a.out.ipynb")[2] == "two\n"
    record = desk.jobs()[number]
    assert (record["state"], record["exit_status"], record["finished"]) == ("done", 0, 3)
    until_state(slurm, record, "COMPLETED")
    assert f"tandem: done; saved in {desk.path('a.out.ipynb')}" in desk.tandem("logs", "-f", number)[0]
    listed = desk.tandem("jobs")[0].splitlines()[-1]
    assert listed.split()[2:4] == ["done", "3/3"] and listed.endswith(f"  {record['slurm_job']}")


def test_a_failed_cell_fails_the_job(slurm, desk, submit):
    number = submit("--unshared", cells=["print('one')", "1/0", "print('three')"])
    assert "failed: cell 2 of 3 failed: ZeroDivisionError" in desk.tandem("wait", number, expect=1)[1]
    record = desk.jobs()[number]
    assert (record["state"], record["exit_status"]) == ("failed", 1)
    assert desk.outputs("a.out.ipynb") == ["one\n", "", ""]
    assert "ZeroDivisionError" in desk.tandem("logs", number)[0]
    until_state(slurm, record, "FAILED")


def test_what_slurm_refuses_is_said_and_leaves_nothing(desk, submit):
    desk.notebook("a.ipynb", "1")
    assert "exceeds the largest GPU" in submit.refused(where="slurm:main,gpu-mem=1T")
    assert "sbatch refused the job: invalid partition" in submit.refused(where="slurm:nowhere")
    desk.notebook("a.ipynb", "#SBATCH --no-such-option=1")
    assert "unrecognized option '--no-such-option=1'" in submit.refused()
    desk.notebook("a.ipynb", "#SBATCH --time=soon")
    assert "Invalid --time specification" in submit.refused()


def test_a_job_in_the_queue_is_shown_and_cancelled(slurm, desk, submit):
    number = submit("--unshared", where="slurm,begin=now+1hour", cells=["1"])
    record = desk.jobs()[number]
    assert (record["state"], record["slurm_state"]) == ("queued", "PENDING (BeginTime)")
    assert f"{record['slurm_job']} PENDING (BeginTime)" in desk.tandem("jobs")[0]
    assert desk.tandem("wait", "--timeout", "0.1", number, expect=124) == ("", "")
    again = desk.tandem("notebook", "submit", "--where", "slurm", "a.ipynb", expect=2)[1]
    assert f"job {number} saves into" in again
    assert f"job {number}: cancelled" in desk.tandem("cancel", number)[1]
    assert slurm.queue() == []
    record = desk.jobs()[number]
    assert (record["state"], record["error"]) == ("cancelled", "cancelled before its first cell")
    assert not desk.path("a.out.ipynb").exists()


def test_cancel_ends_a_cell_that_ignores_it(slurm, desk, submit):
    number = submit("--unshared", cells=["print('one')", f"print('partly', flush=True)\n{DEAF}"])
    desk.until("begun")
    desk.tandem("cancel", "--grace", "0.5", number)
    assert desk.jobs()[number]["state"] == "cancelled"
    assert desk.outputs("a.out.ipynb") == ["one\n", "partly\n"]
    wait_until(lambda: slurm.queue() == [], slurm.slurmctld, "its job has ended")


def test_a_job_that_scancel_ends_is_cancelled(slurm, desk, submit):
    number = submit("--unshared", cells=["print('one')", BLOCK])
    desk.until("begun")
    slurm.command("scancel", desk.jobs()[number]["slurm_job"])
    record = submit.ended(number)
    assert (record["state"], record["exit_status"]) == ("cancelled", 143)
    assert "stopped by SIGTERM with 1 of 2 cells finished" in record["error"]
    assert desk.outputs("a.out.ipynb") == ["one\n", ""]


def test_a_killed_job_is_lost(slurm, desk, submit):
    number = submit("--unshared", cells=["print('one')", BLOCK])
    desk.until("begun")
    os.kill(desk.jobs()[number]["pid"], signal.SIGKILL)
    assert f"submit --resume {number}` goes on" in desk.tandem("wait", number, expect=1)[1]
    assert desk.jobs()[number]["state"] == "lost"
    assert desk.outputs("a.out.ipynb") == ["one\n", ""]


def test_a_job_that_gets_no_gpu_has_failed_and_its_log_says_why(slurm, desk, submit):
    slurm.nodes["n1"].kill_daemon()
    number = submit(where="slurm:main,gpu-mem=30M,nodelist=n1", cells=["1"])
    assert f"job {number}: failed: it did not start; `tandem logs {number}`" in desk.tandem("wait", number, expect=1)[1]
    assert "n1: no daemon runs" in desk.tandem("logs", number)[0]


def test_a_job_that_slurm_starts_again_goes_on(slurm, desk, submit):
    cells = ["#SBATCH --requeue\nprint('one')", BLOCK_ONCE]
    number = submit("--unshared", "--in-place", cells=cells)
    desk.until("begun")
    job = desk.jobs()[number]["slurm_job"]
    slurm.command("scontrol", "requeue", job)
    until_state(slurm, desk.jobs()[number], "PENDING")
    record = desk.jobs()[number]
    assert (record["state"], record["finished"], record["ended"]) == ("queued", 1, None)
    slurm.command("scontrol", "update", f"jobid={job}", "StartTime=now")
    record = submit.ended(number)
    assert (record["state"], record["error"]) == ("done", None)
    assert desk.outputs("a.ipynb") == ["one\n", "two\n"]
    assert "resuming at cell 2 of 2" in desk.tandem("logs", number)[0]


def test_the_json_of_submit_names_slurms_job_and_slurm_need_not_give_the_environment(desk, submit):
    desk.notebook("a.ipynb", "#SBATCH --export=NONE\n#SBATCH --output=x.txt\nimport os\nprint(os.environ.get('GIVEN'))")
    desk.env["GIVEN"] = "yes"
    out, err = desk.tandem("notebook", "submit", "--unshared", "--json", "--where", "slurm", "a.ipynb")
    record = json.loads(out)
    assert record["slurm_job"].isdigit() and '"#SBATCH --output=x.txt" has no effect' in err
    assert desk.tandem("wait", record["job"]) == ("", "")
    assert desk.outputs("a.out.ipynb") == ["None\n"]
