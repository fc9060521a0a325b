"""State that travels keeps its identity: aliases, cycles, views, classes, in-place changes."""

import threading

import pytest

import remote_fixtures  # noqa: F401  puts the package on the path
from remote_fixtures import peer, peer_pipe  # noqa: F401
from tandem.remote.errors import CannotTravel, StaysOnWorker
from tandem.remote.proxy import RemoteValue

np = pytest.importorskip("numpy")


def local(peer, source):
    exec(compile(source, "<local cell>", "exec"), peer.namespace)


def test_aliases_cycles_and_in_place_changes(peer):
    local(peer, "a = [1]; b = {'a': a, 't': (a, [2])}; a.append(b); inner = b['t'][1]")
    before = dict(peer.namespace)
    peer.run("assert a[1] is b and b['t'][0] is a\na.append(3); b['t'][1].append(4); c = a")
    space = peer.namespace
    assert space["a"] is before["a"] and space["c"] is space["a"]
    assert space["a"][2] == 3 and space["a"][1] is space["b"]
    assert space["inner"] == [2, 4]


def test_classes_instances_and_closures(peer):
    local(
        peer,
        """
class Base:
    __slots__ = ()
    def name(self): return "base"
class P(Base):
    __slots__ = ("v", "__dict__")
    def __init__(self, v): self.v = v
    def name(self): return super().name() + str(helper(self.v))
def helper(x): return x + offset
def counter():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    return up, (lambda: n)
offset = 10
p = P(1); up, now = counter()
""",
    )
    klass = peer.namespace["P"]
    peer.run("text = p.name(); q = P(5); same = isinstance(q, type(p)); up(); up(); p.extra = q")
    space = peer.namespace
    assert space["text"] == "base11"
    assert type(space["q"]) is klass and space["same"] and space["p"].extra is space["q"]
    assert space["now"]() == 2 and space["up"]() == 3
    peer.run("offset = 20; text = p.name()")
    assert space["text"] == "base21" and space["helper"](1) == 21


def test_notebook_functions_bind_globals(peer):
    local(peer, "total = 1\ndef add(n):\n global total\n total += n")
    peer.run("add(5)")
    assert peer.namespace["total"] == 6


def test_views_share_memory_after_the_round_trip(peer):
    local(peer, "import numpy as np\na = np.arange(12.0).reshape(3, 4)\nv = a[1, ::-2]")
    a, v = peer.namespace["a"], peer.namespace["v"]
    peer.run("v[0] = 100; a[0, 0] = -1; w = a[2]; assert np.shares_memory(a, v)")
    space = peer.namespace
    assert space["a"] is a and space["v"] is v
    assert a[1, 3] == 100 and a[0, 0] == -1 and v[0] == 100
    space["w"][0] = 7
    assert a[2, 0] == 7


@pytest.mark.parametrize(
    "expression",
    [
        "np.zeros((0, 3))",
        "np.float32(3)",
        "np.array(5)",
        "np.asfortranarray(np.arange(6).reshape(2, 3))",
        "np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1).copy('K')",
        "np.array(['ab', 'c'])",
        "np.array([1, 'x', [2]], dtype=object)",
        "np.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')])",
        "np.array(['2020-01-01'], dtype='M8[D]')",
        "np.ma.masked_array([1, 2], [0, 1])",
        "np.frombuffer(b'abcd', dtype='u1')",
    ],
)
def test_arrays_of_many_kinds(peer, expression):
    local(peer, f"import numpy as np\na = {expression}\nd = {{}}")
    peer.run("d['a'] = a; d['copy'] = a.copy(); d['strides'] = a.strides")
    space = peer.namespace
    assert space["d"]["a"] is space["a"] or np.isscalar(space["a"])
    assert space["d"]["copy"].dtype == space["a"].dtype
    assert space["d"]["copy"].tolist() == space["a"].tolist()
    assert space["d"]["strides"] == space["a"].strides


