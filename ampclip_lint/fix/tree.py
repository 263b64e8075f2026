"""A file as statements, blocks and calls with their places, and the text edits that insert, remove and move statements.

Knows Python's layout (indentation, `;`, suites behind their colon, comments) and nothing of gradients. Places are rows
and columns of the text of the file, both from 1; in a notebook, of the program that its cells make.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import field
from functools import cached_property, lru_cache
from typing import NamedTuple

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from ampclip_lint.diagnostics import Edit, Position, Span
from ampclip_lint.fix.candidate import without_rows
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.concrete import Unreadable, check_size
from ampclip_lint.syntax.functions import MODULE
from ampclip_lint.syntax.source import SourceFile


@dataclass(eq=False)
class Block:
    """The statements of one suite."""

    owner: Statement | None
    """The compound statement that it belongs to; None for a module."""
    tree: Tree
    guard: str | None = ""
    """The condition under which it runs, as the source writes it; empty without one, None where it can't be told."""
    inline: bool = False
    """Whether it stands behind its colon."""
    own: list[Statement] = field(default_factory=list)
    """What is read of it: all of it, but of a module only what somebody asked for."""
    other: Block | None = None
    """The arm that runs instead, of an `if` with two."""

    @property
    def statements(self) -> list[Statement]:
        return self.own if self.owner is not None else self.tree.top_level


