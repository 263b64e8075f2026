"""AMP503: the first ordinary overflow stops training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip, RaiseOnNonfinite
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP503", severity=Severity.WARNING, since="0.1")
def nonfinite_norm_raises(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags `error_if_nonfinite=True`, and an unconditional `raise` for a norm that is not finite, with a scaler in use.
    ## Why is this bad?
    An overflow is how the scaler finds its S: the step is skipped, S = 65536 is halved until it fits, and training goes
    on. The first ones come within the first steps. If S = 16 is too large and S = 8 is right for g = (3, 4), a raise at
    the first inf means that S = 8 is never reached: the program ends instead of losing one step.
    ## Example
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # expect: AMP503
        scaler.step(optimizer)
        scaler.update()
    ```
    ## Use instead
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)  # skipped when a gradient is not finite
        scaler.update()
    ```
    ## When it is harmless
    When the scaler is disabled, or S is so small that nothing overflows. A limit on how many steps in a row may
    overflow is the better alarm.
    ## References
    - [PyTorch: clip_grad_norm_](https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html)
    """
    for site in fn.sites((Clip, RaiseOnNonfinite)):
        for fault in site.faults(FaultKind.NONFINITE_NORM_RAISES):
            message = f"a gradient of `{fault.subject}` that is not finite raises; `{fault.scaler}` would skip the step"
            effect = "the first ordinary overflow ends the program; the scaler would skip one step and halve S"
            yield violation(site, fault, message, effect=effect)
            break
