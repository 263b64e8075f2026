"""AMP101: clipping gradients that still carry the loss scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP101", severity=Severity.ERROR, since="0.1")
def clip_before_unscale(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags clipping of gradients that are still multiplied by the loss scale S, against a threshold that is not.
    ## Why is this bad?
    The clip C_M(x) = x·min(1, M/‖x‖) compares the norm of S·g with a threshold that was meant for g. Since

        C_M(S·g) / S = C_{M/S}(g)

    the threshold acts as M/S, a number that the scaler changes as it likes. For g = (3, 4), M = 1 and S = 8 the applied
    gradient is (0.075, 0.1), of norm 0.125 instead of 1; with the initial S = 65536 the norm is 0.000015. SGD stops
    learning. Adam and its kin then normalise every gradient: each step looks clipped, however small its gradient is.
    ## Example
    ```python
    scaler.scale(loss).backward()
    clip_grad_norm_(model.parameters(), max_norm=1.0)  # expect: AMP101
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)  # knows that the gradients are unscaled and does not divide them again
    scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled (also on a machine without CUDA, where the mistake therefore cannot be seen),
    when the gradient is zero, or when neither S·g nor g reaches the threshold.
    ## References
    - [PyTorch: gradient clipping](https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping)
    """
    for site in fn.sites(Clip):
        for fault in site.faults(FaultKind.CLIP_SCALED):
            yield violation(
                site,
                fault,
                f"gradients of `{fault.subject}` are clipped while they carry the loss scale of `{fault.scaler}`",
                effect="the threshold M acts as M/S: g = (3, 4), M = 1, S = 8 gives a norm of 0.125 instead of 1",
            )
            break  # one call to move, however many optimizers it is wrong for
