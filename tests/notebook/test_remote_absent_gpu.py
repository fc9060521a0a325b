"""A GPU that is not there: torch of a machine without a card works with `device="cuda"`."""

import subprocess
import sys
import textwrap

import pytest

from remote_fixtures import PYTHON, peer, peer_pipe  # noqa: F401

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
if torch.cuda.is_available():
    pytest.skip("this machine has a card", allow_module_level=True)

NAME = "the GPU of gpu-server"
PRELUDE = """
import copy, io, pickle, threading
import numpy as np, torch
from concurrent.futures import ThreadPoolExecutor
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
cuda0 = torch.device("cuda:0")
torch.manual_seed(0)
def on_gpu(*tensors):
    return all(t.is_cuda and t.device == cuda0 for t in tensors)
def pickled(value):
    return pickle.loads(pickle.dumps(value))
def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)
h = torch.arange(6.0).reshape(2, 3)
g = h.to("cuda")
w = torch.ones(3, device="cuda", requires_grad=True)
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
"""

# Each line is a check: its last expression is true.
CHECKS = """
torch.cuda.is_available()
torch.cuda.device_count() == 1
torch.cuda.current_device() == 0
torch.cuda.get_device_name() == torch.cuda.get_device_name(0) == NAME
torch.cuda.get_device_properties(0).name == NAME
torch.cuda.get_device_capability() == (8, 0) and torch.cuda.is_bf16_supported()
torch.cuda.memory_allocated() == torch.cuda.max_memory_reserved("cuda") == 0
torch.cuda.empty_cache() is None and torch.cuda.reset_peak_memory_stats() is None
isinstance(torch.cuda.memory_summary(), str)
    and 0 < torch.cuda.mem_get_info()[0] <= torch.cuda.get_device_properties(0).total_memory
torch.cuda.synchronize() is None and torch.cuda.set_device(0) is None
torch.cuda.manual_seed_all(3) is None and len(torch.cuda.get_rng_state_all()) == 1
e = torch.cuda.Event(enable_timing=True); e.record(); e.elapsed_time(e) == 0
s = torch.cuda.Stream(); c = torch.cuda.stream(s); c.__enter__() is c.__exit__(None, None, None)
torch.cuda.device(0).__enter__() is None
torch.zeros(2, device="cuda").device == cuda0
torch.ones(2, device=cuda0).device != torch.device("cpu")
torch.zeros(2, device="cuda").device.type == "cuda"
torch.zeros(2, device=0).is_cuda
torch.tensor([1.0, 2.0], device="cuda").sum().item() == 3
on_gpu(torch.arange(3, device="cuda"), torch.rand(2, device="cuda"), torch.eye(2, device="cuda"))
on_gpu(torch.empty(2, device="cuda"), torch.full((2,), 1.0, device="cuda"))
on_gpu(torch.linspace(0, 1, 3, device="cuda"), torch.randint(3, (2,), device="cuda"))
on_gpu(torch.randperm(4, device="cuda"), torch.normal(0.0, 1.0, (2,), device="cuda"))
on_gpu(torch.zeros_like(g), g.new_zeros(2), g.new_tensor([1.0]), torch.empty_like(h, device="cuda"))
on_gpu(torch.as_tensor(np.ones(2), device="cuda"), torch.asarray([1.0], device="cuda"))
a = np.zeros(2); t = torch.as_tensor(a, device="cuda"); t.add_(1); a.sum() == 0
not torch.zeros_like(g, device="cpu").is_cuda
not torch.tensor([g[0, 0], g[0, 1]]).is_cuda
not torch.empty(2, pin_memory=True).is_cuda
g.is_cuda and not g.is_cpu and g.get_device() == 0 and not h.is_cuda and h.is_cpu
g.to("cuda") is g and g.cuda() is g and h.cpu() is h and h.to("cpu") is h
on_gpu(h.cuda(), h.cuda(0), h.to(cuda0), h.to(device="cuda"), h.to("cuda", torch.float16), h.to(g))
g.half().dtype == torch.float16 and g.half().is_cuda and g.to(torch.float64).is_cuda
x = h.cuda(); x.add_(1); h[0, 0] == 0
x = g.cpu(); x.add_(1); not x.is_cuda and g[0, 0].item() == 0
not g.to("cpu").is_cuda and not g.to(h).is_cuda and not g.to("cpu", torch.float64).is_cuda
g.type() == "torch.cuda.FloatTensor" and h.type() == "torch.FloatTensor"
h.type("torch.cuda.DoubleTensor").is_cuda and not g.type("torch.FloatTensor").is_cuda
h.type_as(g).is_cuda and not g.type_as(h).is_cuda
on_gpu(g + 1, 2 * g, g @ g.T, g.sum(), g > 1, -g, g.mean(0), torch.cat([g, g]), torch.stack([g]))
on_gpu(*g.max(dim=1)) and on_gpu(*g.split(1)) and on_gpu(*g)
on_gpu(g + torch.tensor(1.0), torch.where(g > 1, g, torch.tensor(0.0)))
on_gpu(g[0], g[:, 1], g[..., None], g[g > 1], g[torch.tensor([0])], g[[1, 0]])
on_gpu(g.view(3, 2), g.T, g.t(), g.reshape(-1), g.flatten(), g.data, g.detach(), g.clone())
v = g.view(-1); v[0] = 9; g[0, 0].item() == 9
g[0] = torch.zeros(3); g.sum().item() == 12 and g.is_cuda
g[0] = 5; g.add_(1).mul_(2) is g and g.is_cuda
y = torch.empty(2, 3); y.copy_(g); not y.is_cuda and torch.equal(y, h)
y = torch.empty_like(g); y.copy_(h); y.is_cuda
out = torch.empty_like(g); torch.add(g, g, out=out) is out and out.is_cuda
h.data = g; h.is_cuda
repr(torch.ones(2, device="cuda")) == "tensor([1., 1.], device='cuda:0')"
repr(w) == "tensor([1., 1., 1.], device='cuda:0', requires_grad=True)"
repr(torch.ones(1, dtype=torch.half, device="cuda")).endswith("device='cuda:0',
    dtype=torch.float16)")
"device='cuda:0'" in f"{g}" and f"{g.sum():.1f}" == "15.0" and "device" not in repr(h)
"cuda:0" in repr(nn.Parameter(g)) and "cuda:0" in str(w * 2)
g.tolist() == h.tolist() and float(g[0, 1]) == 1 and bool(g[0, 1]) and len(g) == 2
np.array_equal(g.cpu().numpy(), h.numpy())
net.to("cuda") is net and on_gpu(*net.parameters(), net[1].running_mean)
net.cuda(); net.cpu(); not any(p.is_cuda for p in net.parameters())
net.to(device=cuda0); y = net(g); y.is_cuda and y.shape == (2, 1)
p = net[0].weight; net.cuda(); net[0].weight is p and p.is_leaf and p.requires_grad
on_gpu(nn.Linear(2, 2, device="cuda").weight, nn.Parameter(g))
net.cuda(); on_gpu(*net.state_dict().values()) and on_gpu(copy.deepcopy(net)[0].weight)
net.cuda(); net.load_state_dict({k: v.cpu() for k, v in net.state_dict().items()});
    on_gpu(*net.parameters())
net.cuda(); net(g).sum().backward(); on_gpu(*(p.grad for p in net.parameters()))
w.grad is None and ((w * 2).sum().backward() or on_gpu(w.grad))
on_gpu(*torch.autograd.grad((w * 2).sum(), w))
seen = []; w.register_hook(lambda d: seen.append(torch.ones(3,
    device="cuda") * d) or d * w.detach()); (w * 2).sum().backward();
    on_gpu(*seen) and w.grad.sum().item() == 6
l = nn.LSTM(3, 4).cuda(); o, (a, b) = l(torch.ones(5, 2, 3, device="cuda")); on_gpu(o, a, b)
q = nn.utils.rnn.pack_padded_sequence(g[:, :, None], torch.tensor([3, 2]), batch_first=True);
    q.data.is_cuda and not q.batch_sizes.is_cuda and nn.GRU(1, 2).cuda()(q)[0].data.is_cuda
m = nn.MultiheadAttention(4, 2).cuda(); x = torch.ones(3, 1, 4, device="cuda"); on_gpu(*m(x, x, x))
F.cross_entropy(g, torch.tensor([0, 1], device="cuda")).is_cuda
nn.Conv2d(1, 2, 3).cuda()(torch.ones(1, 1, 4, 4, device="cuda")).is_cuda
on_gpu(nn.LazyLinear(2).cuda()(g), nn.LazyLinear(2, device="cuda")(g))
c = torch.autocast("cuda", dtype=torch.bfloat16); c.__enter__(); y = g @ g.T;
    c.__exit__(None, None, None); y.is_cuda
nn.Embedding(4, 2).cuda()(torch.tensor([1], device="cuda")).is_cuda
net.cuda(); nn.utils.clip_grad_norm_(net.parameters(), 1.0) == 0
r = torch.Generator(device="cuda"); isinstance(r, torch.Generator)
    and torch.rand(2, generator=r.manual_seed(1), device="cuda").is_cuda
l = nn.Linear(3, 1).cuda(); l.register_full_backward_hook(lambda m, i,
    o: (i[0] * m.weight.sum(),)); x = g.clone().requires_grad_(); l(x).sum().backward();
    on_gpu(x.grad, l.weight.grad)
pickled(g).is_cuda and pickled(nn.Parameter(g)).is_cuda and not pickled(h).is_cuda
copy.copy(g).is_cuda and copy.deepcopy(g).is_cuda and on_gpu(*pickled({"a": [g]})["a"])
saved(g, map_location="cuda").is_cuda and not saved(g).is_cuda
    and saved(h, map_location="cuda").is_cuda
not saved({"w": g}, map_location=torch.device("cpu"))["w"].is_cuda
on_gpu(*saved(net.state_dict(), map_location=cuda0).values())
x = g.clone().requires_grad_(); net.cuda();
    checkpoint(net, x, use_reentrant=True).sum().backward(); on_gpu(x.grad)
h.pin_memory() is not h and torch.equal(h.pin_memory(), h)
all(x.is_cuda for (b,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(h),
    pin_memory=True) for x in [b.cuda(non_blocking=True)])
with_threads(lambda: torch.ones(2, device="cuda").is_cuda)
ThreadPoolExecutor(1).submit(lambda: net.cuda()(g).is_cuda).result()
torch.isfinite(g).all().is_cuda and torch.equal(g, g) and torch.allclose(g, g + 0)
torch.fft.fft(g).is_cuda and on_gpu(*torch.linalg.svd(g)) and torch.einsum("ij,kj", g, g).is_cuda
torch.distributions.Normal(g, torch.ones_like(g)).sample().is_cuda
torch.tensor([g.sum(), h.sum()]).tolist() == [15, 15]
    and torch.Tensor([g.sum(), g[0, 1]]).tolist() == [15, 1]
"""

