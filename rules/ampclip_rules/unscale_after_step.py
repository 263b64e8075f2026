"""AMP203: unscaling gradients that scaler.step has applied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Unscale
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP203", severity=Severity.ERROR, since="0.1")
def unscale_after_step(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags `unscale_` of an optimizer between its `scaler.step` and the `update()`.
    ## Why is this bad?
    PyTorch raises "unscale_() is being called after step()", since the step has unscaled already. Where only one
    branch or a rare path comes here, training stops there; and what was to follow, a clip or a log, came too late
    anyway: for g = (3, 4), M = 1, S = 8 the gradient of norm 5 has been applied. A machine without CUDA disables the
    scaler and shows nothing.
    ## Example
    ```python
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.unscale_(optimizer)  # expect: AMP203
    clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.update()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When the scaler is disabled.
    ## References
    - [PyTorch: unscale_](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_)
    """
    for site in fn.sites(Unscale):
        for fault in site.faults(FaultKind.UNSCALE_AFTER_STEP):
            message = f"`{fault.scaler}.unscale_` is called for `{fault.subject}` after its step"
            effect = "raises RuntimeError: unscale_() is being called after step()"
            yield violation(site, fault, message, effect=effect)
            break