@dataclass(eq=False)
class Statement:
    """A simple statement, or a compound one with its blocks."""

    node: cst.CSTNode
    block: Block
    shares_line: bool
    """Whether it stands beside others, or behind a colon."""
    tree: Tree
    chunk: _Chunk
    blocks: list[Block] = field(default_factory=list)

    @cached_property
    def start(self) -> Position:
        return self.chunk.place(self.node)[0]

    @cached_property
    def end(self) -> Position:
        last = [inner.statements[-1].end for inner in self.blocks if inner.statements]
        return max(last) if last else self.chunk.place(self.node)[1]

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Those of its own expressions, not those in its blocks."""
        return tuple(self.tree.calls_in(self.node, self))

    @property
    def index(self) -> int:
        return self.block.statements.index(self)

    @property
    def function(self) -> Statement | None:
        """The definition that it stands in."""
        owner = self.block.owner
        return owner if owner is None or isinstance(owner.node, cst.FunctionDef) else owner.function

    @property
    def enclosing(self) -> Iterator[Statement]:
        """The compound statements around it, inner ones first, inside its function."""
        owner = self.block.owner
        if owner is not None and not isinstance(owner.node, (cst.FunctionDef, cst.ClassDef)):
            yield owner
            yield from owner.enclosing

    @property
    def arms(self) -> list[Block]:
        """The blocks around it, the innermost first, inside its function."""
        return [self.block, *(owner.block for owner in self.enclosing)]


@dataclass(eq=False)
class Call:
    """A call in a statement; `receiver` is what stands before its last name."""

    node: cst.Call
    statement: Statement
    name: str
    receiver: str
    args: tuple[str, ...]
    guards: tuple[str, ...] = ()
    """The conditions of the conditional expressions around it."""

    @cached_property
    def start(self) -> Position:
        return self.statement.chunk.place(self.node)[0]

    @cached_property
    def end(self) -> Position:
        return self.statement.chunk.place(self.node)[1]

    @property
    def is_statement(self) -> bool:
        """Whether the call is all of its statement."""
        node = self.statement.node
        return isinstance(node, cst.Expr) and node.value is self.node


class Tree:
    """
    The statements of one file, whose parts are read when somebody asks for them: a fix needs one function of it, as a
    rule. Raises `SyntaxError` where the file is no Python. A part that libcst can't take has no statements.
    """

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.lines = source.text.split("\n")
        self.module = Block(None, self)
        self._chunks: list[_Chunk] = []
        seen: Counter[str] = Counter()
        body = ast.parse(source.text).body
        for first, last, nodes in _top_level(body):
            text = "\n".join([*self.lines[first - 1 : last], ""])
            self._chunks.append(_Chunk(first, last, text, seen[text], not all(map(_only_defines, nodes)), self))
            seen[text] += 1
        self.step = self._indentation(body)
        """One level of indentation."""

    def _indentation(self, body: Sequence[ast.stmt]) -> str:
        for node in body:
            inner: list[ast.stmt] = getattr(node, "body", [])
            if inner and inner[0].lineno > node.lineno:
                row = self.lines[inner[0].lineno - 1]
                return row[: len(row) - len(row.lstrip())]
        return _NOTHING.default_indent

    # -- building ---------------------------------------------------------------------------------------------------

    def statements_of(self, chunk: _Chunk, nodes: Sequence[cst.CSTNode]) -> list[Statement]:
        """All statements of a part of the file, in the order of the text."""
        found: list[Statement] = []
        self._fill(_Filling(chunk, found), self.module, nodes)
        return found

    def _fill(self, filling: _Filling, block: Block, nodes: Sequence[cst.CSTNode]) -> None:
        for node in nodes:
            if isinstance(node, cst.SimpleStatementLine):
                for small in node.body:
                    self._add(filling, block, small, shares_line=block.inline or len(node.body) > 1)
            elif isinstance(node, cst.BaseSmallStatement):
                self._add(filling, block, node, shares_line=True)
            else:
                self._compound(filling, block, node)

    def _add(self, filling: _Filling, block: Block, node: cst.CSTNode, *, shares_line: bool) -> Statement:
        statement = Statement(node, block, shares_line, self, filling.chunk)
        block.own.append(statement)
        filling.found.append(statement)
        return statement

    def _compound(self, filling: _Filling, block: Block, node: cst.CSTNode) -> None:
        statement = self._add(filling, block, node, shares_line=False)
        arms: list[Block] = []
        denied: str | None = ""
        part: cst.CSTNode | None = node
        while part is not None:
            if isinstance(part, cst.If):
                test = self.code(part.test)
                arms.append(self._suite(filling, statement, part.body, test))
                denied = f"not ({test})" if denied == "" else None
                part = part.orelse
                continue
            if isinstance(part, cst.Else) and isinstance(node, cst.If):
                arms.append(self._suite(filling, statement, part.body, denied))
            else:
                statement.blocks += [self._suite(filling, statement, body, "") for body in _bodies(part)]
            part = None
        if len(arms) == 2 and denied is not None:
            arms[0].other, arms[1].other = arms[1], arms[0]
        statement.blocks += arms

    def _suite(self, filling: _Filling, owner: Statement, body: cst.BaseSuite, guard: str | None) -> Block:
        block = Block(owner, self, guard, inline=isinstance(body, cst.SimpleStatementSuite))
        self._fill(filling, block, body.body)
        return block

    def calls_in(self, node: cst.CSTNode, statement: Statement, guards: tuple[str, ...] = ()) -> Iterator[Call]:
        """The calls in a node that belong to the statement itself, inner ones first."""
        for child in node.children:
            if not isinstance(child, (cst.BaseSuite, cst.Else, cst.Finally, cst.ExceptHandler)):
                if isinstance(node, cst.IfExp) and child is not node.test:
                    test = self.code(node.test)
                    yield from self.calls_in(
                        child, statement, (*guards, test if child is node.body else f"not ({test})")
                    )
                else:
                    yield from self.calls_in(child, statement, guards)
        if isinstance(node, cst.Call) and isinstance(node.func, (cst.Attribute, cst.Name)):
            if isinstance(node.func, cst.Attribute):
                name, receiver = node.func.attr.value, self.code(node.func.value)
            else:
                name, receiver = node.func.value, ""
            args = tuple(self.code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)).strip() for arg in node.args)
            yield Call(node, statement, name, receiver, args, guards)

    # -- asking -----------------------------------------------------------------------------------------------------

    @cached_property
    def top_level(self) -> list[Statement]:
        """The statements of the module itself."""
        return [statement for chunk in self._chunks for statement in chunk.statements if statement.block is self.module]

    def place(self, node: cst.CSTNode) -> tuple[Position, Position]:
        """From where to where a node reaches, of a part that was read."""
        read = (chunk for chunk in self._chunks if chunk.is_read)
        for chunk in sorted(read, key=lambda chunk: not chunk.parsed.is_placed):
            if node in chunk.parsed.positions:
                return chunk.place(node)
        raise KeyError(node)

    def code(self, node: cst.CSTNode) -> str:
        """A node as the source writes it."""
        return _NOTHING.code_for_node(node)

    def text(self, start: Position, end: Position) -> str:
        """What stands between two places."""
        if start.row == end.row:
            return self.lines[start.row - 1][start.column - 1 : end.column - 1]
        first, last = self.lines[start.row - 1], self.lines[end.row - 1]
        return "\n".join([first[start.column - 1 :], *self.lines[start.row : end.row - 1], last[: end.column - 1]])

    def at(self, start: Position) -> Statement | None:
        """The innermost statement that a place lies in."""
        found = None
        for statement in self.around(start.row):
            if statement.start <= start < statement.end or statement.start == start:
                found = statement
        return found

    def call_at(self, start: Position, end: Position) -> Call | None:
        """The call that stands exactly there, or the outermost one of the statement that begins there."""
        statement = self.at(start)
        calls = statement.calls if statement is not None else ()
        exact = [call for call in calls if (call.start, call.end) == (start, end)]
        return exact[0] if exact else next((call for call in reversed(calls) if call.start == start), None)

    def function_at(self, row: int) -> str:
        """The qualified name of the function that a row belongs to, that of the module where it is none."""
        names: list[str] = []
        for statement in self.around(row):
            if isinstance(statement.node, (cst.FunctionDef, cst.ClassDef)):
                if statement.start.row <= row <= statement.end.row:
                    names.append(statement.node.name.value)
        return ".".join(names) or MODULE

    def around(self, row: int) -> Iterator[Statement]:
        """The statements that may reach to a row."""
        return (found for chunk in self._chunks if chunk.first <= row <= chunk.last for found in chunk.statements)

    def mentioning(self, name: str) -> Iterator[Statement]:
        """The statements of the parts of the file in which a name stands, in the order of the text."""
        return (statement for chunk in self._chunks if name in chunk.words for statement in chunk.statements)

    def definitions(self, names: AbstractSet[str]) -> Iterator[Statement]:
        """The functions of these names, in the order of the text."""
        for chunk in self._chunks:
            if not names.isdisjoint(chunk.defined):
                for statement in chunk.statements:
                    if isinstance(statement.node, cst.FunctionDef) and statement.node.name.value in names:
                        yield statement

    def within(self, function: Statement | None) -> list[Statement]:
        """
        The statements that run in a function (in the module, for None): those of functions in it left out, and of a
        module the definitions of functions, unless they call something.
        """
        chunks = [chunk for chunk in self._chunks if chunk.runs] if function is None else [function.chunk]
        return [statement for chunk in chunks for statement in chunk.statements if statement.function is function]

    def binding(self, function: Statement | None, name: str) -> Iterator[Statement]:
        """The statements of a function (of the module, for None) that may give a name its value."""
        chunks = self._chunks if function is None else [function.chunk]
        for chunk in chunks:
            if name in chunk.words:
                yield from (statement for statement in chunk.statements if statement.function is function)

    # -- editing ----------------------------------------------------------------------------------------------------

    def edit(self, start: Position, end: Position, content: str) -> Edit:
        """Put `content` in the place of what stands there."""
        return Edit(Span(self.source.name, start, end), content)

    def before(self, statement: Statement, code: Sequence[str]) -> Edit | None:
        """Insert lines before a statement; None where there is no room for them, as before an `elif`."""
        if statement.shares_line:
            if len(code) != 1:
                return None  # a compound statement can't stand behind a colon or a semicolon
            return self.edit(statement.start, statement.start, f"{code[0]}; ")
        row = Position(statement.start.row, 1)
        indent = self.indent(statement)
        return self.edit(row, row, "".join(f"{indent}{line}\n" for line in code))

    def after(self, statement: Statement, code: Sequence[str]) -> Edit | None:
        """Insert lines behind a statement and the comment on its last line."""
        if statement.shares_line:
            if len(code) != 1:
                return None
            return self.edit(statement.end, statement.end, f"; {code[0]}")
        end = Position(statement.end.row, len(self.lines[statement.end.row - 1]) + 1)
        indent = self.indent(statement)
        return self.edit(end, end, "".join(f"\n{indent}{line}" for line in code))

    def indent(self, statement: Statement) -> str:
        """The blanks before a statement that has its line for itself."""
        return self.lines[statement.start.row - 1][: statement.start.column - 1]

    def replace(self, statement: Statement, code: Sequence[str]) -> Edit | None:
        """Put lines in the place of a statement and the comment behind it."""
        if statement.shares_line:
            return self.edit(statement.start, statement.end, code[0]) if len(code) == 1 else None
        end = Position(statement.end.row, len(self.lines[statement.end.row - 1]) + 1)
        return self.edit(statement.start, end, f"\n{self.indent(statement)}".join(code))

    def move_behind(self, statement: Statement, place: Statement, code: Sequence[str]) -> list[Edit | None]:
        """Take a statement out and insert lines behind another, which it may end."""
        gone = self.remove(statement)
        last = place.end.row
        if gone.span.end == Position(last + 1, 1) and gone.span.start.column == 1 and not gone.content:
            # The line break that goes is the one before: what is behind the last line stays there.
            row = gone.span.start.row - 1
            end = Position(last, len(self.lines[last - 1]) + 1)
            gone = self.edit(Position(row, len(self.lines[row - 1]) + 1), end, "")
        return [gone, self.after(place, code)]

    def remove(self, statement: Statement) -> Edit:
        """Take a statement out, and an `if` or a loop that held nothing else with it."""
        block = statement.block
        if len(block.statements) == 1 and block.owner is not None:
            if self._is_husk(block.owner):
                return self.remove(block.owner)
            return self.edit(statement.start, statement.end, "pass")
        if statement.shares_line:
            index = statement.index
            if index + 1 < len(block.statements) and block.statements[index + 1].start.row == statement.end.row:
                return self.edit(statement.start, block.statements[index + 1].start, "")
            return self.edit(block.statements[index - 1].end, statement.end, "")
        return without_rows(self.source, statement.start.row, statement.end.row)

    @staticmethod
    def _is_husk(owner: Statement) -> bool:
        """Whether a compound statement is nothing without the one statement in it."""
        if len(owner.blocks) != 1 or isinstance(owner.node, (cst.FunctionDef, cst.ClassDef, cst.While, cst.Try)):
            return False
        return not any(call.name not in PURE for call in owner.calls)

    def lifted(self, statement: Statement) -> Statement:
        """What goes where a statement goes: the loop or branch that holds nothing else."""
        owner = statement.block.owner
        if owner is not None and len(statement.block.statements) == 1 and self._is_husk(owner):
            return self.lifted(owner)
        return statement

    def written(self, statement: Statement) -> list[str] | None:
        """A statement's lines as they would stand at the margin, with the comment behind it; None where a string in it
        would not survive that.
        """
        end = statement.end
        if not statement.shares_line:
            end = Position(end.row, len(self.lines[end.row - 1]) + 1)
        indent = self.indent(statement) if not statement.shares_line else ""
        text = self.text(statement.start, end)
        if "\n" in text and ('"""' in text or "'''" in text):
            return None
        return [line.removeprefix(indent) for line in text.split("\n")]


