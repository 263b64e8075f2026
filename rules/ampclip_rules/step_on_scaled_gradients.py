"""AMP301: the plain step on gradients that carry the loss scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import OptimizerStep
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP301", severity=Severity.ERROR, since="0.1")
def step_on_scaled_gradients(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags `optimizer.step()` while the gradients are still multiplied by the loss scale S.
    ## Why is this bad?
    The step applies S·g: for g = (3, 4) and S = 8 the norm is 40 instead of 5, with the initial S = 65536 it is
    327680. SGD diverges at once. Adam divides by the size of its gradients and seems to work, but weight decay that
    is part of the gradient is lost, every change of S disturbs the averages, and an overflow is applied instead of
    skipped.
    ## Example
    ```python
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    optimizer.step()  # expect: AMP301
    ```
    ## Use instead
    ```python
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled. A clip of the scaled gradients before the plain step gives the right length
    whenever it is active: two mistakes that cancel until one of them is mended.
    ## References
    - [PyTorch: typical mixed precision training](https://pytorch.org/docs/stable/notes/amp_examples.html)
    """
    for site in fn.sites(OptimizerStep):
        for fault in site.faults(FaultKind.STEP_ON_SCALED):
            message = f"the plain step of `{fault.subject}` applies gradients that carry the scale of `{fault.scaler}`"
            effect = "S·g is applied: g = (3, 4), S = 8 gives norm 40 instead of 5; an overflow is not skipped"
            yield violation(site, fault, message, effect=effect)
            break
