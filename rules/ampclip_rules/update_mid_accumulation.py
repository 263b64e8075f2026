"""AMP401: the scale may change while scaled gradients are held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Backward, NewScaler, Update
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP401", severity=Severity.ERROR, since="0.1")
def update_mid_accumulation(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags an `update()` (or another change of the scale) between the microbatches of one window, or before their step.
    ## Why is this bad?
    What is held was multiplied by the old S, what comes next by the new S', and one division by S' ends both: g1·S/S' +
    g2. With g1 = (3, 4), g2 = (-5, 12), S = 8 and S' = 16 that is (-3.5, 14), of norm 14.4 instead of 16.1; after an
    overflow S' is S/2 and the old part counts twice. Where nothing was checked since the last update, PyTorch raises
    "No inf checks were recorded prior to update".
    ## Example
    ```python
    for i, batch in enumerate(loader):
        scaler.scale(model(batch) / 4).backward()
        if i % 4 == 3:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()  # expect: AMP401
    ```
    ## Use instead
    ```python
    for i, batch in enumerate(loader):
        scaler.scale(model(batch) / 4).backward()
        if i % 4 == 3:
            scaler.step(optimizer)
            optimizer.zero_grad()
            scaler.update()
    ```
    ## When it is harmless
    On every iteration where S stays as it is: it changes after an overflow and every `growth_interval` steps.
    ## References
    - [PyTorch: gradient accumulation](https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation)
    """
    for site in fn.sites((Backward, NewScaler, Update)):
        for fault in site.faults(FaultKind.UPDATE_MID_ACCUMULATION):
            message = f"the scale of `{fault.scaler}` may change while `{fault.subject}` holds gradients that carry it"
            effect = "g1·S/S' + g2: g1 = (3, 4), g2 = (-5, 12), S = 8, S' = 16 give norm 14.4 instead of 16.1"
            yield violation(site, fault, message, effect=effect)
            break