_NOTHING = cst.Module([])
_WORD = re.compile(r"\w+")
_DEFINED = re.compile(r"\bdef[\s\\]+(\w+)")


class _Filling(NamedTuple):
    """The part of a file that is being read, and its statements so far."""

    chunk: _Chunk
    found: list[Statement]


@dataclass(eq=False)
class _Chunk:
    """A statement of the module, parsed for itself, and its rows."""

    first: int
    last: int
    text: str
    occurrence: int
    """How often the same text stands before it in the file."""
    runs: bool
    """Whether it does more than define functions."""
    tree: Tree

    @cached_property
    def parsed(self) -> _Parsed:
        return _Parsed.of(self.text, self.occurrence)

    @cached_property
    def statements(self) -> list[Statement]:
        try:
            return self.tree.statements_of(self, self.parsed.module.body)
        except (Unreadable, RecursionError, MemoryError):
            return []

    @property
    def is_read(self) -> bool:
        return "parsed" in self.__dict__

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(_WORD.findall(self.text))

    @cached_property
    def defined(self) -> frozenset[str]:
        """The names of the functions in it, and perhaps others."""
        return frozenset(_DEFINED.findall(self.text))

    def place(self, node: cst.CSTNode) -> tuple[Position, Position]:
        """From where to where one of its nodes reaches."""
        found, before = self.parsed.positions[node], self.first - 1
        start, end = found.start, found.end
        return Position(start.line + before, start.column + 1), Position(end.line + before, end.column + 1)


