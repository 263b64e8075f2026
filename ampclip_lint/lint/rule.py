"""What a rule is: a documented function from an analysis to violations. Knows nothing about files or output."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

from ampclip_lint.diagnostics import Confidence, Severity, Span, TraceStep
from ampclip_lint.records import dataclass

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis, ProgramAnalysis, Site
    from ampclip_lint.amp.faults import Fault

Scope = Literal["function", "program", "suppression"]

SECTIONS = ("What it does", "Why is this bad?", "Example", "Use instead", "When it is harmless", "References")
"""The headings of a rule's documentation, in this order; all but the last three are required."""
REQUIRED_SECTIONS = SECTIONS[:3]


@dataclass(frozen=True)
class Violation:
    """One place where a rule is broken, before suppressions and settings have had their say."""

    span: Span
    message: str
    effect: str | None = None
    confidence: Confidence = Confidence.DEFINITE
    trace: tuple[TraceStep, ...] = ()


@dataclass(frozen=True)
class UnusedSuppression:
    """One code in a suppression comment that silenced no finding of the run."""

    span: Span
    """The place of the code in the comment."""
    code: str
    known: bool
    """Whether there is such a rule."""
    whole_file: bool


@dataclass(frozen=True)
class Rule:
    """A rule with its documentation. `check` takes the analysis of a function or the program, as `scope` says.

    With the scope `suppression` it takes an `UnusedSuppression`.
    """

    code: str
    name: str
    severity: Severity
    since: str
    scope: Scope
    doc: str
    check: Callable[[Any], Iterator[Violation]]
    advisory: bool = False
    """An advisory rule speaks of the tool's own limits: its findings never decide the exit code."""

    @property
    def summary(self) -> str:
        """The first sentence of the documentation, without its period."""
        paragraph = self.section("What it does").split("\n\n")[0]
        text = " ".join(paragraph.split())
        return re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(".:")

    @property
    def url(self) -> str:
        """Where the rule's page lies in the repository."""
        return f"docs/rules/{self.name}.md"

    def section(self, heading: str) -> str:
        """The body of one section of the documentation; empty where there is none."""
        _, _, rest = f"\n{self.doc}".partition(f"\n## {heading}\n")
        return f"\n{rest}".partition("\n## ")[0].strip()

    @property
    def examples(self) -> tuple[str, ...]:
        """The ```python blocks of the documentation."""
        blocks = re.findall(r"^```python\n(.*?)^```$", self.doc, re.MULTILINE | re.DOTALL)
        return tuple(blocks)

    def page(self) -> str:
        """The documentation as it is shown: spaced for Markdown, without the comments that tests read."""
        text = re.sub(r"[ \t]*# expect: [A-Z0-9, ]+$", "", self.doc, flags=re.MULTILINE)
        text = re.sub(r"\n+(## .+)\n+", r"\n\n\1\n\n", "\n" + text).strip()
        return text.replace("\n```\n##", "\n```\n\n##")

    @property
    def headings(self) -> tuple[str, ...]:
        """The section headings that the documentation has, in its order."""
        return tuple(re.findall(r"^## (.+)$", self.doc, re.MULTILINE))


@overload
def rule(
    code: str, *, severity: Severity, since: str, advisory: bool = ..., scope: Literal["function"] = ...
) -> Callable[[Callable[[FunctionAnalysis], Iterator[Violation]]], Rule]: ...


@overload
def rule(
    code: str, *, severity: Severity, since: str, advisory: bool = ..., scope: Literal["program"]
) -> Callable[[Callable[[ProgramAnalysis], Iterator[Violation]]], Rule]: ...


@overload
def rule(
    code: str, *, severity: Severity, since: str, advisory: bool = ..., scope: Literal["suppression"]
) -> Callable[[Callable[[UnusedSuppression], Iterator[Violation]]], Rule]: ...


def rule(
    code: str, *, severity: Severity, since: str, advisory: bool = False, scope: Scope = "function"
) -> Callable[[Callable[[Any], Iterator[Violation]]], Rule]:
    """Make a rule of a function: its name names the rule, its docstring is the documentation."""

    def decorate(check: Callable[[Any], Iterator[Violation]]) -> Rule:
        name = check.__name__.replace("_", "-")
        return Rule(code, name, severity, since, scope, inspect.getdoc(check) or "", check, advisory)

    return decorate


def violation(site: Site, fault: Fault, message: str, *, effect: str | None = None) -> Violation:
    """The violation that `fault` is at `site`."""
    return Violation(site.span, message, effect, fault.confidence, fault.trace)
