"""AMP201: unscaling before the last backward of an accumulation window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Multiply, Unscale
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("AMP201", severity=Severity.ERROR, since="0.1")
def unscale_mid_accumulation(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags an `unscale_` after which a scaled backward adds to the same gradients before they are applied and cleared.
    ## Why is this bad?
    The later backward adds to gradients that were divided by S already, and `scaler.step` divides no more: the sum is
    g1 + S·g2 instead of g1 + g2. With g1 = (3, 4), g2 = (-5, 12) and S = 8 its norm is 106.6 instead of 16.1. A clip
    hides the size but not the direction: the first microbatches no longer count. An overflow in the later backward goes
    unseen too, since the scaler looked for it at the `unscale_`.
    ## Example
    ```python
    for i, batch in enumerate(loader):
        scaler.scale(model(batch) / 4).backward()
        if i % 4 == 0:
            scaler.unscale_(optimizer)  # expect: AMP201
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
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    ```
    ## When it is harmless
    When S is 1 or the scaler is disabled, or when the window has a single backward after all. Where `unscale_` is
    reached twice in a window, PyTorch raises: "unscale_() has already been called on this optimizer".
    ## References
    - [PyTorch: gradient accumulation](https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation)
    """
    for site in fn.sites((Multiply, Unscale)):
        for fault in site.faults(FaultKind.UNSCALE_MID_ACCUMULATION):
            where = "before the last backward of the window"
            effect = "the sum becomes g1 + S·g2: g1 = (3, 4), g2 = (-5, 12), S = 8 gives norm 106.6 instead of 16.1"
            message = f"gradients of `{fault.subject}` are unscaled by `{fault.scaler}` {where}"
            yield violation(site, fault, message, effect=effect)
            break
