"""The concrete syntax of one function, cut out of its file, with positions in that file.

libcst's position pass over a whole module costs twice the parse. Here statements get their positions from the ``ast``
index, and calls are paired with ``ast`` calls of the same statement when somebody asks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

import libcst as cst

from ampclip_lint.diagnostics import Position, Span
from ampclip_lint.syntax.index import FunctionInfo, ModuleIndex, ProgramIndex

#: Fields that never hold an expression or statement.
_LAYOUT = frozenset(
    {
        "lpar",
        "rpar",
        "leading_lines",
        "lines_after_decorators",
        "header",
        "footer",
        "trailing_whitespace",
        "semicolon",
        "comma",
        "equal",
        "dot",
        "colon",
        "indent",
        "lbracket",
        "rbracket",
        "lbrace",
        "rbrace",
        "keyword",
        "star",
        "annotation",
    }
)
#: Fields in source order where the declared order is another one.
_ORDER: dict[type, tuple[str, ...]] = {
    cst.IfExp: ("body", "test", "orelse"),
    cst.CompFor: ("target", "iter", "ifs", "inner_for_in"),
    cst.Lambda: ("params", "body"),
    cst.DictComp: ("key", "value", "for_in"),
    cst.NamedExpr: ("target", "value"),
}

#: What is read of one function, or of the body of a module: nodes of its ``ast`` tree, and how deep they are nested.
#: More is generated code, on which libcst takes minutes, or overflows the stack of the process.
MAX_SIZE = 100_000
MAX_NESTING = 1_000

#: Flat in the tree of ``ast``, and nested in the other: `a and b and c`, and the loops of a comprehension.
_NESTED = (ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Unreadable(ValueError):
    """Too much text or too deep for a concrete tree; the message says which."""


class ConcreteFunction:
    """
    A function's body as libcst statements, each paired with its ``ast`` twin. It is parsed when somebody asks for it,
    who gets `Unreadable` or `libcst.ParserSyntaxError` where that can't be done; a place needs no more than the twin.
    """

    def __init__(self, info: FunctionInfo) -> None:
        self.info = info
        self._calls: dict[int, Span] = {}
        self._listed: set[int] = set()

    @cached_property
    def _definition(self) -> cst.FunctionDef | None:
        """None for the body of a module."""
        node = self.info.node
        if isinstance(node, ast.Module):
            return None
        check_size([node])
        return _cut(self.info.module, node)

    @property
    def params(self) -> cst.Parameters | None:
        return None if self._definition is None else self._definition.params

    @cached_property
    def body(self) -> Sequence[cst.BaseStatement]:
        if self._definition is None:
            check_size(self.twins)
            return [self._module_statement(self.info.module, node) for node in self.twins]
        suite = self._definition.body
        return suite.body if isinstance(suite, cst.IndentedBlock) else [cst.SimpleStatementLine(suite.body)]  # type: ignore[arg-type]

    @cached_property
    def twins(self) -> list[ast.stmt]:
        """Of a module without the definitions, which are functions of their own."""
        if not isinstance(self.info.node, ast.Module):
            return self.info.node.body
        definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in self.info.node.body if not isinstance(node, definitions)]

    def _module_statement(self, module: ModuleIndex, node: ast.stmt) -> cst.BaseStatement:
        text = "".join(module.lines[node.lineno - 1 : node.end_lineno])
        found = cst.parse_module(text).body[0]
        if isinstance(found, cst.SimpleStatementLine) and len(found.body) > 1:
            # Several statements on one line: the one that as many stand before.
            before = [n for n in self.twins_of(module) if n.lineno == node.lineno and n.col_offset < node.col_offset]
            return found.with_changes(body=[found.body[min(len(before), len(found.body) - 1)]])
        return found

    @staticmethod
    def twins_of(module: ModuleIndex) -> Sequence[ast.stmt]:
        """The statements of a module's own body."""
        return module.tree.body

    def pair(self, body: Sequence[cst.CSTNode], twins: Sequence[ast.stmt]) -> Iterator[tuple[cst.CSTNode, ast.stmt]]:
        """Small and compound statements of a suite with their twins."""
        small: list[cst.CSTNode] = []
        for statement in body:
            if isinstance(statement, cst.SimpleStatementLine):
                small.extend(statement.body)
            else:
                small.append(statement)
        if len(small) == len(twins):
            yield from zip(small, twins)
        else:
            # Never seen; positions then degrade to the suite's first line instead of failing.
            for node in small:
                yield node, twins[0]

    def span(self, node: ast.stmt | ast.expr) -> Span:
        module = self.info.module
        name = "" if isinstance(self.info.node, ast.Module) else self.info.qualname.replace(".<locals>", "")
        return Span(
            module.file.name,
            _position(module, node.lineno, node.col_offset),
            _position(module, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset),
            name,
        )

    def call_span(self, call: cst.Call, statement: cst.CSTNode, twin: ast.stmt) -> Span:
        """Where a call inside a statement stands."""
        if id(statement) not in self._listed:
            self._listed.add(id(statement))
            ours = list(_calls_of(statement))
            theirs = sorted(
                _ast_calls(twin), key=lambda n: (n.lineno, n.col_offset, -(n.end_lineno or 0), -(n.end_col_offset or 0))
            )
            if len(ours) == len(theirs):
                for mine, their in zip(ours, theirs):
                    self._calls[id(mine)] = self.span(their)
        return self._calls.get(id(call)) or self.span(twin)


