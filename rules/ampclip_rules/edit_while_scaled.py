"""AMP105: an edit that is not a multiplication, on gradients that carry the loss scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Backward, Clip, Edit
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP105", severity=Severity.ERROR, since="0.1")
def edit_while_scaled(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags an additive or non-linear edit of gradients that are still multiplied by the loss scale S: noise, weight
    decay or a penalty that is added, signs, clipping relative to the weights.
    ## Why is this bad?
    The division by S that follows hits what was added, too: (S·g + n)/S = g + n/S. For g = (3, 4), noise n = (1, 1),
    S = 8 the applied gradient is (3.125, 4.125) instead of (4, 5). A function f that ignores the length of its
    argument keeps the factor that it should lose: sign(S·g)/S is (0.125, 0.125) instead of (1, 1). Edits that are
    linear, as an average over processes or a constant factor, keep the unit and are right at any place.
    ## Example
    ```python
    scaler.scale(loss).backward()
    for p in model.parameters():
        p.grad.add_(torch.randn_like(p.grad), alpha=0.01)  # expect: AMP105
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for p in model.parameters():
        p.grad.add_(torch.randn_like(p.grad), alpha=0.01)
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled, or when what is added is zero or carries the same S.
    ## References
    - [PyTorch: gradient penalty](https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-penalty)
    """
    for site in fn.sites((Backward, Clip, Edit)):
        for fault in site.faults(FaultKind.EDIT_SCALED):
            message = f"gradients of `{fault.subject}` are edited while they carry the loss scale of `{fault.scaler}`"
            effect = "what is added is divided by S: g = (3, 4), n = (1, 1), S = 8 gives (3.125, 4.125), not (4, 5)"
            yield violation(site, fault, message, effect=effect)
            break