class _Parsed:
    """A text as a tree, with places in it that are looked for when somebody asks."""

    def __init__(self, text: str) -> None:
        check_size(ast.parse(text).body)
        with _readable():
            self.module = cst.parse_module(text)

    @staticmethod
    @lru_cache(maxsize=512)
    def of(text: str, _occurrence: int) -> _Parsed:
        # One fix leaves all other functions of a file as they are. What stands in a file twice is parsed twice, since a
        # node has one place.
        return _Parsed(text)

    @cached_property
    def positions(self) -> Mapping[cst.CSTNode, CodeRange]:
        # They cost as much as the analysis.
        with _readable():
            return MetadataWrapper(self.module, unsafe_skip_copy=True).resolve(PositionProvider)

    @property
    def is_placed(self) -> bool:
        return "positions" in self.__dict__


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (cst.ParserSyntaxError, RecursionError, KeyError) as error:  # KeyError: what libcst makes of too deep ones
        raise Unreadable(f"libcst can't take it: {type(error).__name__}") from None


def _top_level(body: Sequence[ast.stmt]) -> Iterator[tuple[int, int, list[ast.stmt]]]:
    """The statements of a module with their first and last rows, those that share a row as one."""
    first = last = 0
    nodes: list[ast.stmt] = []
    for node in body:
        start = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        if start > last:
            if nodes:
                yield first, last, nodes
            first, nodes = start, []
        nodes.append(node)
        last = max(last, node.end_lineno or node.lineno)
    if nodes:
        yield first, last, nodes


def _only_defines(node: ast.stmt) -> bool:
    """Whether a statement is the definition of a function and calls nothing when it runs."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return not any(isinstance(part, ast.Call) for head in (*node.decorator_list, node.args) for part in ast.walk(head))


#: Calls that a condition or the head of a loop may make without it mattering whether they are made once more.
PURE = frozenset(
    {"enumerate", "get", "getattr", "hasattr", "is_enabled", "isinstance", "items", "keys", "len", "parameters"}
    | {"range", "reversed", "values", "zip"}
)


def _bodies(node: cst.CSTNode) -> Iterator[cst.BaseSuite]:
    """The suites of a compound statement that is no `if`."""
    for child in node.children:
        if isinstance(child, cst.BaseSuite):
            yield child
        elif isinstance(child, (cst.Else, cst.Finally, cst.ExceptHandler, cst.ExceptStarHandler, cst.MatchCase)):
            yield from _bodies(child)