# Each line is what torch refuses: statement, exception and a part of torch's words.
REFUSED = """
g + h | RuntimeError | Expected all tensors to be on the same device,
    but found at least two devices, cuda:0 and cpu!
h.add_(g) | RuntimeError | Expected all tensors to be on the same device
torch.cat([h, g]) | RuntimeError | Expected all tensors to be on the same device
torch.add(h, other=g) | RuntimeError | Expected all tensors to be on the same device
net(g) | RuntimeError | Expected all tensors to be on the same device
net.cuda()(h) | RuntimeError | Expected all tensors to be on the same device
F.cross_entropy(g, torch.tensor([0, 1])) | RuntimeError
    | Expected all tensors to be on the same device
nn.Conv2d(1, 2, 3)(torch.ones(1, 1, 4, 4, device="cuda")) | RuntimeError
    | Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same
h[torch.tensor([0], device="cuda")] | RuntimeError
    | indices should be either on cpu or on the same device as the indexed tensor (cpu)
h[g > 1] = 0 | RuntimeError | indices should be either on cpu
g[g > 1] = torch.ones(4) | RuntimeError | Expected all tensors to be on the same device
w.grad = torch.ones(3) | RuntimeError | assigned grad has data located on a different device
(w * 2).backward(torch.ones(3)) | RuntimeError | Expected all tensors to be on the same device
g.numpy() | TypeError | can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()
np.asarray(g) | TypeError | can't convert cuda:0 device type tensor to numpy
g.pin_memory() | RuntimeError | cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be
    pinned
h.to("cuda:1") | RuntimeError | invalid device ordinal
torch.zeros(2, device="cuda:3") | RuntimeError | invalid device ordinal
torch.cuda.set_device(2) | RuntimeError | invalid device ordinal
"""


