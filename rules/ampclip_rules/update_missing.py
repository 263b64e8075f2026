"""AMP403: no update on some path to the next `unscale_` or step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import ScalerStep, Unscale
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP403", severity=Severity.ERROR, since="0.1")
def update_missing(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags an `unscale_` or a step that comes again, for new gradients, on a path without an `update()` since the last
    one.
    ## Why is this bad?
    Only `update()` begins a new round: it changes S after an overflow and lets `unscale_` and `step` work again.
    Without it PyTorch raises in the next iteration: "unscale_() has already been called on this optimizer since the
    last update()", or "step() has already been called". A path that skips the step of a bad batch often skips the
    update too. Right after an overflow that is the worst time: S = 8 should become 4, and g = (3, 4) never gets
    through.
    ## Example
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)  # expect: AMP403
        if clip_grad_norm_(model.parameters(), 1.0) > 100:
            continue
        scaler.step(optimizer)
        scaler.update()
    ```
    ## Use instead
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        if clip_grad_norm_(model.parameters(), 1.0) <= 100:
            scaler.step(optimizer)
        scaler.update()
    ```
    ## When it is harmless
    With a disabled scaler, whose methods keep no record.
    ## References
    - [PyTorch: GradScaler.update](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update)
    """
    for site in fn.sites((ScalerStep, Unscale)):
        for fault in site.faults(FaultKind.UPDATE_MISSING):
            message = f"`{fault.scaler}` comes back to `{fault.subject}` without an update since the last time"
            effect = "raises when it is reached again; S = 8 that overflows never becomes 4"
            yield violation(site, fault, message, effect=effect)
            break
