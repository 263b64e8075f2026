"""AMP107: clipping before there are gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP107", severity=Severity.WARNING, since="0.1")
def clip_before_backward(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a clip between clearing the gradients and the first backward of the window.
    ## Why is this bad?
    There is nothing to clip: every `.grad` is None or zero, and the gradients that come next are applied as they are.
    For g = (3, 4) and M = 1 a gradient of norm 5 is applied instead of one of norm 1, whether S = 8 or S = 1.
    `clip_grad_value_` raises where no parameter has a gradient, `clip_grad_norm_` returns 0.
    ## Example
    ```python
    optimizer.zero_grad()
    clip_grad_norm_(model.parameters(), max_norm=1.0)  # expect: AMP107
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When another clip follows at the right place, or when the norm never reaches the threshold.
    ## References
    - [PyTorch: gradient clipping](https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping)
    """
    for site in fn.sites(Clip):
        for fault in site.faults(FaultKind.CLIP_WITHOUT_GRADIENTS):
            yield violation(
                site,
                fault,
                f"gradients of `{fault.subject}` are clipped before the backward that makes them",
                effect="the clip has no effect: g = (3, 4), M = 1, S = 8 applies a gradient of norm 5 instead of 1",
            )
            break
