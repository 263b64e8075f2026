"""AMP504: the norm before clipping is taken for the norm after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import CompareReturnedNorm, Read
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP504", severity=Severity.INFO, since="0.1")
def returned_norm_misread(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a use of the value of `clip_grad_norm_` as if it were the norm of the gradients that it leaves.
    ## Why is this bad?
    The function returns the norm that it found, not the one that it made. For g = (3, 4), unscaled from S = 8, and M =
    1 it returns 5, and the gradients have norm 1 from then on. Dividing them by 5 gives a vector of norm 0.2, where a
    direction of norm 1 was wanted, and applying M/5 again clips twice.
    ## Example
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(model.parameters(), 1.0)
        log([(p.grad / norm).norm().item() for p in model.parameters()])  # expect: AMP504
        scaler.step(optimizer)
        scaler.update()
    ```
    ## Use instead
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(model.parameters(), 1.0)
        log(min(norm.item(), 1.0))
        scaler.step(optimizer)
        scaler.update()
    ```
    ## When it is harmless
    When the clip was not active, since both norms are then the same. Logging the value as the norm before the clip is
    what it is for.
    ## References
    - [PyTorch: clip_grad_norm_](https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html)
    """
    for site in fn.sites((CompareReturnedNorm, Read)):
        for fault in site.faults(FaultKind.NORM_MISREAD):
            message = f"the norm of `{fault.subject}` from before the clip is used as the norm after it"
            effect = "g = (3, 4) clipped to M = 1 has norm 1, and the value returned is 5"
            yield violation(site, fault, message, effect=effect)
            break