def lines(table):
    """Returns the lines of a table; an indented line continues the one before it."""
    return table.strip().replace("\n    ", " ").splitlines()


@pytest.fixture
def gpu():
    """The names of PRELUDE on a machine with an absent GPU."""
    from tandem.remote import absent_gpu

    absent_gpu.install(NAME)
    space = {"NAME": NAME, "with_threads": in_a_thread}
    try:
        exec(PRELUDE, space)
        yield space
    finally:
        absent_gpu.uninstall()


def in_a_thread(function):
    """Returns what a function returns in a thread of its own."""
    import threading

    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(60)
    return results[0]


def run(source, space):
    """Runs statements; returns the value of the last expression."""
    *before, last = source.split("; ")
    exec("; ".join(before), space)
    return eval(last, space)


@pytest.mark.parametrize("check", lines(CHECKS))
def test_torch_accepts(gpu, check):
    assert run(check, gpu)


@pytest.mark.parametrize("line", lines(REFUSED))
def test_torch_refuses_with_its_own_words(gpu, line):
    statement, kind, words = line.split(" | ")
    with pytest.raises(Exception) as raised:
        exec(statement, gpu)
    assert type(raised.value).__name__ == kind
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "optimiser", ["SGD(P, 0.1, momentum=0.9)", "Adam(P)", "AdamW(P)", "RMSprop(P)"]
)
def test_an_optimiser_keeps_its_state_on_the_gpu(gpu, optimiser):
    net = gpu["net"].cuda()
    step = eval(f"torch.optim.{optimiser}", {"torch": torch, "P": net.parameters()})
    losses = []
    for _ in range(3):
        step.zero_grad()
        loss = net(gpu["g"]).pow(2).mean()
        loss.backward()
        step.step()
        losses.append(loss.item())
    state = [v for s in step.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    assert losses[-1] < losses[0]
    assert state and all(value.is_cuda for value in state if value.dim())
    again = type(step)(net.parameters(), lr=0.1)
    again.load_state_dict(step.state_dict())
    loaded = [v for s in again.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    assert all(value.is_cuda for value in loaded if value.dim())


def test_mixed_precision_trains(gpu):
    net, scaler = gpu["net"].cuda(), torch.cuda.amp.GradScaler(init_scale=4.0, growth_interval=2)
    step = torch.optim.SGD(net.parameters(), lr=0.01)
    weight, scales = net[0].weight.detach().clone(), []
    for factor in (1, 1, float("inf")):
        step.zero_grad()
        with torch.cuda.amp.autocast(), torch.autocast("cuda"):
            loss = net(gpu["g"]).pow(2).mean() * factor
        scaler.scale(loss).backward()
        scaler.unscale_(step)
        scaler.step(step)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [4.0, 8.0, 4.0]  # it grows after two steps and shrinks after an infinity
    assert not torch.equal(net[0].weight.detach(), weight)
    assert torch.isfinite(net[0].weight).all()


def test_everything_is_as_before_after_uninstall():
    from tandem.remote import absent_gpu

    names = ("is_available", "device_count", "Stream", "memory_allocated")
    before = [getattr(torch.cuda, name) for name in names]
    methods = [torch.Tensor.__getitem__, torch.load, torch.Tensor.__reduce_ex__]
    absent_gpu.install(NAME)
    tensor = torch.ones(2, device="cuda")
    absent_gpu.install("another")
    assert torch.cuda.get_device_name() == "another" and tensor.is_cuda
    absent_gpu.uninstall()
    assert [getattr(torch.cuda, name) for name in names] == before
    assert methods == [torch.Tensor.__getitem__, torch.load, torch.Tensor.__reduce_ex__]
    assert not torch.cuda.is_available() and not tensor.is_cuda
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        torch.ones(2, device="cuda")


def python(source):
    """Runs a program in a process of its own; returns what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=PYTHON)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_it_waits_for_the_import_of_torch():
    shown = python(
        """
        import importlib.util, sys
        from tandem.remote import absent_gpu
        absent_gpu.expect("theirs")
        print("torch" in sys.modules, importlib.util.find_spec("torch") is not None)
        import torch
        print(torch.cuda.get_device_name(), torch.ones(1).cuda().is_cuda)
        """
    )
    assert shown == ["False", "True", "theirs", "True"]


def test_it_is_not_installed_where_torch_has_a_card_or_after_uninstall():
    shown = python(
        """
        from tandem.remote import absent_gpu
        absent_gpu.expect("theirs")
        absent_gpu.uninstall()
        import torch
        print(torch.cuda.is_available())
        torch.cuda.is_available = lambda: True
        absent_gpu.expect("theirs")
        print(absent_gpu.installed())
        """
    )
    assert shown == ["False", "None"]


@pytest.fixture
def absent_peer(peer):
    """A peer that expects the GPU, and the notebook's names."""
    from tandem.remote import absent_gpu

    absent_gpu.install(NAME)
    try:
        exec("import torch", peer.namespace)
        yield peer
    finally:
        absent_gpu.uninstall()


def test_tensors_of_the_gpu_travel_and_come_back_into_the_originals(absent_peer):
    space = absent_peer.namespace
    exec(
        "net = torch.nn.Linear(2, 1).cuda(); row = net.weight.detach()[0]\n"
        "none = torch.empty(0, device='cuda')\nnet.weight.sum().backward(); host = torch.zeros(2)",
        space,
    )
    net, weight, row = space["net"], space["net"].weight, space["row"]
    absent_peer.run(
        "where = [t.device for t in (net.weight, net.weight.grad, row, none, host)]\n"
        "with torch.no_grad(): net.weight.fill_(7)\n"
        "net.weight.grad.fill_(3); new = torch.ones(4, device='cuda'); inner = [new * 2]\n"
        "name = torch.cuda.get_device_name()"
    )
    assert [str(device) for device in space["where"]] == ["cuda:0"] * 4 + ["cpu"]
    assert space["net"] is net and net.weight is weight and row.tolist() == [7, 7]
    assert weight.is_cuda and weight.grad.is_cuda and weight.grad.tolist() == [[3, 3]]
    assert "CPU" in space["name"]
    assert repr(space["new"]).startswith("<on the worker: torch.Tensor")
    assert space["new"].device == "cuda:0" and space["inner"][0].is_cuda
    absent_peer.run("total = (new + inner[0]).sum().item(); del inner[0]")
    assert (space["total"], space["inner"]) == (12, [])


def test_a_model_trains_across_cells_of_a_notebook(open_notebook):
    notebook = open_notebook("student", shared=False)
    assert notebook.value("'torch' in __import__('sys').modules") == "False"
    notebook.run("%gpu use worker")
    ran = notebook.run(
        "import torch\ntorch.manual_seed(0)\nprint(torch.cuda.get_device_name())\n"
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))\n"
        "net.to(device)\nadam = torch.optim.Adam(net.parameters(), lr=0.05)\n"
        "x = torch.randn(32, 2, device=device)\ny = x.sum(1, keepdim=True)\nlosses = []"
    )
    assert ran.texts("stdout") == ["the GPU of worker, for cells under %%gpu\n"], ran
    refused = notebook.run("net(torch.ones(1, 2))")
    assert "same device" in refused.text
    train = (
        "%%gpu\nfor _ in range(20):\n    adam.zero_grad()\n"
        "    loss = (net(x.to(device)) - y).pow(2).mean()\n    loss.backward()\n    adam.step()\n"
        "    losses.append(loss.item())"
    )
    first, second = notebook.run(train), notebook.run(train)
    assert (first.status, second.status) == ("ok", "ok"), (first, second)
    assert "no CUDA" in "".join(first.texts("stderr"))
    assert "no CUDA" not in "".join(second.texts("stderr"))
    assert notebook.value("len(losses), losses[20] < losses[0], losses[39] < 0.5 * losses[20]") == (
        "(40, True, True)"
    )
    state = "[s['exp_avg'].is_cuda for s in adam.state.values()], "
    state += "int(adam.state[net[0].weight]['step'])"
    assert notebook.value(state) == "([True, True, True, True], 40)"
    assert notebook.value("net(x).device, net[0].weight.grad.is_cuda") == (
        "(device(type='cuda', index=0), True)"
    )
    notebook.run("%gpu use local")
    assert notebook.value("torch.cuda.is_available(), net[0].weight.is_cuda") == "(False, False)"


