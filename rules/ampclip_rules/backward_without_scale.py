"""AMP303: a plain backward among scaled ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Backward, ScalerStep, Unscale
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP303", severity=Severity.ERROR, since="0.1")
def backward_without_scale(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a backward of a loss that was not scaled, whose gradients the scaler divides by S or which are added to
    scaled gradients.
    ## Why is this bad?
    `unscale_` and `scaler.step` divide everything by S, also what never was multiplied: g becomes g/S, and a sum of a
    scaled and a plain part becomes g1 + g2/S. With g1 = (3, 4), g2 = (-5, 12), S = 8 its norm is 5.99 instead of
    16.1; with the initial S = 65536 the plain loss might as well not be there. In fp16 its small gradients underflow
    besides.
    ## Example
    ```python
    scaler.scale(loss).backward()
    penalty.backward()  # expect: AMP303
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.scale(penalty).backward()
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled, or when the two backwards reach different parameters and only the scaled
    ones are stepped by the scaler. A plain backward after `unscale_` is right, and is not flagged.
    ## References
    - [PyTorch: multiple models, losses, and optimizers](https://pytorch.org/docs/stable/notes/amp_examples.html)
    """
    for site in fn.sites((Backward, ScalerStep, Unscale)):
        for fault in site.faults(FaultKind.BACKWARD_PLAIN):
            message = (
                f"this backward gives `{fault.subject}` gradients without the scale that `{fault.scaler}` divides by"
            )
            effect = "g1 + g2/S is applied: g1 = (3, 4), g2 = (-5, 12), S = 8 gives norm 5.99 instead of 16.1"
            yield violation(site, fault, message, effect=effect)
            break
