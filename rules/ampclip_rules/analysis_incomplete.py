"""AMP003: a function that was analysed only in part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP003", severity=Severity.INFO, since="0.1", advisory=True)
def analysis_incomplete(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Says where the analysis hit one of its budgets (too many combinations of conditions, too deeply nested calls) and
    what it therefore did not look at.
    ## Why is this bad?
    Findings may be missing there. The number of such functions stands in the summary of every run; this rule shows the
    places when it is selected. It never decides the exit code, since the fault is the tool's and not the program's.
    ## Example
    A training step whose backward, unscaling and step stand under a dozen unrelated flags: every combination is a case
    of its own, and past the budget the cases are taken together.
    ## Use instead
    Fewer flags that are tested between the backward and the step, or one function for each way to train.
    ## When it is harmless
    When the part that was not analysed does not touch gradients.
    ## References
    - Das, Lerner, Seigle: ESP: path-sensitive program verification in polynomial time (PLDI 2002)
    """
    for gap in fn.gaps:
        yield Violation(gap.span, gap.message)