def test_torch_imports_where_the_gpu_cannot_be_installed():
    shown = python(
        """
        import sys, warnings
        from tandem.remote import absent_gpu
        sys.modules["tandem.remote.absent_mode"] = None
        absent_gpu.expect("theirs")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch
        told = [str(w.message) for w in caught if "under %%gpu" in str(w.message)]
        print(len(told), torch.cuda.is_available(), absent_gpu.installed())
        """
    )
    assert shown == ["1", "False", "None"]


def test_a_module_that_moves_between_cells_has_its_device_there_too(absent_peer):
    space = absent_peer.namespace
    look = "seen = (str(net.weight.device), net.weight.sum().item(), state[net.weight].is_cuda)"
    exec("net = torch.nn.Linear(2, 1); state = {net.weight: torch.ones(2)}", space)
    for move, expected in (("cuda", "cuda:0"), ("cpu", "cpu"), ("cuda", "cuda:0")):
        exec(f"net.to('{move}'); state[net.weight] = state[net.weight].to('{move}')", space)
        absent_peer.run(look)
        assert space["seen"] == (expected, space["net"].weight.sum().item(), move == "cuda")
    absent_peer.run("net.cpu()")
    assert not space["net"].weight.is_cuda and space["state"][space["net"].weight].is_cuda


