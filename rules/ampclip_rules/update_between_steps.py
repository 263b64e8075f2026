"""AMP402: an update between the steps of optimizers that share a backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import NewScaler, Update
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP402", severity=Severity.ERROR, since="0.1")
def update_between_steps(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags an `update()` after the step of one optimizer and before that of another whose gradients the same backward
    made.
    ## Why is this bad?
    The second optimizer still holds S·h, made with the old S, and its step divides by the new S': it applies h·S/S'.
    For h = (3, 4), S = 8 and S' = 16 that is (1.5, 2), of norm 2.5 instead of 5; after an overflow it is twice h. And
    its overflow is counted one update too late.
    ## Example
    ```python
    first, second = SGD(encoder.parameters(), lr=0.1), SGD(decoder.parameters(), lr=0.1)
    for batch in loader:
        first.zero_grad()
        second.zero_grad()
        scaler.scale(loss_fn(decoder(encoder(batch)))).backward()
        scaler.step(first)
        scaler.update()  # expect: AMP402
        scaler.step(second)
        scaler.update()
    ```
    ## Use instead
    ```python
    first, second = SGD(encoder.parameters(), lr=0.1), SGD(decoder.parameters(), lr=0.1)
    for batch in loader:
        first.zero_grad()
        second.zero_grad()
        scaler.scale(loss_fn(decoder(encoder(batch)))).backward()
        scaler.step(first)
        scaler.step(second)
        scaler.update()
    ```
    ## When it is harmless
    While S stays as it is, and where each optimizer has a backward of its own.
    ## References
    - [PyTorch: multiple models, losses, and optimizers](https://pytorch.org/docs/stable/notes/amp_examples.html)
    """
    for site in fn.sites((NewScaler, Update)):
        for fault in site.faults(FaultKind.UPDATE_BETWEEN_STEPS):
            message = f"the scale of `{fault.scaler}` may change before `{fault.subject}` is stepped"
            effect = "it applies h·S/S': h = (3, 4), S = 8, S' = 16 give a norm of 2.5 instead of 5"
            yield violation(site, fault, message, effect=effect)
            break
