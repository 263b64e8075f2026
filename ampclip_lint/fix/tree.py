"""A file as statements, blocks and calls with their places, and the text edits that insert, remove and move statements.

Knows Python's layout (indentation, `;`, suites behind their colon, comments) and nothing of gradients. Places are rows
and columns of the text of the file, both from 1; in a notebook, of the program that its cells make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from ampclip_lint.diagnostics import Edit, Position, Span
from ampclip_lint.syntax.source import SourceFile


@dataclass(eq=False)
class Block:
    """The statements of one suite."""

    owner: Statement | None
    """The compound statement that it belongs to; None for a module."""
    guard: str | None = ""
    """The condition under which it runs, as the source writes it; empty without one, None where it can't be told."""
    inline: bool = False
    """Whether it stands behind its colon."""
    statements: list[Statement] = field(default_factory=list)
    other: Block | None = None
    """The arm that runs instead, of an `if` with two."""


@dataclass(eq=False)
class Statement:
    """A simple statement, or a compound one with its blocks."""

    node: cst.CSTNode
    start: Position
    end: Position
    block: Block
    shares_line: bool
    """Whether it stands beside others, or behind a colon."""
    calls: tuple[Call, ...] = ()
    """Those of its own expressions, not those in its blocks."""
    blocks: list[Block] = field(default_factory=list)

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
    start: Position
    end: Position
    name: str
    receiver: str
    args: tuple[str, ...]
    guards: tuple[str, ...] = ()
    """The conditions of the conditional expressions around it."""

    @property
    def is_statement(self) -> bool:
        """Whether the call is all of its statement."""
        node = self.statement.node
        return isinstance(node, cst.Expr) and node.value is self.node


