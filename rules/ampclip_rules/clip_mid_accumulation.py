"""AMP109: clipping partial sums of an accumulation window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP109", severity=Severity.WARNING, since="0.1")
def clip_mid_accumulation(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags a clip after which another backward of the same window adds to the clipped gradients.
    ## Why is this bad?
    What has been accumulated is cut to M each time, and the next microbatch then counts with its full length: the
    early ones weigh less the more there are, and their sum is no longer the gradient of the mean loss. For g1 = (3,
    4), g2 = (-5, 12), M = 1 the first counts with norm 1 instead of 5: C_M(C_M(g1) + g2) = (-0.325, 0.946), where
    C_M(g1 + g2) = (-0.124, 0.992). With a threshold M·S this is so for S = 8 as for S = 1.
    ## Example
    ```python
    for i, batch in enumerate(loader):
        scaler.scale(model(batch) / 4).backward()
        clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())  # expect: AMP109
        if i % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    ```
    ## Use instead
    ```python
    for i, batch in enumerate(loader):
        scaler.scale(model(batch) / 4).backward()
        if i % 4 == 3:
            clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    ```
    ## When it is harmless
    When the partial sums stay below the threshold, or when each microbatch is meant to be limited.
    ## References
    - [PyTorch: gradient accumulation](https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation)
    """
    for site in fn.sites(Clip):
        for fault in site.faults(FaultKind.CLIP_MID_ACCUMULATION):
            message = f"partial sums of the gradients of `{fault.subject}` are clipped before the window is complete"
            effect = "early microbatches count less: g1 = (3, 4), M = 1 enters the sum with norm 1 instead of 5"
            yield violation(site, fault, message, effect=effect)
            break
