"""Laws of units and of sets of units, by exhaustive enumeration over all units of two scalers up to a power."""

from __future__ import annotations

from itertools import chain, combinations
from itertools import product as pairs_of

import pytest

from ampclip_lint.amp.machine import ScalerState, State, Table, evaluate, run
from ampclip_lint.amp.ops import Backward, Clip, Edit, Multiply, ScalerStep, Unscale, Update, ZeroGrad
from ampclip_lint.amp.units import (
    MAX_POWER,
    MIXED,
    NO_UNITS,
    ONE,
    PLAIN,
    TRUE_GRADIENT,
    Age,
    Bounded,
    Inverse,
    Known,
    OfGradients,
    Product,
    Ref,
    Root,
    ScaleOf,
    Stored,
    Sum,
    Unit,
    aged,
    invert,
    multiply,
    product,
    root,
    scale_of,
    union,
    units_text,
)

A, B = Ref(0, "a"), Ref(1, "b")
OPTIMIZER, VARIABLE = Ref(2, "optimizer"), Ref(3, "s")


def unit(a: int = 0, b: int = 0, age: Age = Age.CURRENT) -> Unit:
    return Unit(tuple((scaler, power) for scaler, power in ((A, a), (B, b)) if power), age)


def units_up_to(power: int, *ages: Age) -> list[Unit]:
    powers = range(-power, power + 1)
    return [unit(a, b, age) for a in powers for b in powers for age in ages if a or b] + [ONE]


CURRENT = units_up_to(1, Age.CURRENT)
EVERY = [*units_up_to(2, Age.CURRENT, Age.STALE), MIXED]
FEW = [ONE, scale_of(A), scale_of(A, -1), unit(1, age=Age.STALE), scale_of(B), MIXED]
SETS = [frozenset(some) for some in chain.from_iterable(combinations(FEW, size) for size in range(len(FEW) + 1))]


def test_units_of_a_sum_are_a_join():
    for left, right in pairs_of(SETS, SETS):
        joined = union((left, right))
        assert joined == union((right, left))
        assert left <= joined and right <= joined
        assert (left <= right) == (joined == right)
        assert all(joined <= bound for bound in SETS if left <= bound and right <= bound)
    for one in SETS:
        assert union((one, one)) == one == union((one, NO_UNITS))


def test_join_is_associative():
    for a, b, c in pairs_of(SETS[::2], SETS[::2], SETS[::2]):
        assert union((a, union((b, c)))) == union((union((a, b)), c)) == union((a, b, c))


def test_multiplication_is_commutative_and_one_is_neutral():
    for left, right in pairs_of(EVERY, EVERY):
        assert multiply(left, right) == multiply(right, left)
    for one in EVERY:
        assert multiply(one, ONE) == one


@pytest.mark.parametrize("age", [Age.CURRENT, Age.STALE])
def test_units_of_one_epoch_are_a_group(age):
    units = units_up_to(1, age)
    for a, b, c in pairs_of(units, units, units):
        assert multiply(a, multiply(b, c)) == multiply(multiply(a, b), c)
    for one in units_up_to(MAX_POWER, age):
        assert multiply(one, invert(one)) == ONE
        assert invert(invert(one)) == one


def test_powers_add_up():
    for left, right in pairs_of(units_up_to(2, Age.CURRENT), repeat=2):
        for scaler in (A, B):
            assert multiply(left, right).power(scaler) == left.power(scaler) + right.power(scaler)


def test_mixed_absorbs_everything():
    for one in EVERY:
        assert multiply(MIXED, one) == MIXED
    assert invert(MIXED) == root(MIXED) == MIXED
    assert not MIXED.is_one


def test_an_old_scale_never_cancels_against_the_current_one():
    for new, old in pairs_of(units_up_to(2, Age.CURRENT), units_up_to(2, Age.STALE)):
        if new.powers and old.powers:
            assert multiply(new, old) == MIXED


def test_products_leave_the_finite_domain_as_mixed():
    for power in range(-2 * MAX_POWER, 2 * MAX_POWER + 1):
        half = power // 2
        made = multiply(scale_of(A, half), scale_of(A, power - half))
        assert made == (scale_of(A, power) if power else ONE) if abs(power) <= MAX_POWER else made == MIXED


def test_multiplication_is_closed():
    """However often it is repeated: from S and 1/S of two scalers no more than these units arise."""
    known = {ONE}
    pending = [ONE]
    while pending:
        one = pending.pop()
        steps = [multiply(one, scale_of(scaler, power)) for scaler in (A, B) for power in (1, -1)]
        aging = [unit for scaler in (A, B) for unit in aged(frozenset({one}), scaler)]
        for fresh in (*steps, *aging):
            if fresh not in known:
                known.add(fresh)
                pending.append(fresh)
    powers = 2 * MAX_POWER + 1
    assert len(known) == 2 * powers**2 - 1 + 1  # current and stale ones, ONE only once, and MIXED


