"""A stand-in for the analysis, for tests of everything around it: it goes by words in lines.

A line with `clip_grad_norm_(` after one with `.backward(` in the same file is a clip of scaled gradients, unless a line
with `.unscale_(` stands between. `# stub: possible`, `# stub: gap` and `# stub: crash` ask for what they say.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from ampclip_lint.amp.faults import Fault, FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Confidence, Position, Span, TraceStep
from ampclip_lint.syntax.source import SourceFile


@dataclass
class StubSite:
    span: Span
    op: object
    found: list[Fault]

    def faults(self, kind: FaultKind) -> list[Fault]:
        return [fault for fault in self.found if fault.kind is kind]


@dataclass
class Note:
    span: Span
    message: str
    mentions_scaler: bool = True


@dataclass
class StubFunction:
    name: str
    span: Span
    gaps: list[Note] = field(default_factory=list)
    followed: tuple[()] = ()
    worlds: int = 1
    elsewhere: None = None
    all_sites: list[StubSite] = field(default_factory=list)

    def sites(self, op_type: type) -> list[StubSite]:
        return [site for site in self.all_sites if isinstance(site.op, op_type)]


@dataclass
class StubProgram:
    functions: list[StubFunction] = field(default_factory=list)
    syntax_errors: list[Note] = field(default_factory=list)


def analyse_program(
    files: Sequence[SourceFile],
    *,
    entries: object = None,
    models: object = None,
    roots: object = None,
    jobs: object = None,
) -> StubProgram:
    program = StubProgram()
    for file in files:
        try:
            ast.parse(file.text)
        except SyntaxError as error:
            row, column = error.lineno or 1, error.offset or 1
            span = Span(file.name, Position(row, column), Position(row, column + 1))
            program.syntax_errors.append(Note(span, error.msg))
        else:
            program.functions.append(_function(file))
    return program


def _function(file: SourceFile) -> StubFunction:
    function = StubFunction("fit", Span(file.name, Position(1, 1), Position(len(file.lines), 1), "fit"))
    trace: tuple[TraceStep, ...] = ()
    for row, line in enumerate(file.lines, 1):
        span = _span(file, row, line)
        if "# stub: crash" in line:
            raise ValueError("the stub was asked to crash")
        if "# stub: gap" in line:
            function.gaps.append(Note(span, "more than 64 cases at this place"))
        if ".unscale_(" in line:
            trace = ()
        elif ".backward(" in line:
            trace = (TraceStep(span, "scaled gradients are added", "S"),)
        elif "clip_grad_norm_(" in line and trace and "import" not in line:
            confidence = Confidence.POSSIBLE if "# stub: possible" in line else Confidence.DEFINITE
            steps = (*trace, TraceStep(span, "clipped here", "S"))
            fault = Fault(FaultKind.CLIP_SCALED, confidence, steps, "optimizer", "scaler")
            # The same place twice, as when a helper is reached in two contexts.
            function.all_sites += [StubSite(span, Clip(()), [fault]), StubSite(span, Clip(()), [fault])]
    return function


def _span(file: SourceFile, row: int, line: str) -> Span:
    text = line.partition("  #")[0].rstrip()
    indent = len(line) - len(line.lstrip())
    return Span(file.name, Position(row, indent + 1), Position(row, len(text) + 1), "fit")
