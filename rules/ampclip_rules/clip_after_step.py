"""AMP103: clipping gradients that a step has applied already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP103", severity=Severity.ERROR, since="0.1")
def clip_after_step(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a clip between the step that applied the gradients and the backward that makes the next ones.
    ## Why is this bad?
    The clip changes numbers that nobody reads any more: the step is done, and the gradients are cleared before the
    next one. Training runs without any clipping. For g = (3, 4) and M = 1 the gradient (3, 4) of norm 5 was applied
    instead of (0.6, 0.8) of norm 1, whether S = 8 or S = 1: the mistake is there in full precision too.
    ## Example
    ```python
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    clip_grad_norm_(model.parameters(), max_norm=1.0)  # expect: AMP103
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
    When the norm never reaches the threshold, or when the call is there for the norm that it returns: a call with
    `max_norm=inf` says that better, and is not flagged.
    ## References
    - [PyTorch: gradient clipping](https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping)
    """
    for site in fn.sites(Clip):
        for fault in site.faults(FaultKind.CLIP_AFTER_STEP):
            yield violation(
                site,
                fault,
                f"gradients of `{fault.subject}` are clipped after the step that applied them",
                effect="the clip has no effect: g = (3, 4), M = 1, S = 8 applies a gradient of norm 5 instead of 1",
            )
            break
