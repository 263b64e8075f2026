"""AMP104: a norm and a threshold that do not carry the same power of the loss scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP104", severity=Severity.ERROR, since="0.1")
def clip_threshold_unit(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a clip whose threshold carries the loss scale S although the gradients do not, or whose given norm carries
    another power of S than its threshold.
    ## Why is this bad?
    A clip multiplies by min(1, M/‖g‖), and that is independent of S only if norm and threshold carry the same power
    of S. With the threshold M·S, on gradients that are unscaled, the clip is C_{M·S}(g): for g = (3, 4), M = 1, S = 8
    it lets norm 5 pass where 1 is meant, and with the initial S = 65536 it never clips. The other way round, a norm
    that was taken before `unscale_`, given to `clip_grads_with_norm_` with the plain threshold M, shortens by
    M/(S·‖g‖): to norm 0.125.
    ## Example
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())  # expect: AMP104
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled, or when no norm lies between M and M·S. A threshold times S is right where
    the gradients are still scaled, and is not flagged there.
    ## References
    - [PyTorch: gradient clipping](https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping)
    """
    for site in fn.sites(Clip):
        for fault in site.faults(FaultKind.CLIP_THRESHOLD_UNIT):
            message = f"gradients of `{fault.subject}` are clipped with a norm and a threshold of different units"
            effect = "a threshold M·S on unscaled gradients: g = (3, 4), M = 1, S = 8 passes with norm 5 instead of 1"
            yield violation(site, fault, message, effect=effect)
            break
