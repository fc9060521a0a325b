"""`tandem jupyter`: the kernel specification, how it starts kernels, JupyterHub."""

import json
import os
import subprocess

import nbformat
import pytest
from harness import PATIENCE_S, SOURCE, TANDEM, wait_until
from jupyter_client import AsyncKernelManager, KernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

PYTHON = "/usr/bin/python3"
KERNEL = "python3-shared-gpu"


@pytest.fixture
def run(tmp_path):
    """Runs `tandem` with a home of its own; (exit status, standard output, error)."""
    home = {"HOME": str(tmp_path), "JUPYTER_DATA_DIR": str(tmp_path / "data")}

    def run(*words, **environment):
        env = {**os.environ, **home, "TANDEM_PYTHON": PYTHON, **environment}
        done = subprocess.run(
            [TANDEM, *words], env=env, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.returncode, done.stdout, done.stderr

    run.kernels = tmp_path / "data" / "kernels"
    return run


def test_install_and_uninstall(run):
    status, out, _ = run("jupyter", "install", "--name", "gpu", "--display-name", "GPU")
    folder = run.kernels / "gpu"
    assert status == 0 and f'Installed the kernel "GPU" in {folder}' in out
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"] == [str(TANDEM), "jupyter", "kernel", "-f", "{connection_file}"]
    assert (spec["display_name"], spec["env"]) == ("GPU", {"TANDEM_PYTHON": PYTHON})
    assert run("jupyter", "uninstall", "--name", "gpu")[0] == 0
    assert not folder.exists()
    status, _, err = run("jupyter", "uninstall", "--name", "gpu")
    assert status == 1 and "there is no kernel 'gpu'" in err


def test_install_below_a_prefix(run, tmp_path):
    status, out, _ = run("jupyter", "install", "--prefix", str(tmp_path / "prefix"))
    folder = tmp_path / "prefix" / "share" / "jupyter" / "kernels" / KERNEL
    assert status == 0 and str(folder) in out
    assert json.loads((folder / "kernel.json").read_text())["display_name"] == "Python 3 (shared GPU)"


def test_what_is_missing_or_wrong_is_said(run, tmp_path):
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {PYTHON} -S "$@"\n')  # without Debian's packages
    python.chmod(0o755)
    status, _, err = run("jupyter", "install", TANDEM_PYTHON=str(python))
    assert status == 1 and "python3-ipykernel" in err
    status, _, err = run("jupyter", "install", "--user", "--prefix", "/usr")
    assert status == 2 and "not allowed with" in err
    assert run("jupyter")[0] == 2
    folder = run.kernels / "other"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({"argv": ["python3"], "display_name": "O"}))
    status, _, err = run("jupyter", "uninstall", "--name", "other")
    assert status == 1 and "is not Tandem's" in err and folder.exists()


