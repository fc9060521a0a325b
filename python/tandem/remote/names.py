"""The global names that a cell reads, binds and deletes, from its text.

The `ast` gives the order of the statements; `symtable` resolves the scopes of functions, classes
and comprehensions. The analysis is conservative: a name counts as read unless the cell certainly
binds it first. Names inside strings (`eval("x")`) are not seen; the option `-i` adds them.
"""

import ast
import builtins
import re
import symtable
from dataclasses import dataclass, field

_SHELL_NAME = re.compile(r"(?<![\w$])\$(\w+)|\{([^{}]+)\}")
_MAGIC_CALLS = {"run_line_magic", "run_cell_magic"}
_SYSTEM_CALLS = {"system", "getoutput"}


@dataclass
class CellNames:
    """`reads` need a value before the cell; `binds` and `deletes` change in the namespace."""

    reads: set = field(default_factory=set)
    binds: set = field(default_factory=set)
    deletes: set = field(default_factory=set)


def cell_names(source, filename="<cell>"):
    """Returns the `CellNames` of Python source; IPython syntax has to be transformed before.

    Raises SyntaxError as `compile` does.
    """
    tree = ast.parse(source, filename)
    scopes = _Scopes(symtable.symtable(source, "<cell>", "exec"))
    walker = _Walker(scopes)
    walker.block(tree.body)
    names = walker.names
    names.reads |= scopes.global_reads_of_nested_binds()
    return names


