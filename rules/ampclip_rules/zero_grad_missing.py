"""AMP308: new gradients are added to ones that were already applied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Backward
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP308", severity=Severity.ERROR, since="0.1")
def zero_grad_missing(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a backward that adds to gradients which a step has applied, in a program that clears them on its other paths.
    ## Why is this bad?
    The step leaves g1, divided by S. The next backward adds S'·g2 to it, and the next step divides the sum once more:
    g1/S' + g2. With g1 = (3, 4), g2 = (-5, 12) and S = 8 that is (-4.625, 12.5), of norm 13.3: neither the new gradient
    (13) nor what full precision would accumulate (16.1). The loss scale masks the missing `zero_grad`, and another S
    gives another gradient.
    ## Example
    ```python
    for batch in loader:
        if use_amp:
            scaler.scale(model(batch)).backward()  # expect: AMP308
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()
    ```
    ## Use instead
    ```python
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled: then the gradients accumulate over all steps, which may be wanted.
    ## References
    - [PyTorch: Optimizer.zero_grad](https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html)
    """
    for site in fn.sites(Backward):
        for fault in site.faults(FaultKind.ZERO_GRAD_MISSING):
            message = f"gradients are added to those of `{fault.subject}` that were applied and not cleared"
            effect = "the next step applies g1/S + g2: g1 = (3, 4), g2 = (-5, 12), S = 8 give norm 13.3 instead of 13"
            yield violation(site, fault, message, effect=effect)
            break
