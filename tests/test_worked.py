"""The worked numbers: the formulas, and that the texts of the rules say the same."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.worked import FORMULAS, SCALES, curve, norm

RULES = Path(__file__).resolve().parent.parent / "rules" / "ampclip_rules"

#: The vector that the effect of AMP105 writes out, where others write a norm.
VECTORS = {FaultKind.EDIT_SCALED: ((3.125, 4.125), (4.0, 5.0))}
#: Constant effects: what is read or applied does not depend on S.
CONSTANT = {FaultKind.CLIP_AFTER_STEP, FaultKind.CLIP_WITHOUT_GRADIENTS}


def effect(kind: FaultKind) -> str:
    """The text of the effect in the rule that speaks of a kind of fault."""
    found = [
        match[1]
        for path in RULES.glob("*.py")
        if re.search(rf"\bFaultKind\.{kind.name}\b", text := path.read_text(encoding="utf-8"))
        for match in re.finditer(r'effect ?= ?"([^"]+)"', text)
    ]
    assert len(found) == 1, kind
    return found[0]


@pytest.mark.parametrize("kind", FORMULAS, ids=lambda kind: kind.name)
def test_the_effect_of_the_rule_has_the_same_numbers(kind: FaultKind) -> None:
    formula, text = FORMULAS[kind], effect(kind)
    applied = formula.applied(8.0)
    if kind in VECTORS:
        assert (applied, formula.intended) == VECTORS[kind]
        assert "(3.125, 4.125), not (4, 5)" in text
        return
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
    for value in (norm(applied), norm(formula.intended)):
        assert any(math.isclose(value, number, rel_tol=5e-3) for number in numbers), (value, text)


@pytest.mark.parametrize("kind", FORMULAS, ids=lambda kind: kind.name)
def test_at_scale_one_nothing_is_wrong(kind: FaultKind) -> None:
    formula = FORMULAS[kind]
    right = math.isclose(norm(formula.applied(1.0)), norm(formula.intended))
    if kind in CONSTANT:
        assert formula.applied(1.0) == formula.applied(65536.0) != formula.intended
    elif kind is FaultKind.SCALER_MISMATCH:
        assert formula.applied(16.0) == formula.intended, "two scalers agree where they have the same scale"
    elif kind is FaultKind.ZERO_GRAD_MISSING:
        assert not right, "what was applied is applied again"
    else:
        assert right


def test_a_curve_goes_from_one_to_the_scale_that_a_scaler_starts_with() -> None:
    found = curve(FaultKind.CLIP_SCALED)
    assert found is not None
    assert (SCALES[0], SCALES[-1]) == (1.0, 65536.0)
    assert found.applied[0] == (1.0, found.intended)
    assert found.applied[3] == (8.0, 0.125)
    assert curve(FaultKind.UNSCALE_AFTER_STEP) is None
