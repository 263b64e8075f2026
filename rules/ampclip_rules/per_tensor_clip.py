"""AMP108: one bound for each tensor where one for all was meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP108", severity=Severity.INFO, since="0.1")
def per_tensor_clip(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a loop that clips every tensor, or every layer, alone with the same bound.
    ## Why is this bad?
    It is not wrong, but it is another algorithm than clipping the norm of the whole gradient, and often not the one
    that was meant: n tensors that are clipped to M each have a norm of up to √n·M together, and their proportions
    change, so that the gradient points elsewhere. For g = (3, 4) in two tensors and M = 1 the result is (1, 1), of
    norm 1.41, instead of (0.6, 0.8), of norm 1. The loss scale plays no part: S = 8 and S = 1 give the same.
    ## Example
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for p in model.parameters():
        clip_grad_norm_(p, max_norm=1.0)  # expect: AMP108
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When clipping by tensor is what is meant. One clip for each optimizer or model is usual and is not flagged.
    ## References
    - [PyTorch: clip_grad_norm_](https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html)
    """
    for site in fn.sites(Clip):
        for fault in site.faults(FaultKind.CLIP_EACH):
            message = f"gradients of `{fault.subject}` are clipped one tensor at a time, each with the same bound"
            effect = "n tensors have a norm of up to √n·M: g = (3, 4) in two tensors, M = 1 gives (1, 1), of norm 1.41"
            yield violation(site, fault, message, effect=effect)
            break
