"""AMP405: an update with no inf check on record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Update
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP405", severity=Severity.ERROR, since="0.1")
def update_without_check(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags an `update()` that no `unscale_` and no `scaler.step` precedes since the last one.
    ## Why is this bad?
    `update()` decides about S from what `unscale_` and `step` have found in the gradients. With nothing on record
    PyTorch raises "No inf checks were recorded prior to update". That happens after a path without a step, after a step
    of the plain optimizer, or where `update()` is called twice. Whether g = (3, 4) was applied and S = 8 is right, it
    cannot know.
    ## Example
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
        scaler.update()  # expect: AMP405
    ```
    ## Use instead
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    ```
    ## When it is harmless
    With a disabled scaler. `update(new_scale)` needs no check.
    ## References
    - [PyTorch: GradScaler.update](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update)
    """
    for site in fn.sites(Update):
        for fault in site.faults(FaultKind.UPDATE_WITHOUT_CHECK):
            message = f"`{fault.scaler}` is updated with no inf check on record"
            effect = "raises `No inf checks were recorded prior to update`"
            yield violation(site, fault, message, effect=effect)
            break
