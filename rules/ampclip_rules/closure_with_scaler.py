"""AMP307: `scaler.step` is given a closure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import ScalerStep
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP307", severity=Severity.ERROR, since="0.1")
def closure_with_scaler(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags `scaler.step(optimizer, closure)`, with the closure under its name or in its place.
    ## Why is this bad?
    The scaler unscales and checks the gradients before the step, and a closure makes new ones during it. By name it
    raises "Closure use is not currently supported if GradScaler is enabled". In its place it is passed on unnoticed:
    the gradients of its backward are applied without any check, and S times too large if it scales its loss. For g =
    (3, 4) and S = 8 that is (24, 32), of norm 40 instead of 5.
    ## Example
    ```python
    def train(loader, optimizer, scaler, closure, compute_loss):
        for batch in loader:
            optimizer.zero_grad()
            scaler.scale(compute_loss(batch)).backward()
            scaler.step(optimizer, closure=closure)  # expect: AMP307
            scaler.update()
    ```
    ## Use instead
    ```python
    def train(loader, optimizer, scaler, compute_loss):
        for batch in loader:
            optimizer.zero_grad()
            scaler.scale(compute_loss(batch)).backward()
            scaler.step(optimizer)
            scaler.update()
    ```
    ## When it is harmless
    With a disabled scaler, which passes the closure on. An optimizer that needs one (LBFGS) needs full precision or
    bf16.
    ## References
    - [PyTorch: GradScaler.step](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step)
    """
    for site in fn.sites(ScalerStep):
        for fault in site.faults(FaultKind.CLOSURE):
            message = f"`{fault.scaler}` steps `{fault.subject}` with a closure"
            effect = "raises by name; in its place S·g is applied unchecked: for g = (3, 4), S = 8 norm 40, not 5"
            yield violation(site, fault, message, effect=effect)
            break
