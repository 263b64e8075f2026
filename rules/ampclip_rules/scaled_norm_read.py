"""AMP501: a gradient statistic is read while it carries the loss scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip, Read
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP501", severity=Severity.WARNING, since="0.1")
def scaled_norm_read(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a norm or another statistic of gradients that is logged, compared or used while they carry the loss scale.
    ## Why is this bad?
    ‖S·g‖ = S·‖g‖: for g = (3, 4) and S = 8 the number is 40 instead of 5. The curve jumps to twice or half with every
    change of S, a threshold for "too large" means something else each time, and runs with and without mixed precision
    cannot be compared. A loss that was rebound to `scaler.scale(loss)` and then logged is the same mistake.
    ## Example
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        log(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())  # expect: AMP501
        scaler.step(optimizer)
        scaler.update()
    ```
    ## Use instead
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        log(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())
        scaler.step(optimizer)
        scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled, and where the scale cancels: in g/‖g‖, in signs, in a test for inf or NaN, or
    divided by `get_scale()`.
    ## References
    - [PyTorch: working with unscaled gradients](https://pytorch.org/docs/stable/notes/amp_examples.html)
    """
    for site in fn.sites((Clip, Read)):
        for fault in site.faults(FaultKind.READ_SCALED):
            message = f"the number that is read here carries the loss scale of `{fault.scaler}`"
            effect = "the number is S times too large: g = (3, 4), S = 8 gives 40 instead of 5"
            yield violation(site, fault, message, effect=effect)
            break
