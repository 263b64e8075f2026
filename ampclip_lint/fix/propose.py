"""What might put a finding right: for each code the candidates for an edit, in the order in which they are tried.

A candidate is a guess that a person would make from the text. Whether it is right is decided by analysing the program
with it, so a proposer may guess, but it writes only what can stand at that place, and it says what a person has to look
at: a candidate is *safe* if only the wrong call changes, and *unsafe* if it decides something that the text leaves open
(which steps happen, which of two readings was meant).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ampclip_lint.diagnostics import Edit
from ampclip_lint.fix.candidate import Candidate
from ampclip_lint.fix.clips import clip_before_step, clip_together, let_overflow_pass, same_unit, unscale_first
from ampclip_lint.fix.scene import Scene
from ampclip_lint.fix.steps import clear_first, clear_later, one_scaler, scale_backward, step_by_scaler, step_once
from ampclip_lint.fix.unscaling import divide_once, unscale_before_step, unscale_later
from ampclip_lint.fix.updates import make_once, update_always, update_later

Proposer = Callable[[Scene], Iterator[Candidate | None]]

#: The candidates for each code; for the codes that are not here there are none.
TABLE: dict[str, Proposer] = {
    "AMP101": unscale_first,
    "AMP102": unscale_first,
    "AMP103": clip_before_step,
    "AMP104": same_unit,
    "AMP105": unscale_first,
    "AMP106": unscale_first,
    "AMP107": clip_before_step,
    "AMP108": clip_together,
    "AMP109": clip_before_step,
    "AMP201": unscale_later,
    "AMP202": divide_once,
    "AMP203": unscale_before_step,
    "AMP301": step_by_scaler,
    "AMP302": step_by_scaler,
    "AMP303": scale_backward,
    "AMP304": one_scaler,
    "AMP305": step_once,
    "AMP306": clear_later,
    "AMP308": clear_first,
    "AMP401": update_later,
    "AMP402": update_later,
    "AMP403": update_always,
    "AMP404": make_once,
    "AMP405": update_later,
    "AMP501": unscale_first,
    "AMP503": let_overflow_pass,
}


def candidates(scene: Scene) -> Iterator[Candidate]:
    """The candidates for a finding, the best first, none twice."""
    seen: set[tuple[Edit, ...]] = set()
    propose = TABLE.get(scene.diagnostic.code)
    if propose is None or scene.statement is None:
        return
    for candidate in propose(scene):
        if candidate is not None and candidate.edits not in seen:
            seen.add(candidate.edits)
            yield candidate
