"""AMP106: values that are limited before the scaler has looked for an overflow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip, Edit, Hook
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP106", severity=Severity.ERROR, since="0.1")
def overflow_hidden(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags `clip_grad_value_`, clamping or `nan_to_num` of gradients before `unscale_` or `scaler.step` has checked
    them.
    ## Why is this bad?
    The scaler finds an overflow by looking for inf and NaN; then it skips the step and lowers S. A value clip turns
    inf into the finite v, `nan_to_num` into 3.4e38 or 0: the step is taken with a gradient that means nothing, and S
    stays too large. A norm clip does not hide it, since inf·0 is NaN. Besides, a bound v that does not carry S acts
    as v/S: for g = (3, 4), v = 1, S = 8 the applied gradient is (0.125, 0.125) instead of (1, 1).
    ## Example
    ```python
    scaler.scale(loss).backward()
    clip_grad_value_(model.parameters(), clip_value=1.0)  # expect: AMP106
    scaler.step(optimizer)
    scaler.update()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # looks for inf and NaN, and remembers
    clip_grad_value_(model.parameters(), clip_value=1.0)
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    When the scaler is disabled. With S = 1 the bound is right, but an overflow goes unseen all the same; it does so,
    too, with a bound of v·S.
    ## References
    - [PyTorch: GradScaler](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler)
    """
    for site in fn.sites((Clip, Edit, Hook)):
        for fault in site.faults(FaultKind.OVERFLOW_HIDDEN):
            where = f"before `{fault.scaler}` has looked for an overflow"
            effect = "inf becomes a finite number and is applied; a bound v acts as v/S: 1 as 0.125 for S = 8"
            yield violation(site, fault, f"gradients of `{fault.subject}` are clamped {where}", effect=effect)
            break