def test_a_product_distributes_over_a_sum():
    for a, b, c in pairs_of(SETS[::3], SETS[::2], SETS[::2]):
        assert product(a, union((b, c))) == union((product(a, b), product(a, c)))
    for one in SETS:
        assert product(one, TRUE_GRADIENT) == one
        assert product(one, NO_UNITS) == NO_UNITS


def test_only_the_unit_of_a_true_gradient_is_one():
    assert [str(one) for one in EVERY if one.is_one] == ["1"]


# -- Epochs ----------------------------------------------------------------------------------------------------------


def test_an_update_makes_what_carries_its_scale_stale():
    for one in units_up_to(2, Age.CURRENT):
        (old,) = aged(frozenset({one}), A)
        assert old == (Unit(one.powers, Age.STALE) if one.power(A) else one)


def test_aging_is_sticky():
    """No later update makes anything current again, or takes a mixed unit away."""
    for units in SETS:
        old = aged(units, A)
        assert not any(one.age is Age.CURRENT and one.power(A) for one in old)
        for again in (aged(old, A), aged(old, B)):
            assert {one for one in again if one.age is Age.CURRENT} <= old
            assert bool(again) == bool(old)
            assert MIXED in again or MIXED not in old


def test_two_epochs_in_one_sum_are_mixed():
    assert aged(frozenset({scale_of(A), unit(1, age=Age.STALE)}), A) == {MIXED}
    assert aged(frozenset({scale_of(A), scale_of(B), ONE}), A) == {unit(1, age=Age.STALE), scale_of(B), ONE}


# -- Roots, values, texts --------------------------------------------------------------------------------------------


def test_a_root_undoes_a_square():
    for one in units_up_to(2, Age.CURRENT, Age.STALE):
        assert root(multiply(one, one)) == one
    assert root(scale_of(A)) == MIXED


def test_values_are_evaluated_in_a_state():
    state = run(Backward(ScaleOf(A), (OPTIMIZER,)), State()).state
    known, scale = Known(frozenset({ONE, scale_of(B)})), frozenset({scale_of(A)})
    for expr, units in [
        (ScaleOf(A), scale),
        (Inverse(ScaleOf(A)), {scale_of(A, -1)}),
        (Product(ScaleOf(A), Inverse(ScaleOf(A))), TRUE_GRADIENT),
        (Product(ScaleOf(A), known), {scale_of(A), unit(1, 1)}),
        (Sum((PLAIN, ScaleOf(A))), {ONE, scale_of(A)}),
        (Root(Product(ScaleOf(A), ScaleOf(A))), scale),
        (OfGradients((OPTIMIZER,)), scale),
        (OfGradients((Ref(9, "other"),)), TRUE_GRADIENT),
        (Stored(VARIABLE), TRUE_GRADIENT),
        (Bounded(known), {ONE, MIXED}),
    ]:
        assert evaluate(expr, state) == units, expr
    assert evaluate(ScaleOf(A), state, frozenset({A})) == TRUE_GRADIENT


@pytest.mark.parametrize(
    ("units", "text"),
    [
        ((), "empty"),
        ((ONE,), "1"),
        ((scale_of(A), ONE), "1 + S"),
        ((scale_of(A, 2),), "S^2"),
        ((scale_of(A, -1),), "S^-1"),
        ((unit(1, age=Age.STALE),), "S_old"),
        ((unit(1, -1),), "S(a)·S(b)^-1"),
        ((MIXED, ONE), "1 + mixed"),
    ],
)
def test_texts(units, text):
    assert units_text(frozenset(units)) == text


def test_references_are_what_they_refer_to():
    assert Ref(0, "scaler") == Ref(0, "self.scaler") != Ref(1, "scaler")
    assert len({Ref(0, "scaler"), Ref(0, "self.scaler")}) == 1


# -- Operations on sets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    [
        Backward(ScaleOf(A), (OPTIMIZER,)),
        Backward(PLAIN, (OPTIMIZER,)),
        Unscale(A, OPTIMIZER),
        Multiply((OPTIMIZER,), Inverse(ScaleOf(A))),
        Edit((OPTIMIZER,)),
        Clip((OPTIMIZER,)),
        ScalerStep(A, OPTIMIZER),
        Update(A, new_scale=True),
        ZeroGrad((OPTIMIZER,)),
    ],
    ids=lambda op: type(op).__name__,
)
def test_operations_are_monotone(op):
    """More in a buffer before is no less behind: what an operation does to a contribution it does beside others."""
    for less, more in pairs_of(SETS, SETS):
        if less and less <= more:
            before, after = behind(op, less), behind(op, more)
            assert before.units <= after.units or MIXED in after.units
            assert after.bent or not before.bent


def behind(op, units):
    buffer = State().buffer(OPTIMIZER)
    state = State(scalers=Table({A: ScalerState()})).with_buffer(OPTIMIZER, type(buffer)(units=units))
    outcome = run(op, state)
    assert outcome.error is None
    return outcome.state.buffer(OPTIMIZER)
