"""AMP502: a scale that is read too late undoes an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Multiply, Read
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP502", severity=Severity.WARNING, since="0.1")
def stale_scale_read(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags `get_scale()` after a step or an update, used to divide a quantity that was scaled before it.
    ## Why is this bad?
    After `update()` the scale may be another one, S': a loss or norm that was multiplied by S comes out as x·S/S'. For
    ‖g‖ = 5, S = 8 and S' = 16 that is 2.5. And after `scaler.step` the gradients are unscaled already: (3, 4)/8 has
    norm 0.625. The number is right on most iterations and wrong just where S changes, which is what it is watched for.
    ## Example
    ```python
    for batch in loader:
        optimizer.zero_grad()
        loss = scaler.scale(model(batch))
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
        log(loss.item() / scaler.get_scale())  # expect: AMP502
    ```
    ## Use instead
    ```python
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        log(loss.item())
    ```
    ## When it is harmless
    While S stays as it is, for a scaled loss; never for gradients that the step has unscaled. Comparing `get_scale()`
    before and after `update()`, to see whether the step was skipped, is fine.
    ## References
    - [PyTorch: GradScaler.get_scale](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.get_scale)
    """
    for site in fn.sites((Multiply, Read)):
        for fault in site.faults(FaultKind.STALE_SCALE_READ):
            message = f"the scale of `{fault.scaler}` is read too late for what it divides"
            effect = "x·S is divided by another S': ‖g‖ = 5, S = 8, S' = 16 reads as 2.5; after the step, g/8 as 0.625"
            yield violation(site, fault, message, effect=effect)
            break
