"""What a cell reads, binds and deletes."""

import pytest

import remote_fixtures  # noqa: F401  puts the package on the path
from tandem.remote.names import cell_names, global_names, wanted


@pytest.mark.parametrize(
    "source, reads, binds",
    [
        ("y = x + 1", {"x"}, {"y"}),
        ("x = 1; y = x", set(), {"x", "y"}),
        ("x += 1", {"x"}, {"x"}),
        ("x[0] = 1", {"x"}, set()),
        ("x.a = y", {"x", "y"}, set()),
        ("if c:\n x = 1\nprint(x)", {"c", "x", "print"}, {"x"}),
        ("if c:\n x = 1\nelse:\n x = 2\nx", {"c"}, {"x"}),
        ("for i in r:\n s = i\ns", {"r", "s"}, {"i", "s"}),
        ("while x:\n x = x.n", {"x"}, {"x"}),
        ("import a.b, c as d\na.z; d", set(), {"a", "d"}),
        ("from m import f as g\ng()", set(), {"g"}),
        ("def f(p=q):\n return p + z", {"q", "z"}, {"f"}),
        ("def f():\n global n\n n += 1", {"n"}, {"f", "n"}),
        ("def f(a):\n b = a\n def g():\n  return b + top\n return g", {"top"}, {"f"}),
        ("class A(B):\n v = w\n def m(self):\n  return helper(self)", {"B", "w", "helper"}, {"A"}),
        ("[i * k for i in seq]", {"k", "seq"}, set()),
        ("any((hit := i) for i in seq)", {"any", "seq"}, {"hit"}),
        ("f = lambda a, b=d: a + g", {"d", "g"}, {"f"}),
        ("try:\n x = a()\nexcept E as e:\n x = None\nx", {"a", "E"}, {"x", "e"}),
        ("with open(p) as h:\n t = h.read()", {"open", "p"}, {"h", "t"}),
        ("with c.suppress(E):\n x = f()\nx", {"c", "E", "f", "x"}, {"x"}),
        ("a and (x := f())\nx", {"a", "f", "x"}, {"x"}),
        ("(x := f()) and a\nx", {"a", "f"}, {"x"}),
        ("y = (x := f()) if a else b\nx", {"a", "b", "f", "x"}, {"x", "y"}),
        ("(p, [q, *r]) = v", {"v"}, {"p", "q", "r"}),
        ("match v:\n case [a, *b]:\n  a\n case {'k': c, **d}:\n  c", {"v"}, {"a", "b", "c", "d"}),
        ("@deco\ndef f():\n return z", {"deco", "z"}, {"f"}),
        ("x: int = y", {"int", "y"}, {"x"}),
        ("print(f'{a} {b!r:>{w}}')", {"print", "a", "b", "w"}, set()),
    ],
)
def test_reads_and_binds(source, reads, binds):
    names = cell_names(source)
    assert names.reads == reads
    assert names.binds == binds


def test_delete_reads_and_removes():
    names = cell_names("del x\nx = 1\ndel y")
    assert names.reads == {"x", "y"}
    assert names.deletes == {"x", "y"}
    assert names.binds == {"x"}


def test_magics_and_shell_commands_are_searched():
    source = (
        "get_ipython().run_line_magic('time', 'y = f(x)')\n"
        "get_ipython().run_line_magic('timeit', '-n 10 g(z)')\n"
        "get_ipython().system('ls {folder} $name')\n"
    )
    names = cell_names(source)
    assert {"f", "x", "g", "z", "folder", "name"} <= names.reads
    assert "y" in names.binds


def test_a_syntax_error_is_the_compilers():
    with pytest.raises(SyntaxError):
        cell_names("x = = 1")


def test_global_names_of_nested_code():
    def outer():
        return [inner_name(a) for a in outer_name]  # noqa: F821

    assert {"inner_name", "outer_name"} <= global_names(outer.__code__)


def test_builtins_stay_unless_replaced():
    assert wanted({"print", "len", "x"}, {"print": print, "len": 3, "x": 1}) == {"len", "x"}
