"""Shared copies of large buffers: when they are made, what they find, and that they go away."""

import gc
import os
import random
from pathlib import Path

import pytest

import remote_fixtures  # noqa: F401  puts the package on the path
from remote_fixtures import peer_pipe  # noqa: F401
from remote_fixtures import Peer
from tandem.remote import shadow
from tandem.remote.chunks import CHUNK, differing_ranges
from tandem.remote.shadow import Shadow, Shadows, compare

np = pytest.importorskip("numpy")
SIZE = 40 * CHUNK + 1000  # two threads compare it


@pytest.fixture
def peer(peer_pipe):
    return Peer(peer_pipe, shadows=True)


def shadow_maps(pid="self"):
    return Path(f"/proc/{pid}/maps").read_text().count("tandem-shadow")


def open_shadows():
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum("tandem-shadow" in os.readlink(link) for link in links if os.path.lexists(link))


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, 3 * CHUNK + 5, SIZE])
def test_every_difference_is_found(size):
    rng = random.Random(size)
    data = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    assert differing_ranges(memoryview(data), memoryview(data.copy())) == []
    for offset in {rng.randrange(size) for _ in range(20)} | {0, size - 1} if size else ():
        changed = data.copy()
        changed[offset] ^= 1 << rng.randrange(8)
        ((start, length),) = differing_ranges(memoryview(data), memoryview(changed))
        assert start <= offset < start + length <= size and length <= CHUNK
    if size:
        assert differing_ranges(memoryview(data), memoryview(data ^ 1)) == [(0, size)]