def test_a_full_disk_is_said_and_leaves_no_half_kernel(run, tmp_path):
    if os.getuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    try:
        with pytest.raises(OSError), open(disk / "rest", "wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        status, _, err = run("jupyter", "install", JUPYTER_DATA_DIR=str(disk / "jupyter"))
        assert status == 1 and "No space left on device" in err and "Traceback" not in err
        assert list(disk.glob("jupyter/kernels/*/*")) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_help_has_examples(run):
    status, out, _ = run("jupyter", "--help")
    assert status == 0 and "examples:" in out and "tandem jupyter install" in out


def test_the_installed_kernel_shares_the_gpu_under_the_notebooks_name(card, run):
    assert run("jupyter", "install")[0] == 0
    argv = json.loads((run.kernels / KERNEL / "kernel.json").read_text())["argv"]
    manager = KernelManager()
    manager.kernel_spec.argv = argv
    env = {**card.env, "TANDEM_PYTHON": PYTHON, "TANDEM_KERNEL_MEMORY": "64M"}
    env.update(JPY_SESSION_NAME="/class/anna/lesson 1.ipynb", LOGNAME="anna")
    manager.start_kernel(env=env)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        cell = "%%gpu\nimport tandem"  # the extension is loaded already
        reply = client.execute_interactive(cell, timeout=PATIENCE_S, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok", reply["content"]
        (session,) = card.sessions()
        assert (session["name"], session["limit_bytes"]) == ("anna-lesson-1", 64 << 20)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_the_example_notebook_runs_in_the_installed_kernel(card, run):
    assert run("jupyter", "install")[0] == 0
    notebook = nbformat.read(SOURCE / "examples/notebooks/cells.ipynb", as_version=4)
    assert notebook.metadata.kernelspec.name == KERNEL
    specs = KernelSpecManager(kernel_dirs=[str(run.kernels)])
    manager = AsyncKernelManager(kernel_name=KERNEL, kernel_spec_manager=specs)
    NotebookClient(notebook, km=manager, timeout=PATIENCE_S).execute(env=card.env)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    found, status, log = [output.get("text") or output.data["text/plain"] for output in shown]
    assert found == "'64 of 64 MiB are as they were'"
    assert "64 MiB on the card" in status
    assert len(log.splitlines()) == 3 and "waited" in log


def test_a_kernel_ends_with_the_server_that_started_it(card, run, tmp_path):
    assert run("jupyter", "install")[0] == 0
    file = tmp_path / "connection.json"
    server = f"""
import json, subprocess, sys
from jupyter_client.connect import write_connection_file
write_connection_file({str(file)!r})
argv = json.load(open({str(run.kernels / KERNEL / "kernel.json")!r}))["argv"]
import os
env = dict(os.environ, JPY_PARENT_PID=str(os.getpid()))
subprocess.run([word.replace("{{connection_file}}", {str(file)!r}) for word in argv], env=env)
"""
    process = card.spawn([PYTHON, "-c", server], env={**card.env, "TANDEM_PYTHON": PYTHON})
    names = lambda: [each["name"] for each in card.ask("sessions")["runs"]]  # noqa: E731
    wait_until(names, process, "the kernel runs")
    process.kill()
    wait_until(lambda: not names(), None, "the kernel ends")


@pytest.mark.parametrize(
    "environment, options",
    [
        ({}, ["--name", "anna"]),
        ({"JPY_SESSION_NAME": "c0ffee00-0000-0000"}, ["--name", "anna"]),
        ({"JPY_SESSION_NAME": "/x/" + "y" * 99 + ".ipynb"}, ["--name", "anna-" + "y" * 35]),
        (
            {"TANDEM_KERNEL_MEMORY": "8G", "TANDEM_KERNEL_CLASS": "batch"},
            ["--name", "anna", "--memory", "8G", "--class", "batch"],
        ),
        ({"TANDEM_KERNEL_MEMORY": "8G", "TANDEM_RUN": "7"}, []),
    ],
)
def test_options_of_the_run(environment, options):
    program = (
        "import json, sys; from tandem.jupyter.launch import run_options; "
        "print(json.dumps(run_options(json.loads(sys.argv[1]), 'anna')))"
    )
    argv = [PYTHON, "-c", program, json.dumps(environment)]
    env = {**os.environ, "PYTHONPATH": str(SOURCE / "python")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == options


def test_the_hubs_configuration_is_python_that_sets_what_it_says(run, tmp_path):
    file = tmp_path / "tandem_hub.py"
    words = ("jupyter", "hub", "--memory", "4G", "--idle", "30m", "--output", str(file))
    status, out, _ = run(*words)
    assert status == 0 and f"Wrote {file}" in out
    from traitlets.config import PyFileConfigLoader

    config = PyFileConfigLoader(str(file)).load_config()
    spawner = type("Spawner", (), {"user": type("User", (), {"name": "anna"})})
    environment = config.Spawner.environment
    given = environment if isinstance(environment, dict) else environment.get_value({})
    assert given["TANDEM_KERNEL_MEMORY"](spawner) == "4G"
    assert given["TANDEM_KERNEL_CLASS"] == "interactive"
    args = config.Spawner.args
    args = args if isinstance(args, list) else args.get_value([])
    assert "--MappingKernelManager.cull_idle_timeout=1800" in args
    assert "--MappingKernelManager.cull_interval=300" in args
    assert f"--MappingKernelManager.default_kernel_name={KERNEL}" in args
    status, _, err = run(*words)
    assert status == 1 and "exists; choose another file" in err


def test_the_hub_looks_for_idle_kernels_more_often_where_their_time_is_short(run):
    assert '"--MappingKernelManager.cull_interval=15"' in run("jupyter", "hub", "--idle", "1m")[1]
    assert '"--MappingKernelManager.cull_interval=1"' in run("jupyter", "hub", "--idle", "2s")[1]


def test_the_hub_refuses_malformed_sizes_and_times(run):
    assert run("jupyter", "hub")[1].startswith("# Tandem: kernels that share the GPUs.")
    assert "'much' is no size" in run("jupyter", "hub", "--memory", "much")[2]
    assert "'long' is no time" in run("jupyter", "hub", "--idle", "long")[2]
