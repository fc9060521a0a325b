"""Cells of a notebook that run as jobs of Slurm: `%%gpu --where slurm:PARTITION,gpu-mem=8G`."""

import _thread
import os
import signal
import sys
import threading

import pytest

from harness import SOURCE, wait_until

sys.path[:0] = [str(SOURCE / "tests" / "notebook"), str(SOURCE / "python")]
pytest.importorskip("IPython")
np = pytest.importorskip("numpy")
from remote_fixtures import RemoteShell  # noqa: E402
from tandem.ipython.magics import place_of  # noqa: E402
from tandem.remote.errors import WorkerLost, WorkerStartFailed  # noqa: E402
from tandem.remote.session import session  # noqa: E402


@pytest.fixture
def on_slurm(slurm, monkeypatch):
    """Opens notebooks whose cells run on the cluster: on_slurm("gpu-mem=30M")."""
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    opened = []

    def open_one(*words):
        opened.append(RemoteShell("slurm:" + ",".join(["main", *words])))
        return opened[-1]

    yield open_one
    for shell in opened:
        shell.close()


def test_a_cell_runs_on_a_node_with_its_share_of_the_gpu(slurm, on_slurm, capsys):
    notebook = on_slurm("gpu-mem=30M", "nodelist=n2")
    notebook.local("import numpy as np\na = np.arange(500_000.0); l = [a]")
    notebook.ok(
        f"""
import os, subprocess
a += 1
l.append(a[:3])
job, node = os.environ["SLURM_JOB_ID"], os.environ["SLURMD_NODENAME"]
trained = subprocess.run([{str(slurm.train)!r}, "--memory", "12M", "--steps", "3"], capture_output=True, text=True)
print("there")
"""
    )
    a = notebook.space["l"][0]
    assert a is notebook.space["a"] and a[0] == 1 and np.shares_memory(notebook.space["l"][1], a)
    assert "there" in capsys.readouterr().out
    assert notebook.space["node"] == "n2" and "checksum" in notebook.space["trained"].stdout
    assert [lease["job"] for lease in slurm.nodes["n2"].leases()] == [notebook.space["job"]]
    notebook.close()
    wait_until(lambda: slurm.queue() == [], slurm.slurmctld, "its job has ended")


def test_a_cancelled_job_is_a_lost_worker_and_the_next_cell_starts_another(slurm, on_slurm, tmp_path):
    notebook = on_slurm("gpu-mem=30M")
    notebook.local("l = [1]")
    notebook.ok("l.append(2)\nimport os\njob = os.environ['SLURM_JOB_ID']")
    cancel = lambda: slurm.command("scancel", notebook.space["job"])
    error = notebook.run_and_act("l.append(3)", tmp_path / "begun", cancel).error_before_exec
    assert isinstance(error, WorkerLost) and notebook.space["l"] == [1, 2]
    notebook.ok("l.append(4)")
    assert notebook.space["l"] == [1, 2, 4]


def test_a_killed_srun_leaves_no_job(slurm, on_slurm):
    notebook = on_slurm("gpu-mem=30M")
    notebook.ok("x = 1")
    os.kill(session(notebook.shell, notebook.where).link._manager.provisioner.pid, signal.SIGKILL)
    # The cell runs over its own connection, unless the end of srun is seen before that of the cell.
    error = notebook.run("x += 1").error_before_exec
    assert (error is None and notebook.space["x"] == 2) or isinstance(error, WorkerLost)
    notebook.close()
    wait_until(lambda: slurm.queue() == [], slurm.slurmctld, "its job has ended")


def test_the_job_ends_with_the_notebook(slurm, on_slurm):
    notebook = on_slurm("gpu-mem=30M")
    notebook.ok("x = 1")
    session(notebook.shell, notebook.where).link._manager.provisioner.process.stdin.close()  # as its end does
    wait_until(lambda: slurm.queue() == [], slurm.slurmctld, "its job has ended")


def test_an_interrupt_takes_a_waiting_cell_out_of_the_queue(slurm, on_slurm, capsys):
    for _ in range(2):  # they have the node's shards
        slurm.srun("-w", "n1", "--gpu-mem=54M", "sleep", "1000")
    wait_until(lambda: [state for _, state, _ in slurm.queue()] == ["RUNNING"] * 2, slurm.slurmctld, "others have the node")
    notebook = on_slurm("gpu-mem=30M", "nodelist=n1")

    def interrupt():
        wait_until(lambda: len(slurm.queue()) == 3, slurm.slurmctld, "the cell's job is in the queue")
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        result = notebook.run("x = 1")
        raise result.error_before_exec or result.error_in_exec
    assert "queued and waiting for resources" in capsys.readouterr().err
    wait_until(lambda: len(slurm.queue()) == 2, slurm.slurmctld, "its job is gone")


def test_what_slurm_refuses_is_the_cells_error(on_slurm):
    error = on_slurm("gpu-mem=1T").run("x = 1").error_before_exec
    assert isinstance(error, WorkerStartFailed)
    assert "tandem: --gpu-mem=1T exceeds the largest GPU" in str(error)
    error = on_slurm("-x").run("x = 1").error_before_exec
    assert '"-x" is neither a partition nor an option such as' in str(error)


def test_a_place_is_slurms_by_its_prefix():
    assert place_of("slurm:main,gpu-mem=8G") == "slurm:main,gpu-mem=8G"
    assert place_of("server") == "ssh://server"