@pytest.mark.parametrize(
    "setup, change, check",
    [
        ("import collections\nx = collections.Counter('aab')", "x['c'] += 2", "x['c'] == 2"),
        ("import collections\nx = collections.deque([1], 3)", "x.append(x)", "x[1] is x"),
        (
            "import collections\nx = collections.OrderedDict(a=1)",
            "del x['a']; x['b'] = 2",
            "list(x) == ['b']",
        ),
        ("import collections\nx = collections.defaultdict(list)", "x[1].append(2)", "x[1] == [2]"),
        ("import array\nx = array.array('i', [1])", "x.append(5)", "x.tolist() == [1, 5]"),
        ("x = bytearray(b'ab')", "x += b'c'", "x == b'abc'"),
        ("x = {1, 'a', (2, 3)}", "x.add(4); x.discard(1)", "x == {4, 'a', (2, 3)}"),
        ("import io\nx = io.BytesIO(b'abc'); x.read(1)", "x.read(1)", "x.read() == b'c'"),
        ("import random\nx = random.Random(3)", "r = x.random()", "r == random.Random(3).random()"),
        ("class A: pass\nx = A(); x.b = 1", "del x.b; x.c = x", "vars(x) == {'c': x}"),
        ("def x(a, *, b=[]): return b", "x.__defaults__ = (1,)", "x() == []"),
        ("import numpy as np\nx = np.arange(4)", "x.shape = (2, 2)", "x.shape == (2, 2)"),
        (
            "import numpy as np\nx = np.arange(4)",
            "x.flags.writeable = False",
            "not x.flags.writeable",
        ),
        (
            "import numpy as np\nx = np.random.default_rng(1)",
            "r = x.random()",
            "r == np.random.default_rng(1).random()",
        ),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass A:\n v: list\nx = A([1])",
            "x.v.append(2)",
            "x == A([1, 2])",
        ),
        (
            "import enum\nclass E(enum.Enum):\n A = 1\nx = [E.A]",
            "x.append(E(1))",
            "x[0] is x[1] is E.A",
        ),
        (
            "import collections\nT = collections.namedtuple('T', 'a b')\nx = [T(1, [2])]",
            "x[0].b.append(T)",
            "x[0].b[1] is T",
        ),
        (
            "import weakref\nclass A: pass\nx = A(); w = weakref.ref(x)",
            "x.found = w() is x",
            "x.found and w() is x",
        ),
        (
            "import typing\nclass A: pass\nx = [typing.Any, type(None), A, len, [].append]",
            "x.pop()",
            "x[0] is typing.Any and x[2] is A",
        ),
        ("import functools\nx = functools.partial(max, [1])", "y = [x]", "y[0] is x and x() == 1"),
        ("x = 'long ' * 5000; y = [x, x]", "y.append(x[:4])", "y[0] is x and y[2] == 'long'"),
        (
            "class A(dict): pass\nx = A(a=1); x.t = 2",
            "x['b'] = x.t",
            "x == {'a': 1, 'b': 2} and x.t == 2",
        ),
        (
            "class K:\n def __init__(s, v): s.v = v\n def __hash__(s): return hash(s.v)\n"
            " def __eq__(s, o): return s.v == o.v\nk = K('q'); x = {k: 1}",
            "x[K('q')] += 1",
            "x[k] == 2 and len(x) == 1",
        ),
    ],
)
def test_containers_and_objects_change_in_place(peer, setup, change, check):
    local(peer, setup)
    x = peer.namespace["x"]
    peer.run(change)
    assert peer.namespace["x"] is x
    assert eval(check, peer.namespace)


def test_deep_structures_need_no_recursion(peer):
    local(
        peer,
        "class N: pass\nhead = N(); n = head\nfor i in range(5000):\n n.next = N(); n = n.next",
    )
    peer.run("m = head\nwhile hasattr(m, 'next'): m = m.next\nm.end = True")
    assert peer.namespace["n"].end is True


def test_unchanged_state_does_not_travel_again(peer):
    local(peer, "import numpy as np\nbig = np.ones(3 << 20, 'u1'); text = 'x' * 100000; l = [[1]]")
    peer.run("s = big.sum() + len(text) + len(l)")
    assert peer.sent.nbytes > 3 << 20
    assert peer.returned["records"] == []
    peer.run("s = big.sum() + len(text) + len(l)")
    assert peer.sent.records == [] and peer.sent.nbytes == 0
    peer.namespace["big"][5] = 2
    peer.run("s = big.sum()")
    assert peer.sent.nbytes < 2 << 20  # one chunk of three
    assert peer.namespace["s"] == (3 << 20) + 1


def test_names_deleted_and_rebound(peer):
    local(peer, "x = [1]; y = x; z = 3")
    peer.run("del z; x = [2]; y.append(5)")
    assert "z" not in peer.namespace
    assert peer.namespace["x"] == [2] and peer.namespace["y"] == [1, 5]


def test_a_change_of_an_object_that_the_cell_then_lets_go(peer):
    local(peer, "a = [1]; box = [a]; d = {}; inner = [d]")
    peer.run("box[0].append(2); box.clear(); inner[0]['k'] = box; del inner")
    assert peer.namespace["a"] == [1, 2] and peer.namespace["box"] == []
    assert peer.namespace["d"]["k"] is peer.namespace["box"]
    with pytest.raises(RuntimeError):
        peer.run("d['k'].append(9); d.clear(); 1 / 0")
    peer.run("n = len(box)")
    assert peer.namespace["n"] == 0


