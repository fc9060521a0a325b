"""A cell on a worker's kernel: state, options, failures, proxies."""

import asyncio
import os
import signal

import pytest
from jupyter_client.provisioning import LocalProvisioner

import remote_fixtures  # noqa: F401  puts the package on the path
from harness import wait_until
from remote_fixtures import fresh, remote, worker_shell  # noqa: F401
from tandem.errors import Error, TimeLimitExceeded
from tandem.remote import fetch, link, stop
from tandem.remote.errors import (
    CannotTravel,
    RemoteCellError,
    StaysOnWorker,
    TooLarge,
    WorkerLost,
    WorkerMismatch,
    WorkerStartFailed,
)
from tandem.remote.proxy import RemoteValue

np = pytest.importorskip("numpy")


def test_a_cell_reads_binds_and_changes(remote, capsys):
    remote.local("a = [1]; b = a; import os")
    result = remote.ok("a.append(os.getpid()); c = a\nprint('text'); c[0] + 41")
    assert remote.space["b"][1] == remote.worker_pid() != os.getpid()
    assert remote.space["c"] is remote.space["a"] is remote.space["b"]
    assert result.bound == ["c"] and result.success
    assert capsys.readouterr().out == f"text\nOut[{remote.shell.execution_count}]: 42\n"


def test_the_exception_has_its_type_and_the_workers_traceback(remote):
    remote.local("class Mine(Exception): pass\nd = {}; l = [1]")
    error = remote.run("l.append(2)\nd['missing']").error_in_exec
    assert type(error) is KeyError
    text = "\n".join(error._render_traceback_())
    assert "missing" in text and "l" in text and "KeyError" in text
    error = remote.run("raise Mine('why')").error_in_exec
    assert type(error) is remote.space["Mine"] and error.args == ("why",)
    assert remote.space["l"] == [1]
    assert remote.ok("n = len(l)").bound == ["n"] and remote.space["n"] == 1


def test_an_exception_that_cannot_travel_keeps_its_name(remote):
    error = remote.run("class Odd(Exception): pass\nraise Odd(open('/dev/null'))").error_in_exec
    assert type(error).__name__ == "Odd" and "Odd" in "\n".join(error._render_traceback_())


def test_a_syntax_error_starts_nothing(remote):
    assert isinstance(remote.run("x = = 1").error_before_exec, SyntaxError)


def test_what_cannot_travel_is_found_before_a_worker_starts(fresh):
    fresh.local("f = open('/dev/null'); box = {'f': f}")
    error = fresh.run("box").error_before_exec
    assert isinstance(error, CannotTravel) and error.path == "box['f']"
    from tandem.remote.session import session

    assert session(fresh.shell, fresh.where).link is None


def test_what_cannot_come_back_inside_a_known_object_is_named(remote):
    torch = pytest.importorskip("torch")
    remote.space["w"] = torch.zeros(3)
    error = remote.run("import torch\nw.add_(torch.ones(3, requires_grad=True))").error_in_exec
    assert isinstance(error, CannotTravel) and "detach" in str(error)
    assert remote.space["w"].tolist() == [0, 0, 0]
    assert remote.ok("s = float(w.sum())").bound == ["s"] and remote.space["s"] == 0


def test_keep_and_fetch(remote, capsys):
    result = remote.ok("import numpy as np\nbig = np.arange(1000)", keep=["big"])
    proxy = remote.space["big"]
    assert isinstance(proxy, RemoteValue) and result.kept == ["big"]
    assert proxy.shape == "(1000,)" and proxy.dtype == "int64" and proxy.nbytes == 8000
    assert "stays on the worker: big" in capsys.readouterr().err
    with pytest.raises(StaysOnWorker):
        proxy + 1
    remote.ok("s = int(big.sum()); big[0] = 5")
    assert remote.space["s"] == 499500 and remote.space["big"] is proxy
    value = fetch(remote.shell, "big")
    assert remote.space["big"] is value and value[0] == 5 and value.sum() == 499505
    value[1] = 100
    remote.ok("first = int(big[1]); big[2] = 7")
    assert remote.space["first"] == 100 and value[2] == 7


