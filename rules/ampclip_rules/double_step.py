"""AMP305: the same gradients are applied twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import OptimizerStep, ScalerStep, Unscale
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP305", severity=Severity.ERROR, since="0.1")
def double_step(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a step of gradients that another step has applied already: `scaler.step` and `optimizer.step` both, or one of
    them twice.
    ## Why is this bad?
    `scaler.step(optimizer)` calls `optimizer.step()` itself. A plain step beside it applies g once more, 2·g in all:
    with g = (3, 4), S = 8 and a rate of 1 the weights move by (6, 8). After an overflow the first step is skipped and
    the second one applies the inf. A second `scaler.step` raises "step() has already been called since the last
    update()"; after an `update()` it divides again and applies g/S = (0.375, 0.5).
    ## Example
    ```python
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    optimizer.step()  # expect: AMP305
    scaler.update()
    optimizer.zero_grad()
    ```
    ## Use instead
    ```python
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    ```
    ## When it is harmless
    With a disabled scaler nothing is raised, and every gradient counts twice. Two optimizers that own different
    parameters may each be stepped once.
    ## References
    - [PyTorch: GradScaler.step](https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step)
    """
    for site in fn.sites((OptimizerStep, ScalerStep, Unscale)):
        for fault in site.faults(FaultKind.DOUBLE_STEP):
            message = f"gradients of `{fault.subject}` are applied a second time"
            again = "raises `step() has already been called since the last update()`; after an update it applies g/S"
            plain = "2·g is applied, and after an overflow the inf: g = (3, 4) moves the weights by (6, 8)"
            effect = plain if isinstance(site.op, OptimizerStep) else again
            yield violation(site, fault, message, effect=effect)
            break
