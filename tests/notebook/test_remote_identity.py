"""Random object graphs and random cells: a remote run equals a local one, identities included.

A remote cell that fails must change nothing, and must not show in later cells.

A failure prints the seed; `SEED=n pytest -k random_cells` runs that one alone.
"""

import os
import random
import sys
import types

import pytest

import remote_fixtures  # noqa: F401  puts the package on the path
from remote_fixtures import peer, peer_pipe  # noqa: F401

np = pytest.importorskip("numpy")

PRELUDE = """
import numpy as np
class Node:
    def __init__(self): self.kids = []
class Slotted:
    __slots__ = ("a", "b")
class Table(dict): pass
def make(value):
    box = [value]
    def get(): return box
    return get
"""
SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(40)


def cell(rng, names):
    """Returns the text of a random cell that binds or changes `names`, guarded by type."""
    lines = []
    for _ in range(rng.randint(1, 7)):
        x, y, z = (rng.choice(names) for _ in range(3))
        k, n, step = rng.randint(0, 5), rng.randint(-9, 9), rng.choice([1, 2, -1])
        lines.append(
            rng.choice(
                [
                    f"{x} = [{y}, {n}, {z}]",
                    f"{x} = {{{n}: {y}, 'k{k}': {z}}}",
                    f"{x} = ({y}, {z})",
                    f"{x} = {y}",
                    f"{x} = np.arange({k + 2}.0)",
                    f"{x} = np.arange(24).reshape(4, 6)",
                    f"{x} = Node(); {x}.kids.append({y})",
                    f"{x} = Slotted(); {x}.a = {y}",
                    f"{x} = Table(k={y}); {x}.extra = {z}",
                    f"{x} = make({y})",
                    f"{x} = {{{n}, 's{k}'}}",
                    f"{x} = bytearray(b'abc' * {k})",
                    f"if type({x}) is list: {x}.append({y})",
                    f"if type({x}) is list and {x}: del {x}[0]",
                    f"if isinstance({x}, dict): {x}['k{k}'] = {y}",
                    f"if isinstance({x}, dict) and {x}: {x}.pop(next(iter({x})))",
                    f"if type({x}) is set: {x}.add({n})",
                    f"if isinstance({x}, Node): {x}.a{k} = {y}; {x}.kids.append({z})",
                    f"if isinstance({x}, Node) and 'a{k}' in vars({x}): del {x}.a{k}",
                    f"if isinstance({x}, Slotted): {x}.b = {y}",
                    f"if callable({x}): {x}().append({y})",
                    f"if type({x}) is bytearray: {x} += b'z'",
                    f"if type({x}) is np.ndarray and {x}.size: {x}.flat[{k} % {x}.size] = {n}",
                    f"if type({x}) is np.ndarray and {x}.ndim: {y} = {x}[::{step}]",
                    f"if type({x}) is np.ndarray: {y} = {x}.T",
                ]
            )
        )
    return "\n".join(lines)


def random_state(action):
    """Runs an action that must not advance torch's random numbers for the other namespace."""
    torch = sys.modules.get("torch")
    state = torch.get_rng_state() if torch else None
    action()
    if torch:
        torch.set_rng_state(state)


class Shape:
    """Gives a graph a canonical form: the same for graphs of equal content and identities."""

    def __init__(self):
        self._seen, self._memory, self._alive = {}, {}, []

    def of(self, value):
        if value is None or type(value) in (int, float, str, bytes, bool):
            return value
        if isinstance(value, (type, types.ModuleType)):
            return value.__name__
        if type(value) is tuple and not value:
            return ()
        if id(value) in self._seen:
            return ("again", self._seen[id(value)])
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        return (type(value).__name__, self._content(value))

    def _content(self, value):
        if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            root = value
            while isinstance(root.base, np.ndarray):
                root = root.base
            start = root.__array_interface__["data"][0]
            owner = self._memory.setdefault(start, len(self._memory)) if value.size else None
            offset = value.__array_interface__["data"][0] - start if value.size else 0
            return owner, offset, value.shape, value.strides, str(value.dtype), value.tolist()
        if isinstance(value, dict):
            items = [(self.of(k), self.of(v)) for k, v in value.items()]
            return items, self._attributes(value)
        if isinstance(value, (list, tuple)):
            return [self.of(item) for item in value]
        if isinstance(value, set):
            return sorted(value, key=repr)
        if isinstance(value, bytearray):
            return bytes(value)
        if isinstance(value, types.FunctionType):
            cells = [self.of(c.cell_contents) for c in value.__closure__ or ()]
            return value.__code__.co_code, cells
        return self._attributes(value)

    def _tensor(self, value):
        start = value.storage().data_ptr()
        owner = self._memory.setdefault(start, len(self._memory)) if value.numel() else None
        where = owner, value.storage_offset(), tuple(value.shape), value.stride(), str(value.dtype)
        where += (str(value.device),)
        content = value.detach().double().tolist(), value.requires_grad, self.of(value.grad)
        return where, content, self._attributes(value)

    def _attributes(self, value):
        found = dict(getattr(value, "__dict__", {}))
        found.pop("_tandem_gpu", None)  # a tensor's device says what it means
        found.update({s: getattr(value, s) for s in ("a", "b") if hasattr(value, s)})
        return [(name, self.of(found[name])) for name in sorted(found)]