class Tree:
    """The statements of one file. Raises `libcst.ParserSyntaxError` where it is none."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.lines = source.text.split("\n")
        self.module = cst.parse_module(source.text)
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        self._positions = wrapper.resolve(PositionProvider)
        self.statements: list[Statement] = []
        """All of them, in the order of the text."""
        self.body = Block(None)
        self._fill(self.body, self.module.body)

    # -- building ---------------------------------------------------------------------------------------------------

    def _fill(self, block: Block, nodes: Sequence[cst.CSTNode]) -> None:
        for node in nodes:
            if isinstance(node, cst.SimpleStatementLine):
                for small in node.body:
                    self._add(block, small, shares_line=block.inline or len(node.body) > 1)
            elif isinstance(node, cst.BaseSmallStatement):
                self._add(block, node, shares_line=True)
            else:
                self._compound(block, node)

    def _add(self, block: Block, node: cst.CSTNode, *, shares_line: bool) -> Statement:
        start, end = self.place(node)
        statement = Statement(node, start, end, block, shares_line)
        block.statements.append(statement)
        self.statements.append(statement)
        statement.calls = tuple(self._calls(node, statement))
        return statement

    def _compound(self, block: Block, node: cst.CSTNode) -> None:
        statement = self._add(block, node, shares_line=False)
        arms: list[Block] = []
        denied: str | None = ""
        part: cst.CSTNode | None = node
        while part is not None:
            if isinstance(part, cst.If):
                test = self.code(part.test)
                arms.append(self._suite(statement, part.body, test))
                denied = f"not ({test})" if denied == "" else None
                part = part.orelse
                continue
            if isinstance(part, cst.Else) and isinstance(node, cst.If):
                arms.append(self._suite(statement, part.body, denied))
            else:
                statement.blocks += [self._suite(statement, body, "") for body in _bodies(part)]
            part = None
        if len(arms) == 2 and denied is not None:
            arms[0].other, arms[1].other = arms[1], arms[0]
        statement.blocks += arms
        last = [inner.statements[-1] for inner in statement.blocks if inner.statements]
        if last:
            statement.end = max(inner.end for inner in last)

    def _suite(self, owner: Statement, body: cst.BaseSuite, guard: str | None) -> Block:
        block = Block(owner, guard, inline=isinstance(body, cst.SimpleStatementSuite))
        self._fill(block, body.body)
        return block

    def _calls(self, node: cst.CSTNode, statement: Statement, guards: tuple[str, ...] = ()) -> Iterator[Call]:
        for child in node.children:
            if not isinstance(child, (cst.BaseSuite, cst.Else, cst.Finally, cst.ExceptHandler)):
                if isinstance(node, cst.IfExp) and child is not node.test:
                    test = self.code(node.test)
                    yield from self._calls(child, statement, (*guards, test if child is node.body else f"not ({test})"))
                else:
                    yield from self._calls(child, statement, guards)
        if isinstance(node, cst.Call) and isinstance(node.func, (cst.Attribute, cst.Name)):
            start, end = self.place(node)
            method = isinstance(node.func, cst.Attribute)
            yield Call(
                node,
                statement,
                start,
                end,
                (node.func.attr if isinstance(node.func, cst.Attribute) else node.func).value,
                self.code(node.func.value) if method else "",  # type: ignore[union-attr]
                tuple(self.code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)).strip() for arg in node.args),
                guards,
            )

    # -- asking -----------------------------------------------------------------------------------------------------

    def place(self, node: cst.CSTNode) -> tuple[Position, Position]:
        """From where to where a node reaches."""
        found = self._positions[node]
        return (
            Position(found.start.line, found.start.column + 1),
            Position(found.end.line, found.end.column + 1),
        )

    def code(self, node: cst.CSTNode) -> str:
        """A node as the source writes it."""
        return self.module.code_for_node(node)

    def text(self, start: Position, end: Position) -> str:
        """What stands between two places."""
        if start.row == end.row:
            return self.lines[start.row - 1][start.column - 1 : end.column - 1]
        first, last = self.lines[start.row - 1], self.lines[end.row - 1]
        return "\n".join([first[start.column - 1 :], *self.lines[start.row : end.row - 1], last[: end.column - 1]])

    def at(self, start: Position) -> Statement | None:
        """The innermost statement that a place lies in."""
        found = None
        for statement in self.statements:
            if statement.start <= start < statement.end or statement.start == start:
                found = statement
        return found

    def call_at(self, start: Position, end: Position) -> Call | None:
        """The call that stands exactly there, or the outermost one of the statement that begins there."""
        statement = self.at(start)
        calls = statement.calls if statement is not None else ()
        exact = [call for call in calls if (call.start, call.end) == (start, end)]
        return exact[0] if exact else next((call for call in reversed(calls) if call.start == start), None)

    def within(self, function: Statement | None) -> list[Statement]:
        """The statements of a function (of the module, for None), those of functions in it left out."""
        return [statement for statement in self.statements if statement.function is function]

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

    @property
    def step(self) -> str:
        """One level of indentation."""
        return self.module.default_indent

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
        return self.rows(statement.start.row, statement.end.row)

    @staticmethod
    def _is_husk(owner: Statement) -> bool:
        """Whether a compound statement is nothing without the one statement in it."""
        if len(owner.blocks) != 1 or isinstance(owner.node, (cst.FunctionDef, cst.ClassDef, cst.While, cst.Try)):
            return False
        return not any(call.name not in PURE for call in owner.calls)

    def rows(self, first: int, last: int) -> Edit:
        """Take whole rows out, in a notebook without leaving their cell."""
        shown = self.source.shown(Span(self.source.name, Position(last, 1), Position(last, 1)))
        part = self.source.part(shown.cell)
        if shown.start.row < len(part):
            return self.edit(Position(first, 1), Position(last + 1, 1), "")
        end = Position(last, len(self.lines[last - 1]) + 1)
        if shown.start.row - (last - first) > 1:
            return self.edit(Position(first - 1, len(self.lines[first - 2]) + 1), end, "")
        return self.edit(Position(first, 1), end, "")

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
