"""AMP202: gradients that are divided by the loss scale twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Multiply, Unscale, Update
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP202", severity=Severity.ERROR, since="0.1")
def double_unscale(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags gradients that are divided by S twice before they are applied: by hand and by the scaler, by two calls of
    `unscale_`, under two names of an optimizer, or by `unscale_` and again by a step behind an `update()`.
    ## Why is this bad?
    The applied gradient is g/S instead of g: for g = (3, 4) and S = 8 its norm is 0.625 instead of 5; clipped to
    M = 1 in between it is 0.125 instead of 1. The scaler remembers for each optimizer object that it is unscaled,
    until `update()`: it knows nothing of a division by hand or of a wrapper around the optimizer. Only `unscale_`
    called twice on one object raises: "unscale_() has already been called on this optimizer since the last update()".
    ## Example
    ```python
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    for p in model.parameters():
        p.grad.div_(scaler.get_scale())  # expect: AMP202
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled. Adam hides most of it, since it divides by the size of its gradients,
    except where that size meets its eps, and where weight decay is part of the gradient.
    ## References
    - [PyTorch: unscale_](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_)
    """
    by = {Multiply: "by hand and by the scaler", Update: "by unscale_ and by a step after this update"}
    for site in fn.sites((Multiply, Unscale, Update)):
        for fault in site.faults(FaultKind.DOUBLE_UNSCALE):
            how = by.get(type(site.op), "by this unscale_ and by another call")
            message = f"gradients of `{fault.subject}` are divided by the scale of `{fault.scaler}` twice: {how}"
            effect = "g/S is applied: g = (3, 4), S = 8 gives norm 0.625 instead of 5 (two calls of unscale_ raise)"
            yield violation(site, fault, message, effect=effect)
            break
