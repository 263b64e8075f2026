"""AMP306: a step that finds no gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import ScalerStep, Unscale
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP306", severity=Severity.ERROR, since="0.1")
def step_without_gradients(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a `scaler.step` whose gradients were cleared before it, or are not made yet.
    ## Why is this bad?
    With no gradient there is no check for overflow, and PyTorch raises "No inf checks were recorded for this
    optimizer". Gradients that `zero_grad` has set to zero instead (the default before PyTorch 2.0) raise nothing: of g
    = (3, 4), made with S = 8, nothing is applied, and the model does not learn.
    ## Example
    ```python
    scaler.scale(loss).backward()
    optimizer.zero_grad()
    scaler.step(optimizer)  # expect: AMP306
    scaler.update()
    ```
    ## Use instead
    ```python
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    ```
    ## When it is harmless
    Never in training. With a disabled scaler the step does nothing and no error shows it.
    ## References
    - [PyTorch: GradScaler.step](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step)
    - [PyTorch: Optimizer.zero_grad](https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html)
    """
    for site in fn.sites((ScalerStep, Unscale)):
        for fault in site.faults(FaultKind.STEP_WITHOUT_GRADIENTS):
            message = f"`{fault.scaler}` steps `{fault.subject}`, which has no gradients here"
            effect = "raises `No inf checks were recorded for this optimizer`; where zeros are left, nothing is learned"
            yield violation(site, fault, message, effect=effect)
            break
