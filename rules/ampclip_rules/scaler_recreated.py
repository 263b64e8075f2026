"""AMP404: the scaler is made anew again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import NewScaler
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP404", severity=Severity.WARNING, since="0.1")
def scaler_recreated(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a scaler that is built inside the loop that trains, or that lives for one call which makes one step with it.
    ## Why is this bad?
    S is learned: it halves after every overflow and grows after many clean steps. A new scaler forgets it and begins
    with 65536 again. Where only S = 8 or less is safe, a scaler that is kept gets there after 13 skipped steps; one
    that is made anew overflows at every step, and g = (3, 4) is never applied. Nothing is raised, the model just does
    not learn.
    ## Example
    ```python
    for batch in loader:
        scaler = GradScaler()  # expect: AMP404
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    ```
    ## Use instead
    ```python
    scaler = GradScaler()
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    ```
    ## When it is harmless
    When the initial scale never overflows, or the scaler is disabled. One scaler an epoch is no finding: it has time to
    adapt.
    ## References
    - [PyTorch: GradScaler](https://pytorch.org/docs/stable/amp.html#gradient-scaling)
    """
    for site in fn.sites(NewScaler):
        for fault in site.faults(FaultKind.SCALER_RECREATED):
            message = f"`{fault.scaler}` is made anew for every step"
            effect = "S starts at 65536 each time: if only S = 8 is safe, every step overflows and is skipped"
            yield violation(site, fault, message, effect=effect)
            break
