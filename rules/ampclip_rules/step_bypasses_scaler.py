"""AMP302: the plain step after unscale_."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import OptimizerStep
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP302", severity=Severity.WARNING, since="0.1")
def step_bypasses_scaler(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags `optimizer.step()` on gradients that `scaler.unscale_`, or a division by the scale, has made right.
    ## Why is this bad?
    The numbers are right, for g = (3, 4) and S = 8 as for S = 1, until a gradient overflows. `unscale_` notes the
    overflow, but only `scaler.step` acts on the note and skips. The plain step applies inf or NaN, and the weights
    are lost; the scaler lowers S from 65536 to 32768 only afterwards.
    ## Example
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()  # expect: AMP302
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
    When the program itself leaves the step out where a gradient is not finite, or when the scaler is disabled.
    ## References
    - [PyTorch: GradScaler.step](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step)
    """
    for site in fn.sites(OptimizerStep):
        for fault in site.faults(FaultKind.STEP_BYPASSES_SCALER):
            message = f"the plain step of `{fault.subject}` does not ask `{fault.scaler}` whether a gradient overflowed"
            effect = "g = (3, 4), S = 8 is applied right, but an overflow applies inf or NaN where `scaler.step` skips"
            yield violation(site, fault, message, effect=effect)
            break
