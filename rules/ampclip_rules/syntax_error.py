"""AMP001: a file that matters and does not parse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import ProgramAnalysis


@rule("AMP001", severity=Severity.ERROR, since="0.1", scope="program")
def syntax_error(program: ProgramAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Reports a file that mentions a gradient scaler and cannot be parsed.
    ## Why is this bad?
    Nothing in the file was checked, and calls into it were not followed. Silence about it would look like a clean file.
    ## Example
    ```python
    scaler.scale(loss.backward()  # expect: AMP001
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    ```
    ## When it is harmless
    Never for the file. Templates and files for other versions of Python can be left out with `extend-exclude`.
    ## References
    - [The Python grammar](https://docs.python.org/3/reference/grammar.html)
    """
    for problem in program.syntax_errors:
        if problem.mentions_scaler:
            yield Violation(problem.span, problem.message, effect="nothing in this file was checked")
