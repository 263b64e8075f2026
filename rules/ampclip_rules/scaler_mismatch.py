"""AMP304: gradients scaled by one scaler and unscaled by another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Backward, ScalerStep, Unscale
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP304", severity=Severity.ERROR, since="0.1")
def scaler_mismatch(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags gradients that one scaler has scaled and another one unscales or steps, and sums of gradients of two scalers.
    ## Why is this bad?
    Each scaler has a scale of its own. Scaled by A and divided by B, the applied gradient is g·S_A/S_B. For g = (3, 4),
    S = 8 of the one and 16 of the other it is (1.5, 2), of norm 2.5 instead of 5, and the two drift apart with every
    overflow that only one of them sees. A sum over two microbatches becomes g1 + g2·S_B/S_A. If the other scaler has
    never scaled anything, PyTorch raises: "Attempted step but _scale is None".
    ## Example
    ```python
    scaler_g, scaler_d = GradScaler(), GradScaler()
    for real, fake in loader:
        scaler_d.scale(critic(real)).backward()
        scaler_g.scale(critic(fake)).backward()  # expect: AMP304
        scaler_g.step(optimizer)
        scaler_g.update()
        optimizer.zero_grad()
    ```
    ## Use instead
    ```python
    scaler_d = GradScaler()
    for real, fake in loader:
        scaler_d.scale(critic(real)).backward()
        scaler_d.scale(critic(fake)).backward()
        scaler_d.step(optimizer)
        scaler_d.update()
        optimizer.zero_grad()
    ```
    ## When it is harmless
    While both scales are the same: from equal beginnings until the first overflow. Two scalers are fine where each has
    its own losses and its own optimizers.
    ## References
    - [PyTorch: multiple models, losses, and optimizers](https://pytorch.org/docs/stable/notes/amp_examples.html)
    """
    for site in fn.sites((Backward, ScalerStep, Unscale)):
        for fault in site.faults(FaultKind.SCALER_MISMATCH):
            message = f"gradients of `{fault.subject}` meet `{fault.scaler}` while they carry the scale of another"
            effect = "g becomes g·S/S': g = (3, 4), S = 8 and S' = 16 give a norm of 2.5 instead of 5"
            yield violation(site, fault, message, effect=effect)
            break