def test_a_module_made_in_a_cell_is_on_the_gpu_here(absent_peer):
    space = absent_peer.namespace
    absent_peer.run("net = torch.nn.Linear(2, 1).cuda()")
    out = space["net"](torch.ones(3, 2, device="cuda"))
    assert out.is_cuda and out.shape == (3, 1)
    with pytest.raises(RuntimeError, match="same device"):
        space["net"](torch.ones(3, 2))
    absent_peer.run("net.weight.data.zero_()")
    assert absent_peer.sent.nbytes < 5000 and space["net"].weight.sum() == 0


def test_a_cell_that_fails_leaves_the_tensors_of_the_gpu(absent_peer):
    space = absent_peer.namespace
    exec("w = torch.ones(2, device='cuda')", space)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        absent_peer.run("w.zero_(); 1 / 0")
    assert space["w"].is_cuda and space["w"].tolist() == [1, 1]
    absent_peer.run("w.add_(1)")
    assert space["w"].is_cuda and space["w"].tolist() == [2, 2]


def test_results_that_cannot_be_built_leave_a_tensor_with_its_storage(absent_peer):
    space = absent_peer.namespace
    exec("w = torch.ones(2, device='cuda')", space)
    with pytest.raises(Exception, match="cannot be built here"):
        absent_peer.run(
            "w.data = torch.zeros(9)\nclass Bad:\n def __reduce__(self): return int, ('x',)\nz = Bad()"
        )
    assert space["w"].tolist() == [1, 1] and space["w"].is_cuda


