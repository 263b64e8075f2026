"""AMP102: one clip over an unscaled optimizer and a scaled one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP102", severity=Severity.ERROR, since="0.1")
def clip_partial_unscale(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a clip over parameters of an optimizer that is still scaled, although another optimizer has been unscaled.
    ## Why is this bad?
    `unscale_` divides the gradients of one optimizer. In a norm over g (unscaled) and S·h (not), ‖(g, S·h)‖, the scaled
    part decides alone, and both are shortened by it. For g = 3, h = 4, M = 1, S = 8 that norm is 32.1 instead of 5; the
    applied gradients are 0.093 and 0.124 instead of 0.6 and 0.8, of norm 0.156 instead of 1. A clip of the scaled part
    alone acts as C_{M/S}(h), as if nothing had been unscaled.
    ## Example
    ```python
    first, second = SGD(encoder.parameters(), lr=0.1), SGD(decoder.parameters(), lr=0.1)
    scaler.scale(loss_fn(decoder(encoder(batch)))).backward()
    scaler.unscale_(first)
    clip_grad_norm_(chain(encoder.parameters(), decoder.parameters()), 1.0)  # expect: AMP102
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    ```
    ## Use instead
    ```python
    first, second = SGD(encoder.parameters(), lr=0.1), SGD(decoder.parameters(), lr=0.1)
    scaler.scale(loss_fn(decoder(encoder(batch)))).backward()
    scaler.unscale_(first)
    scaler.unscale_(second)
    clip_grad_norm_(chain(encoder.parameters(), decoder.parameters()), 1.0)
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled, when h is zero, or when the norm does not reach M even with S.
    ## References
    - [PyTorch: multiple models, losses, and optimizers](https://pytorch.org/docs/stable/notes/amp_examples.html)
    """
    for site in fn.sites(Clip):
        for fault in site.faults(FaultKind.CLIP_PARTIAL):
            message = f"gradients of `{fault.subject}` are clipped while they carry the loss scale of `{fault.scaler}`"
            effect = "the scaled part decides the norm: g = 3, h = 4 with S = 8, M = 1 gives 0.156 instead of 1"
            yield violation(site, fault, f"{message}, beside others that are unscaled", effect=effect)
            break
