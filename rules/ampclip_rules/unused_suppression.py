"""AMP002: a suppression comment that suppresses nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import UnusedSuppression, Violation, rule


@rule("AMP002", severity=Severity.WARNING, since="0.1", scope="suppression")
def unused_suppression(unused: UnusedSuppression) -> Iterator[Violation]:
    """
    ## What it does
    Reports a code in a suppression comment that silences no finding, or that no rule has.

    Only the codes that are selected for the file are judged, and in `# noqa` only those of ampclip-lint: the others are
    another tool's.
    ## Why is this bad?
    The comment says that something here is wrong on purpose, and it is not, or the comment does not stand where the
    finding does. It silences the next mistake on this line without a word.
    ## Example
    The call has been put right, and the comment was left behind:
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(params, 1.0)  # ampclip: ignore[AMP101] to be repaired  # expect: AMP002
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(params, 1.0)
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When the finding appears in other runs only: calls are followed between the files of one run, so a run on the files
    of a commit may find less than one on all. Add the code of this rule to such a comment; it is not judged itself:
    ```python
    clip_grad_norm_(params, 1.0)  # ampclip: ignore[AMP101, AMP002]
    ```
    Nothing is judged in files that were analysed in part.
    ## References
    - [unused-noqa](https://docs.astral.sh/ruff/rules/unused-noqa/), the same rule of Ruff
    """
    if not unused.known:
        yield Violation(unused.span, f"no such rule: `{unused.code}`")
    else:
        where = "in this file" if unused.whole_file else "on this line"
        yield Violation(unused.span, f"`{unused.code}` is suppressed, but is not reported {where}")