def module_cell(rng, names):
    """Returns the text of a random cell that makes, moves, trains and changes modules."""
    lines = []
    for _ in range(rng.randint(1, 6)):
        x, y, k = rng.choice(names), rng.choice(names), rng.randint(1, 4)
        inputs = f"torch.ones(1, {x}.in_features, device={x}.weight.device)"
        action = rng.choice(
            [
                f"{x}.cuda()",
                f"{x}.cuda()",
                f"{x}.cpu()",
                f"{x}({inputs}).sum().backward()",
                f"{x}.weight.data = {x}.weight.data[::1] * {k}",
                f"{x}.views = [{x}.weight, {x}.weight.data, {x}.weight.data.view(-1)[1:]]",
                f"{x}.weight.data[0] = {k}; {x}.where = str({x}.weight.device)",
                f"{x}.weight.grad = torch.zeros_like({x}.weight)",
                f"{y} = {x}",
            ]
        )
        lines.append(f"if isinstance({x}, torch.nn.Linear): {action}\nelse: ")
        lines[-1] += f"{x} = torch.nn.Linear({k}, 2)"
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(12))
def test_random_moves_of_modules(absent_peer, seed):
    from test_remote_identity import compare

    compare(absent_peer, seed, "import torch\ntorch.manual_seed(1)\n", module_cell)