def global_names(code):
    """Returns the global names that a code object and the code nested in it may use."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            names |= global_names(constant)
    return names


class _Scopes:
    """Finds the symbol table of a function, class, lambda or comprehension."""

    def __init__(self, top):
        self._tables = {}
        self._declared = set()
        self._collect(top)

    def _collect(self, table):
        for child in table.get_children():
            self._tables.setdefault((child.get_name(), child.get_lineno()), []).append(child)
            self._collect(child)

    def names(self, name, line):
        """Returns the names read, and those bound through `global`, in a scope and below it."""
        reads, binds = set(), set()
        pending = list(self._tables.get((name, line), ()))
        while pending:
            table = pending.pop()
            pending.extend(table.get_children())
            for symbol in table.get_symbols():
                if not symbol.is_global():
                    continue
                if symbol.is_assigned() or symbol.is_imported():
                    binds.add(symbol.get_name())
                    if symbol.is_declared_global() and table.get_name() not in _COMPREHENSIONS:
                        self._declared.add(symbol.get_name())
                if symbol.is_referenced():
                    reads.add(symbol.get_name())
        return reads, binds

    def global_reads_of_nested_binds(self):
        """`global x; x += 1` reads `x`, though symtable may report only an assignment."""
        return set(self._declared)


_SCOPE_NAMES = {
    ast.Lambda: "lambda",
    ast.ListComp: "listcomp",
    ast.SetComp: "setcomp",
    ast.DictComp: "dictcomp",
    ast.GeneratorExp: "genexpr",
}
_COMPREHENSIONS = frozenset(_SCOPE_NAMES.values()) - {"lambda"}


class _Walker(ast.NodeVisitor):
    """Walks the module scope in the order of execution.

    `bound` holds the names that are certainly bound at the current point.
    """

    def __init__(self, scopes):
        self.names = CellNames()
        self.bound = set()
        self._scopes = scopes

    def block(self, statements):
        """Walks statements one after the other."""
        for statement in statements:
            self.visit(statement)

    def _branch(self, statements, before):
        """Walks a branch that starts with `before` bound; returns what is bound at its end."""
        self.bound = set(before)
        self.block(statements)
        ends = statements and isinstance(
            statements[-1], (ast.Raise, ast.Continue, ast.Break, ast.Return)
        )
        return None if ends else self.bound

    def _read(self, name):
        if name not in self.bound:
            self.names.reads.add(name)

    def _bind(self, name):
        self.names.binds.add(name)
        self.bound.add(name)

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self._read(node.id)
        elif isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        else:
            self._read(node.id)
            self.names.deletes.add(node.id)
            self.bound.discard(node.id)

    def visit_Assign(self, node):
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node):
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)
        elif not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_AugAssign(self, node):
        if isinstance(node.target, ast.Name):
            self._read(node.target.id)
        self.visit(node.value)
        self.visit(node.target)

    def visit_NamedExpr(self, node):
        self.visit(node.value)
        self.visit(node.target)

    def visit_Import(self, node):
        for alias in node.names:
            if alias.name != "*":
                self._bind(alias.asname or alias.name.split(".")[0])

    visit_ImportFrom = visit_Import

    def _nested(self, name, line):
        reads, binds = self._scopes.names(name, line)
        for read in reads:
            self._read(read)
        self.names.binds |= binds

    def _visit_function(self, node):
        for part in node.decorator_list + [node.args]:
            self.visit(part)
        if node.returns is not None:
            self.visit(node.returns)
        self._nested(node.name, node.lineno)
        if node.decorator_list:  # older Pythons report the line of the first decorator
            self._nested(node.name, node.decorator_list[0].lineno)
        self._bind(node.name)

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function

    def visit_ClassDef(self, node):
        for part in node.decorator_list + node.bases + [k.value for k in node.keywords]:
            self.visit(part)
        self._nested(node.name, node.lineno)
        if node.decorator_list:
            self._nested(node.name, node.decorator_list[0].lineno)
        self._bind(node.name)

    def visit_Lambda(self, node):
        self.visit(node.args)
        self._nested(_SCOPE_NAMES[type(node)], node.lineno)

    def visit_arg(self, node):
        if node.annotation is not None:
            self.visit(node.annotation)

    def _visit_comprehension(self, node):
        self.visit(node.generators[0].iter)
        self._nested(_SCOPE_NAMES[type(node)], node.lineno)
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr) and isinstance(inner.target, ast.Name):
                self.names.binds.add(inner.target.id)

    visit_ListComp = visit_SetComp = visit_DictComp = _visit_comprehension
    visit_GeneratorExp = _visit_comprehension

    def visit_If(self, node):
        self.visit(node.test)
        before = set(self.bound)
        ends = [self._branch(node.body, before), self._branch(node.orelse, before)]
        ends = [end for end in ends if end is not None]
        self.bound = set.intersection(*ends) if ends else before

    def _visit_loop(self, node):
        if isinstance(node, ast.While):
            self.visit(node.test)
            before = set(self.bound)
        else:
            self.visit(node.iter)
            before = set(self.bound)
            self.visit(node.target)
        self.block(node.body)
        self._branch(node.orelse, before)
        self.bound = before

    visit_While = visit_For = visit_AsyncFor = _visit_loop

    def _visit_with(self, node):
        for item in node.items:
            self.visit(item)
        before = set(self.bound)
        self.block(node.body)
        if any(_swallows(item.context_expr) for item in node.items):
            self.bound = before

    visit_With = visit_AsyncWith = _visit_with

    def visit_BoolOp(self, node):
        self.visit(node.values[0])
        before = set(self.bound)
        for value in node.values[1:]:
            self.visit(value)
        self.bound = before

    def visit_IfExp(self, node):
        self.visit(node.test)
        before = set(self.bound)
        for branch in (node.body, node.orelse):
            self.bound = set(before)
            self.visit(branch)
        self.bound = before

    def visit_Try(self, node):
        before = set(self.bound)
        self.block(node.body)
        self.block(node.orelse)
        ends = [set(self.bound)]
        for handler in node.handlers:
            self.bound = set(before)
            if handler.type is not None:
                self.visit(handler.type)
            if handler.name:
                self._bind(handler.name)
            end = self._branch(handler.body, self.bound)
            if end is not None:
                ends.append(end - {handler.name})
        self.bound = set(before)
        self.block(node.finalbody)
        self.bound |= set.intersection(*ends)

    visit_TryStar = visit_Try

    def visit_Match(self, node):
        self.visit(node.subject)
        before = set(self.bound)
        for case in node.cases:
            self.bound = set(before)
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self._bind(name)
                if isinstance(part, ast.expr):
                    self.visit(part)
            if case.guard is not None:
                self.visit(case.guard)
            self.block(case.body)
        self.bound = before

    def visit_Call(self, node):
        self.generic_visit(node)
        function = node.func
        if not isinstance(function, ast.Attribute):
            return
        texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
        texts = [text for text in texts if isinstance(text, str)]
        if function.attr in _MAGIC_CALLS:
            for text in texts[1:]:
                self._text(text)
        elif function.attr in _SYSTEM_CALLS:
            self._expansions(" ".join(texts))

    def _text(self, text):
        """Adds the names of a magic's text: Python after options, or shell expansions."""
        for attempt in (text, re.sub(r"^(\s*-\S+(\s+\d+)?)+", "", text).strip()):
            try:
                inner = cell_names(attempt)
            except SyntaxError:
                continue
            self.names.reads |= inner.reads - self.bound
            self.names.binds |= inner.binds
            return
        self._expansions(text)

    def _expansions(self, text):
        for dollar, braces in _SHELL_NAME.findall(text):
            try:
                self.names.reads |= cell_names(dollar or braces).reads - self.bound
            except SyntaxError:
                continue


def _swallows(manager):
    """Returns whether a context manager is one that ends its block at an exception, by its name."""
    function = manager.func if isinstance(manager, ast.Call) else manager
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name in ("suppress", "raises", "assertRaises")


_SHELL_ONLY = frozenset("In Out get_ipython exit quit open _ih _oh _dh".split())


def wanted(names, namespace):
    """Returns the names in `names` that have to travel: those that `namespace` defines.

    Builtins, and what IPython itself puts into the namespace, are on both sides.
    """
    return {n for n in names if n in namespace and not _is_everywhere(n, namespace[n])}


def _is_everywhere(name, value):
    return name in _SHELL_ONLY or (hasattr(builtins, name) and getattr(builtins, name) is value)