def tensor_cell(rng, names):
    """Returns the text of a random cell on tensors, arrays that share with them, and modules."""
    lines = []
    for _ in range(rng.randint(1, 6)):
        x, y = rng.choice(names), rng.choice(names)
        k, n = rng.randint(1, 4), rng.randint(-9, 9)
        tensor = f"isinstance({x}, torch.Tensor)"
        array = f"type({x}) is np.ndarray"
        plain = f"{tensor} and not {x}.requires_grad"
        trained = f"{tensor} and {x}.is_leaf and {x}.requires_grad"
        linear = f"isinstance({x}, torch.nn.Linear)"
        lines.append(
            rng.choice(
                [
                    f"{x} = torch.arange({k * 3}.0)",
                    f"{x} = torch.ones(4, 3, dtype=torch.bfloat16)",
                    f"{x} = torch.nn.Linear({k}, 2)",
                    f"{x} = np.arange({k + 3}.0)",
                    f"{x} = {y}",
                    f"{x} = torch.empty(0)",
                    f"if {array} and {x}.flags.c_contiguous: {y} = torch.from_numpy({x})",
                    f"if {plain} and {x}.dtype != torch.bfloat16: {y} = {x}.numpy()",
                    f"if {plain} and {x}.ndim: {y} = {x}[::{k}]",
                    f"if {plain}: {y} = {x}.t() if {x}.ndim == 2 else {x}.reshape(-1)",
                    f"if {plain}: {x}.add_({n})",
                    f"if {plain} and {x}.numel() and {x}.is_contiguous(): {x}.view(-1)[0] = {n}",
                    f"if {plain}: {x}.data = torch.full(({k},), float({n}))",
                    f"if {plain} and {x}.is_floating_point(): {y} = torch.nn.Parameter({x})",
                    f"if {trained}: {x}.grad = torch.ones_like({x})",
                    f"if {tensor}: {x}.note = [{n}]",
                    f"if {array} and {x}.size: {x}.flat[0] = {n}",
                    f"if {linear}: {y} = {x}.weight",
                    f"if {linear}: {x}.float()(torch.ones(1, {x}.in_features)).sum().backward()",
                    f"if {linear}: {x}.double()",
                ]
            )
        )
    return "\n".join(lines)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_cells(peer, seed):
    compare(peer, seed, PRELUDE, cell)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_cells_on_tensors(peer, seed):
    pytest.importorskip("torch")
    compare(peer, seed, "import torch, numpy as np\ntorch.manual_seed(1)\n", tensor_cell)


def compare(peer, seed, prelude, cell):
    """Runs random cells locally and remotely; the namespaces have to stay equal."""
    rng = random.Random(seed)
    print(f"SEED={seed}")
    names = [f"v{i}" for i in range(6)]
    local = {"__name__": "__main__"}
    start = prelude + "\n".join(f"{name} = [{index}]" for index, name in enumerate(names))
    exec(start, local)
    exec(start, peer.namespace)
    for step in range(12):
        text = cell(rng, names)
        remote = rng.random() < 0.7
        if rng.random() < 0.2:
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                peer.run(text + "\n1 / 0")
            continue
        random_state(lambda: exec(text, local))
        peer.run(text) if remote else exec(text, peer.namespace)
        expected, got = Shape(), Shape()
        for name in names:
            want, have = expected.of(local[name]), got.of(peer.namespace[name])
            assert have == want, f"SEED={seed} step {step} remote={remote} {name}\n{text}"