def test_a_tensor_with_a_graph_stays_and_is_fetched_detached(remote):
    pytest.importorskip("torch")
    remote.ok("import torch\nw = torch.ones(2, requires_grad=True); loss = (w * 3).sum()")
    assert isinstance(remote.space["loss"], RemoteValue)
    remote.ok("loss.backward()")
    assert remote.space["w"].grad.tolist() == [3, 3]
    assert fetch(remote.shell, "loss").item() == 6


def test_inputs_outputs_and_the_hint(remote, capsys):
    remote.local("x = 5; keep = [1]")
    error = remote.run("y = eval('x' + '')").error_in_exec
    assert isinstance(error, NameError) and "add -i x" in capsys.readouterr().err
    remote.ok("y = eval('x'); keep.append(y); z = 1", inputs=["x"], outputs=["y"])
    assert remote.space["y"] == 5 and "z" not in remote.space and remote.space["keep"] == [1]
    error = remote.run("y = 1", inputs=["none"]).error_before_exec
    assert isinstance(error, RemoteCellError) and "none" in str(error)


def test_dry_run_and_the_limit(remote, capsys):
    remote.space["data"] = np.zeros(300_000, "u1")
    result = remote.run("n = len(data)", dry_run=True)
    assert result.success and "n" not in remote.space
    out = capsys.readouterr().out
    assert "data" in out and "300.1 kB" in out and "total" in out
    error = remote.run("n = len(data)", limit=1000).error_before_exec
    assert isinstance(error, TooLarge) and "data" in str(error) and "--large" in str(error)
    remote.ok("n = len(data)", limit=1000, large=True)
    assert remote.space["n"] == 300_000


def test_a_result_beyond_the_limit_stays(remote):
    remote.ok("import numpy as np\nr = np.zeros(5000)", limit=4000)
    proxy = remote.space["r"]
    assert isinstance(proxy, RemoteValue) and "limit" in proxy.description["why"]


def test_a_dead_worker_changes_nothing_and_is_replaced(fresh, capsys):
    fresh.local("l = [1]; import os")
    fresh.ok("g = (i for i in l); l.append(2)")
    error = fresh.run("l.append(3); os.kill(os.getpid(), 9)").error_before_exec
    assert isinstance(error, WorkerLost) and "as before the cell" in str(error)
    assert fresh.space["l"] == [1, 2]
    fresh.ok("l.append(4)")
    assert fresh.space["l"] == [1, 2, 4]
    assert "a new one starts" in capsys.readouterr().err
    error = fresh.run("next(g)").error_before_exec
    assert isinstance(error, CannotTravel) and error.path == "g" and "ended" in str(error)
    with pytest.raises(WorkerLost):
        fetch(fresh.shell, "g")


def test_a_worker_that_died_between_cells_is_replaced(fresh):
    fresh.local("l = [1]")
    fresh.ok("l.append(2)")
    pid = fresh.worker_pid()
    os.kill(pid, signal.SIGKILL)
    from tandem.remote.session import session

    gone = session(fresh.shell, fresh.where).link
    wait_until(lambda: not gone.alive(), None, "its end is seen")
    fresh.ok("l.append(3)")
    assert fresh.space["l"] == [1, 2, 3] and fresh.worker_pid() != pid


def test_the_time_limit_interrupts_the_cell(remote):
    remote.local("l = [1]")
    error = remote.run("l.append(2)\nwhile True: pass", timeout=0.3).error_in_exec
    assert isinstance(error, TimeLimitExceeded) and "300 ms" in str(error)
    assert remote.space["l"] == [1]
    assert remote.ok("n = len(l)").success and remote.space["n"] == 1