def test_a_failed_cell_changes_nothing_and_the_next_one_starts_from_the_notebooks_state(peer):
    local(peer, "import numpy as np\na = np.zeros(4); l = [1]; d = {}")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        peer.run("a[0] = 9; l.append(2); d['l'] = [l]; new = 1; 1 / 0")
    assert peer.namespace["a"][0] == 0 and peer.namespace["l"] == [1] and peer.namespace["d"] == {}
    assert "new" not in peer.namespace
    peer.run("seen = (a.tolist(), list(l), dict(d))")
    assert peer.namespace["seen"] == ([0, 0, 0, 0], [1], {})


def test_outputs_limit_what_comes_back(peer):
    local(peer, "l = [1]")
    peer.run("l.append(2); a = 1; b = 2", outputs=["a"])
    assert peer.namespace["l"] == [1] and peer.namespace["a"] == 1 and "b" not in peer.namespace
    peer.run("n = len(l)")
    assert peer.namespace["n"] == 1


@pytest.mark.parametrize(
    "setup, path, word",
    [
        ("x = open('/dev/null')", "x", "Open it inside the cell"),
        ("x = {'k': [open('/dev/null', 'w')]}", "x['k'][0]", "open file"),
        ("import threading\nclass A: pass\nx = A(); x.lock = threading.Lock()", "x.lock", "a lock"),
        ("x = (i for i in range(3))", "x", "generator"),
        ("import socket\nx = [socket.socket()]", "x[0]", "socket"),
        ("import sqlite3\nx = sqlite3.connect(':memory:')", "x", "Connect inside the cell"),
        ("import threading\nx = threading.Thread()", "x", "a thread"),
        ("f = open('/dev/null')\ndef x(): return f", "f", "open file"),
        ("import ctypes\nx = {'c': ctypes.CDLL(None)}", "x['c']", "Load it inside the cell"),
        ("import mmap\nx = mmap.mmap(-1, 8)", "x", "memory map"),
    ],
)
def test_what_cannot_travel_is_named_before_anything_is_sent(peer, setup, path, word):
    local(peer, setup)
    with pytest.raises(CannotTravel) as error:
        peer.run("x", names={"x"})
    assert error.value.path == path
    assert word in str(error.value)
    assert peer.sent is None


def test_a_value_that_cannot_come_back_stays_on_the_worker(peer):
    local(peer, "out = []")
    peer.run("g = (i * i for i in range(5)); next(g); out.append(g)")
    proxy = peer.namespace["g"]
    assert isinstance(proxy, RemoteValue) and "generator" in repr(proxy)
    assert peer.namespace["out"][0] is proxy
    with pytest.raises(StaysOnWorker, match="%gpu fetch"):
        next(proxy)
    peer.run("second = next(g); same = out[0] is g")
    assert peer.namespace["second"] == 1 and peer.namespace["same"]


def test_random_numbers_continue_where_the_notebook_was(peer):
    import random

    local(peer, "import random, numpy as np")
    random.seed(1), np.random.seed(1)
    expected = [random.random(), np.random.rand(), random.random(), np.random.rand()]
    random.seed(1), np.random.seed(1)
    peer.run("a = [random.random(), np.random.rand()]")
    assert peer.namespace["a"] + [random.random(), np.random.rand()] == expected


def test_a_collected_object_is_forgotten_on_both_sides(peer):
    local(peer, "class A: pass\nx = [A() for _ in range(50)]")
    peer.run("n = len(x)")
    before = len(peer.notebook.table)
    del peer.namespace["x"]
    peer.run("n = 1")
    assert len(peer.notebook.table) < before - 50


def test_repeated_cells_do_not_grow_the_tables(peer):
    local(peer, "import random, collections\nr = random.Random(1); c = collections.Counter('ab')")
    sizes = set()
    for _ in range(6):
        peer.run("v = r.random(); c['a'] += 1")
        sizes.add(len(peer.notebook.table))
    assert len(sizes) <= 2


def test_threads_do_not_matter(peer):
    """The digests of large buffers are made by a thread pool that survives many cells."""
    peer.namespace["b"] = np.zeros(9 << 20, "u1")
    threads = threading.active_count()
    for value in range(10):
        peer.namespace["b"][-1] = value
        peer.run("last = int(b[-1])")
        assert peer.namespace["last"] == value
    assert threading.active_count() <= threads + 2  # of the pool