def test_a_buffer_that_travels_again_gets_a_shadow(monkeypatch):
    shadows, data = Shadows(), np.zeros(SIZE, np.uint8)
    first, ranges = compare(None, memoryview(data), shadows)
    assert isinstance(first, bytes) and ranges == [(0, SIZE)]
    data[5] = 1
    second, ranges = compare(first, memoryview(data), shadows)
    assert isinstance(second, bytes) and ranges == [(0, CHUNK)]  # digests serve small changes
    assert compare(second, memoryview(data), shadows) == (second, [])
    data[: SIZE // 2 + CHUNK] += 1
    assert isinstance(compare(second, memoryview(data), None)[0], bytes)
    third, ranges = compare(second, memoryview(data), shadows)
    assert isinstance(third, Shadow) and sum(length for _, length in ranges) < SIZE
    third.write(memoryview(data), ranges)
    assert bytes(third.view) == data.tobytes()
    assert compare(third, memoryview(data), shadows) == (third, [])
    data[-1] += 1
    assert compare(third, memoryview(data), shadows) == (third, [(40 * CHUNK, 1000)])
    shorter, ranges = compare(third, memoryview(data)[:-1], shadows)
    assert isinstance(shorter, bytes) and ranges == [(0, SIZE - 1)]


@pytest.mark.parametrize(
    "name, value", [("_MOST_BYTES", SIZE - 1), ("_LEAST_BYTES", SIZE + 1), ("_memory_left", lambda: SIZE)]
)
def test_a_shadow_takes_no_more_memory_than_it_may(monkeypatch, name, value):
    shadows = Shadows()
    assert shadows.new(SIZE) is not None
    monkeypatch.setattr(shadow, name, value)
    assert shadows.new(SIZE) is None
    known, _ = compare(None, memoryview(bytes(SIZE)), shadows)
    assert isinstance(compare(known, memoryview(bytes([1]) * SIZE), shadows)[0], bytes)


def test_all_shadows_together_are_bounded(monkeypatch):
    monkeypatch.setattr(shadow, "_MOST_BYTES", 2 * SIZE)
    shadows = Shadows()
    held = [shadows.new(SIZE), shadows.new(SIZE)]
    assert None not in held and shadows.new(SIZE) is None
    held.pop()
    assert shadows.new(SIZE) is not None


def test_memory_goes_with_the_array(peer):
    gc.collect()  # arrays of earlier tests must not go while this one counts
    before = shadow_maps(), open_shadows()
    space = peer.namespace
    space["a"] = np.zeros(SIZE, np.uint8)
    for value in range(1, 4):
        space["a"][:] = value
        peer.run("pid = __import__('os').getpid(); a += 1")
        assert (space["a"] == value + 1).all()
    assert shadow_maps() == before[0] + 1 and shadow_maps(space["pid"]) >= 1
    assert open_shadows() == before[1]  # the worker has mapped it
    there = shadow_maps(space["pid"])
    del space["a"]
    peer.run("x = 1")
    assert shadow_maps() == before[0] and shadow_maps(space["pid"]) == there - 1


def test_the_worker_makes_shadows_as_well(peer):
    space = peer.namespace
    peer.run("import numpy as np\na = np.zeros(1 << 20, np.uint8)")
    for value in range(1, 5):
        peer.run("a += 1")
        assert (space["a"] == value).all()
        peer.run("same = a.sum()")
        assert peer.sent.nbytes < 4096 and all(r.size < 0 for r in peer.returned["records"])
        space["a"][7] += 1
        assert len(peer.notebook.prepare({"a"}).shared) == 1  # both sides use it
        space["a"][7] -= 1


def test_what_was_not_sent_is_not_known(peer):
    """A dry run, a change after it, and a cell that fails leave no trace in a shadow."""
    space = peer.namespace
    space["a"] = np.zeros(SIZE, np.uint8)
    for value in (1, 2):
        space["a"][:] = value
        peer.run("s = int(a[0])")
    space["a"][:] = 3
    peer.notebook.prepare({"a"}).release()
    peer.run("s = int(a[-1])")
    assert space["s"] == 3
    with pytest.raises(RuntimeError):
        peer.run("a[5] = 9; 1 / 0")
    assert space["a"][5] == 3
    peer.run("s = int(a[5])")
    assert space["s"] == 3
    space["a"][:] = 4  # written into the shadow, and lost on the way
    package = peer.notebook.prepare({"a"})
    peer.notebook.header(package), package.post()
    peer.notebook.failed()
    space["a"][:] = 3
    peer.run("s = int(a[5]); a[6] = 7")
    assert space["s"] == 3 and space["a"][6] == 7


def test_a_value_that_stayed_reaches_objects_as_the_notebook_has_them(peer):
    """A kept value reaches objects that the cell's text does not name."""
    space = peer.namespace
    exec("import numpy as np\na = np.zeros(3 << 20, 'u1'); l = [1]", space)
    peer.run("def steps(a, l):\n while True: yield a, l\ng = steps(a, l); h = [next(g)]")
    assert space["h"][0][0] is space["a"]
    for value in (1, 2):
        with pytest.raises(RuntimeError):
            peer.run("a[:] = 9; l.append(2); 1 / 0")
        space["a"][0] = value
        peer.run("pair = next(g); seen = int(pair[0][0]), len(pair[1])")
        assert space["pair"][0] is space["a"] and space["seen"] == (value, 1)
        assert space["a"][5] == 0 and space["l"] == [1]
    space["a"][:] = 5
    package = peer.notebook.prepare({"a"})
    peer.notebook.header(package), package.post()  # and the message was lost
    peer.notebook.failed()
    space["a"][:] = 6
    peer.run("pair = next(g); seen = int(pair[0][0])")
    assert space["seen"] == 6 and (space["a"] == 6).all()


SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(12)


def change(rng, names):
    """Returns the text that changes one of the arrays, a little or all of it."""
    name, value = rng.choice(names), rng.randrange(1, 256)
    start = rng.randrange(SIZE - CHUNK)
    return rng.choice([
        f"{name}[:] += {value}",
        f"{name}[{start}] += {value}",
        f"{name}[{start}:] += {value}",
        f"{name}[:{start}] += {value}",
        f"{name}[::{rng.randrange(1, 3 * CHUNK)}] += {value}",
        f"{name} = {name}.copy()",
        f"{name} = np.full({rng.choice([SIZE, SIZE - CHUNK])}, {value}, 'u1')",
        f"{name} = {rng.choice(names)}",
    ])  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_on_both_sides(peer, seed):
    """Cells and the notebook change large arrays; cells fail, are dropped or lost on the way."""
    print(f"SEED={seed}")
    rng, names = random.Random(seed), ["a", "b", "c"]
    space, model = peer.namespace, {"np": np}
    setup = f"import numpy as np\na, b, c = (np.zeros({SIZE}, 'u1') for _ in 'abc')"
    exec(setup, space), exec(setup, model)
    for _ in range(25):
        action = rng.choice(["here", "cell", "cell", "cell", "fails", "not sent", "lost", "outputs"])
        source = "; ".join(change(rng, names) for _ in range(rng.randrange(1, 4)))
        used = {name for name in names if name in source}
        if action == "here":
            exec(source, space), exec(source, model)
        elif action == "cell":
            peer.run(source, names=used | {"np"}), exec(source, model)
        elif action == "fails":
            with pytest.raises(RuntimeError):
                peer.run(f"{source}; 1 / 0", names=used | {"np"})
        elif action == "outputs":
            peer.run(f"{source}; r = 5", names=used | {"np"}, outputs=["r"])
        else:
            package = peer.notebook.prepare(used)
            if action == "lost":
                peer.notebook.header(package), package.post()
                peer.notebook.failed()
            package.release()
        for name in names:
            assert np.array_equal(space[name], model[name]), (action, source, name)
        for one in names:
            assert [space[one] is space[n] for n in names] == [model[one] is model[n] for n in names]