def test_a_worker_that_ignores_interrupts_is_ended(fresh, monkeypatch):
    monkeypatch.setattr(link, "GRACE_S", 0.2)
    fresh.local("l = [1]")
    # The kernel sets a handler before each cell, and from here on that does nothing.
    fresh.ok("import signal, ipykernel.kernelbase as k; k.signal = lambda *_: None; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    result = fresh.run("l.append(2)\nwhile True: pass", timeout=0.5)
    assert isinstance(result.error_before_exec, TimeLimitExceeded)
    assert fresh.space["l"] == [1]
    fresh.ok("l.append(3)")
    assert fresh.space["l"] == [1, 3]


def test_the_worker_gives_the_memory_of_large_results_back(fresh):
    count = (
        "links = [f'/proc/self/fd/{name}' for name in os.listdir('/proc/self/fd')]\n"
        "n = sum('tandem-cell' in os.readlink(link) for link in links if os.path.lexists(link))"
    )
    fresh.ok("import os, tandem.remote.bulk as b; b._KEPT_BYTES = 1 << 20; x = bytes(2 << 20)")
    fresh.ok(count, inputs=["os"])
    assert fresh.space["n"] == 0
    fresh.ok("y = bytes(1 << 19)")
    fresh.ok(count, inputs=["os"])
    assert fresh.space["n"] > 0


def test_a_worker_that_has_ended_leaves_no_event_loop(fresh, monkeypatch):
    policy = asyncio.get_event_loop_policy()
    loops, new = [], policy.new_event_loop
    monkeypatch.setattr(policy, "new_event_loop", lambda: loops.append(new()) or loops[-1])
    fresh.ok("x = 1")
    stop(fresh.shell)
    assert len(loops) == 1
    wait_until(loops[0].is_closed, None, "the loop's thread closes it")


def test_all_errors_derive_from_one():
    for kind in (RemoteCellError, CannotTravel, TooLarge, WorkerLost, TimeLimitExceeded):
        assert issubclass(kind, Error)


def test_a_module_that_fails_here_changes_nothing(remote, tmp_path, monkeypatch):
    path = tmp_path / "tandem_fails_here.py"
    path.write_text("value = 1")
    remote.local("l = [1]")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport tandem_fails_here\nl.append(2)"
    source += f"\nopen({str(path)!r}, 'w').write('1 / 0')"
    remote.ok(source)
    assert remote.space["l"] == [1, 2]
    assert "not installed here" in str(remote.space["tandem_fails_here"]._message())


def test_other_versions_are_an_error_at_the_start(fresh, monkeypatch):
    monkeypatch.setattr(link, "versions", lambda: {"cloudpickle": "0.1"})
    error = fresh.run("x = 1").error_before_exec
    assert isinstance(error, WorkerMismatch)
    assert "cloudpickle is 0.1 here" in str(error) and "Install the same" in str(error)


def test_a_worker_that_does_not_start_says_why(fresh, monkeypatch):
    monkeypatch.setattr("tandem.remote.launch._MODULE", "tandem.remote.no_such_module")
    error = fresh.run("x = 1").error_before_exec
    assert isinstance(error, WorkerStartFailed) and "no_such_module" in str(error)


@pytest.mark.parametrize("program, where", [("srun", "slurm:main"), ("ssh", "ssh://server")])
def test_a_starter_that_ends_before_it_reads_its_input_says_why(program, where, tmp_path, monkeypatch):
    starter = tmp_path / program
    starter.write_text("#!/bin/sh\necho 'no room for you' >&2\nexit 1\n")
    starter.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    start = LocalProvisioner.launch_kernel

    async def start_and_see_it_end(self, cmd, **options):
        info = await start(self, cmd, **options)
        self.process.wait()
        return info

    monkeypatch.setattr(LocalProvisioner, "launch_kernel", start_and_see_it_end)
    error = remote_fixtures.RemoteShell(where).run("x = 1").error_before_exec
    assert isinstance(error, WorkerStartFailed) and "no room for you" in str(error)


def test_a_provisioner_of_others_starts_the_worker(remote):
    other = remote_fixtures.RemoteShell("local-provisioner")
    try:
        other.local("import numpy as np\na = np.zeros(500_000)")
        other.ok("a += 1; here = __import__('os').getpid()")
        assert other.space["a"].sum() == 500_000 and other.space["here"] != os.getpid()
    finally:
        other.close()


def test_magics_and_shell_commands_run_on_the_worker(remote, capfd):
    remote.local("n = 2; word = 'abc'")
    remote.ok("%time m = n + 1\n!echo {word}-$n")
    assert remote.space["m"] == 3
    assert "abc-2" in capfd.readouterr().out


def test_a_training_loop_gives_the_weights_of_a_local_one(remote):
    torch = pytest.importorskip("torch")
    setup = (
        "import torch\ntorch.manual_seed(0)\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 8), "
        "torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))\nbest = model[0].weight\n"
        "opt = torch.optim.Adam(model.parameters(), lr=0.1)\n"
        "sched = torch.optim.lr_scheduler.StepLR(opt, 2)\nx = torch.randn(16, 4)\nlosses = []"
    )
    step = (
        "for _ in range(3):\n opt.zero_grad()\n loss = model(x).pow(2).mean()\n loss.backward()\n"
        " opt.step(); sched.step(); losses.append(loss.item())\ndel loss"
    )
    remote.local(setup)
    for _ in range(4):
        remote.local(step)
    expected = [p.detach().clone() for p in remote.space["model"].parameters()]
    rates, losses = remote.space["opt"].param_groups[0]["lr"], remote.space["losses"]
    remote.local(setup)
    model = remote.space["model"]
    for turn in range(4):
        remote.local(step) if turn % 2 else remote.ok(step)
    assert remote.space["model"] is model and remote.space["best"] is model[0].weight
    for mine, other in zip(model.parameters(), expected):
        assert torch.equal(mine, other)
    assert remote.space["losses"] == losses
    assert remote.space["opt"].param_groups[0]["lr"] == rates
    assert remote.space["opt"].param_groups[0]["params"][0] is model[0].weight


def module_file(folder, name):
    folder.mkdir()
    (folder / f"{name}.py").write_text("class Thing:\n    pass\nvalue = 7\n")


def test_a_module_that_only_the_worker_has(remote, tmp_path):
    module_file(tmp_path / "there", "tandem_only_there")
    place = str(tmp_path / "there")
    remote.ok(f"import sys; sys.path.insert(0, {place!r})")
    remote.ok("import tandem_only_there as m; v = m.value")
    assert remote.space["v"] == 7
    with pytest.raises(StaysOnWorker, match="not installed here"):
        remote.space["m"].value
    remote.ok("w = m.value + 1")
    assert remote.space["w"] == 8
    error = remote.run("l = [m.Thing()]").error_before_exec
    assert isinstance(error, RemoteCellError) and "--keep" in str(error)
    assert "l" not in remote.space
    remote.ok("thing = m.Thing(); m.value = 9", keep=["thing"])
    remote.ok("kind = type(thing).__name__")
    assert remote.space["kind"] == "Thing"


def test_a_module_that_only_the_notebook_has(remote, tmp_path, monkeypatch):
    module_file(tmp_path / "here", "tandem_only_here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    remote.local("import tandem_only_here as m; l = [1]")
    error = remote.run("l.append(m.value)").error_in_exec
    assert isinstance(error, RemoteCellError) and "tandem_only_here" in str(error)
    assert remote.space["l"] == [1]
    remote.ok("l.append(2)")
    assert remote.space["l"] == [1, 2]


_DIFFERENCES = ("added", "rate_changed_here", "rate_changed_there", "rate_new_here")  # noise may make them negative


def test_the_measurement_runs(remote):
    from tandem.remote.measure import measure

    found = measure(remote.shell, remote.where, 3_000_000, 2, plain=True)
    print({name: round(value, 2) for name, value in found.items()})
    assert all(value > 0 for name, value in found.items() if name not in _DIFFERENCES)