class ConcreteFunctions:
    """The functions of a program as libcst reads them, each once however many roots follow it."""

    def __init__(self, _program: ProgramIndex) -> None:
        self._functions: dict[FunctionInfo, ConcreteFunction] = {}
        self._assigned: dict[ast.stmt, cst.BaseExpression | None] = {}

    def function(self, info: FunctionInfo) -> ConcreteFunction:
        found = self._functions.get(info)
        if found is None:
            found = self._functions[info] = ConcreteFunction(info)
        return found

    def assigned(self, node: ast.Assign | ast.AnnAssign) -> cst.BaseExpression | None:
        """What an assignment assigns; None where libcst can't read it."""
        if node not in self._assigned:
            assert node.value is not None
            try:
                self._assigned[node] = cst.parse_expression(ast.unparse(node.value))
            except cst.ParserSyntaxError:
                self._assigned[node] = None
        return self._assigned[node]


def check_size(statements: Sequence[ast.stmt]) -> None:
    """Refuse what libcst can't take."""
    size = 0
    pending: list[tuple[ast.AST, int]] = [(node, 0) for node in statements]
    while pending:
        node, depth = pending.pop()
        size += 1
        inside = list(ast.iter_child_nodes(node))
        width = len(inside) if isinstance(node, _NESTED) else 1
        if size > MAX_SIZE:
            raise Unreadable("it is too long")
        if depth + width > MAX_NESTING:
            raise Unreadable("it is nested too deeply")
        pending.extend((child, depth + width) for child in inside)


def _cut(module: ModuleIndex, node: ast.FunctionDef | ast.AsyncFunctionDef) -> cst.FunctionDef:
    """Parse a function's own lines. An indented one is wrapped, so that strings in it keep their text."""
    lines = module.lines[node.lineno - 1 : node.end_lineno]
    text = "".join(lines)
    if not text.endswith("\n"):
        text += "\n"
    if node.col_offset:
        first = lines[0].encode()[: node.col_offset].decode()
        if first.strip():  # `class A: def f(self): ...` cannot be; `if x: def f()` neither.
            text = text[len(first) :]
        else:
            text = "if 1:\n" + text
    found: cst.CSTNode = cst.parse_module(text).body[0]
    if isinstance(found, cst.If):
        found = found.body.body[0]
    assert isinstance(found, cst.FunctionDef)
    return found


def _position(module: ModuleIndex, row: int, offset: int) -> Position:
    line = module.lines[row - 1] if row <= len(module.lines) else ""
    if line.isascii():
        return Position(row, offset + 1)
    return Position(row, len(line.encode()[:offset].decode("utf-8", "replace")) + 1)


def _calls_of(node: cst.CSTNode) -> Iterator[cst.Call]:
    """Calls of a statement's own expressions in source order, outer ones first; no f-strings, no nested suites."""
    if isinstance(node, cst.Call):
        yield node
        yield from _calls_of(node.func)
        for arg in node.args:
            yield from _calls_of(arg.value)
        return
    if isinstance(node, (cst.FormattedString, cst.BaseSuite, cst.BaseParenthesizableWhitespace, cst.Name)):
        return
    fields = _ORDER.get(type(node)) or tuple(node.__dataclass_fields__)
    for name in fields:
        if name in _LAYOUT or name.startswith("whitespace"):
            continue
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield from _calls_of(value)
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, cst.CSTNode):
                    if isinstance(node, (cst.If, cst.For, cst.While, cst.Try)) and isinstance(item, cst.BaseStatement):
                        continue
                    yield from _calls_of(item)


def _ast_calls(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call):
        yield node
    if isinstance(node, ast.JoinedStr):
        return
    for name, value in ast.iter_fields(node):
        if name in ("body", "orelse", "finalbody", "handlers", "cases") and isinstance(node, ast.stmt):
            continue
        if name in ("annotation", "returns"):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield from _ast_calls(item)
