"""Facts against concrete values: what they say is true of every value that a path can have, and they say enough."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import pytest

from ampclip_lint.flow.facts import (
    Above,
    Atom,
    Below,
    Equals,
    Facts,
    Forget,
    IsNone,
    Learn,
    Residue,
    SetConstant,
    Shift,
    Subject,
    Truthy,
    Window,
    apply_fact_op,
    decide,
    symbol_subject,
)

X, INDEX, N = symbol_subject("x", "x"), symbol_subject("i", "i"), symbol_subject("n", "n")

# Errors of the engine that these tests have found. A mark goes when its error does.

VALUES = (None, True, False, -7, -2, -1, 0, 1, 2, 3, 4, 9, -0.5, 0.0, 0.5, 1.0, 1.5, "", "a", (), ("x",))
PREDICATES = (
    Truthy(),
    IsNone(),
    *map(Equals, (True, False, -1, 0, 1, 2, 1.5, "", "a")),
    *map(Above, (-1, 0, 0.5, 1)),
    *map(Below, (-1, 0, 0.5, 1)),
    *(Residue(2, 0), Residue(2, 1), Residue(3, 1), Residue(3, -1)),
)


def concrete(value, predicate):
    """Python's answer; ``None`` where Python raises, which ends a path."""
    try:
        match predicate:
            case Truthy():
                return bool(value)
            case IsNone():
                return value is None
            case Equals(other):
                return value == other
            case Above(bound):
                return value > bound
            case Below(bound):
                return value < bound
            case Residue(modulus, residue):
                # Counters are integers: a path that takes the residue of a fraction is out of scope.
                return (value - residue) % modulus == 0 if value % 1 == 0 else None
    except TypeError:
        return None


def candidates(known):
    """The values of which all these answers are true."""
    return [value for value in VALUES if all(concrete(value, predicate) is holds for predicate, holds in known)]


ANSWERS = [(predicate, holds) for predicate in PREDICATES for holds in (True, False)]
KNOWN = [frozenset(some) for size in range(3) for some in combinations(ANSWERS, size)]


def test_what_two_answers_settle_is_true_of_every_value():
    for known, question in product(KNOWN, PREDICATES):
        said = Facts({X: known}).value(Atom(X, question))
        if said is not None:
            for value in candidates(known):
                asked = concrete(value, question)
                assert asked is None or asked is said, f"{value!r} answers {set(known)}"


def test_a_path_is_never_refused():
    """Three tests in a row of one value, each with Python's answer."""
    for value, *tests in product(VALUES, PREDICATES, PREDICATES, PREDICATES):
        facts = Facts()
        for predicate in tests:
            answer = concrete(value, predicate)
            if answer is None:
                break
            facts = facts.assume(Atom(X, predicate), answer)
            assert facts is not None, f"{value!r}: {tests}"


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_of_a_constant_everything_is_known(value):
    facts = Facts().set_constant(X, value)
    for predicate in PREDICATES:
        asked = concrete(value, predicate)
        if asked is not None and not (isinstance(predicate, Residue) and isinstance(value, float)):
            assert facts.value(Atom(X, predicate)) is asked, predicate


def test_a_number_is_no_flag():
    """`steps == 1` and `flag == True` are different questions, though Python has 1 == True."""
    assert Equals(1) != Equals(True) != Equals(1.0) != Equals(1)
    assert len({Equals(1), Equals(True), Equals(1.0)}) == 3


@pytest.mark.parametrize(
    ("known", "question", "answer"),
    [
        ([(IsNone(), True)], Truthy(), False),
        ([(Truthy(), True)], IsNone(), False),
        ([(Truthy(), False)], IsNone(), None),
        ([(Equals("a"), True)], Equals("b"), False),
        ([(Equals("a"), False)], Equals("b"), None),
        ([(Equals("a"), True)], IsNone(), False),
        ([(Equals(0), True)], Truthy(), False),
        ([(Truthy(), False)], Equals(3), False),
        ([(Truthy(), False)], Above(0), False),
        ([(Above(2), True)], Above(1), True),
        ([(Above(1), True)], Above(2), None),
        ([(Above(1), True)], Below(1), False),
        ([(Above(1), False)], Above(2), False),
        ([(Above(1), False)], Below(2), True),
        ([(Above(0), True)], Truthy(), True),
        ([(Above(0), True)], Equals(0), False),
        ([(Above(0), True)], IsNone(), False),
        ([(Below(0), True)], Truthy(), True),
        ([(Below(5), True)], Equals(7), False),
    ],
)
def test_what_follows(known, question, answer):
    assert decide(frozenset(known), question) is answer


def test_zero_is_not_below_zero_and_false():
    facts = Facts().assume(Atom(X, Below(0)), False)
    assert facts.value(Atom(X, Truthy())) is None


@pytest.mark.parametrize("modulus", [2, N], ids=["2", "n"])
def test_what_differs_from_a_number_may_be_congruent_to_it(modulus):
    facts = Facts().assume(Atom(INDEX, Equals(0)), False)
    assert facts.value(Atom(INDEX, Residue(modulus, 0))) is None
    assert facts.value(Atom(INDEX, Residue(modulus, 1))) is None


def test_what_differs_from_a_number_says_nothing_of_the_modulus():
    facts = Facts().assume(Atom(INDEX, Equals(3)), False).assume(Atom(INDEX, Residue(N, 0)), True)
    assert facts.value(Atom(N, Equals(1))) is None


@pytest.mark.parametrize(("start", "step"), [(1000, -1), (-1000, 1)])
def test_a_constant_beyond_the_window_stays_on_its_side(start, step):
    facts = Facts().set_constant(INDEX, start).shift(INDEX, INDEX, step, Window(-1, 1))
    assert facts.value(Atom(INDEX, Above(0))) is not (start < 0)
    assert facts.value(Atom(INDEX, Below(0))) is not (start > 0)


# -- Facts as a whole ------------------------------------------------------------------------------------------------


def test_assume_learns_answers_or_refuses():
    on = Atom(X, Truthy())
    known = Facts().assume(on, True)
    assert known.value(on) is True
    assert known.assume(on, True) is known
    assert known.assume(on, False) is None
    assert known.assume(Atom(INDEX, Truthy()), False).value(on) is True


def test_forgetting_a_symbol_forgets_every_subject_that_mentions_it():
    both = Subject(("and", "x", "i"), frozenset({"x", "i"}))
    facts = Facts().assume(Atom(both, Truthy()), True).assume(Atom(X, Truthy()), True)
    assert set(facts.forget("i")) == {X}
    assert set(facts.forget("x")) == set()
    assert facts.forget("y") is facts
    assert set(facts.keep(lambda subject: subject == both)) == {both}


def test_a_symbol_that_rises_stays_above_what_it_has_passed():
    left = Subject(("difference", "n", "x"), frozenset({"n", "x"}), "n - x", "n", "x")
    passed = Facts().assume(Atom(X, Above(5)), True).assume(Atom(left, Above(0)), False).assume(Atom(N, Above(2)), True)
    assert apply_fact_op(Forget("x", rises=True), passed, Window(-1, 1)) == passed
    before = Facts().assume(Atom(X, Above(5)), False).assume(Atom(left, Above(0)), True)
    assert not apply_fact_op(Forget("x", rises=True), before, Window(-1, 1))
    assert not apply_fact_op(Forget("n", rises=True), passed.forget("x").forget("n"), Window(-1, 1))
    assert set(apply_fact_op(Forget("n", rises=True), passed, Window(-1, 1))) == {X, N}


def test_forgetting_a_modulus_forgets_its_residues():
    known, unknown = Atom(INDEX, Residue(2, 0)), Atom(INDEX, Residue(N, 0))
    facts = Facts().assume(known, True).assume(unknown, True)
    for changed in (facts.forget("n"), facts.set_constant(N, 3), facts.shift(N, N, 1, Window(-1, 1))):
        assert changed.value(known) is True
        assert changed.value(unknown) is None


def test_equal_facts_are_equal_whatever_the_order():
    left = Facts().assume(Atom(X, Truthy()), True).assume(Atom(INDEX, Equals(2)), False)
    right = Facts().assume(Atom(INDEX, Equals(2)), False).assume(Atom(X, Truthy()), True)
    assert left == right and hash(left) == hash(right)
    assert left != left.forget("x")


def test_instructions():
    window, on = Window(-1, 4), Atom(X, Truthy())
    facts = Facts().assume(on, True)
    assert apply_fact_op(Forget("x"), facts, window).value(on) is None
    assert apply_fact_op(Learn(on, False), facts, window).value(on) is False
    assert apply_fact_op(SetConstant(X, None), facts, window).value(Atom(X, IsNone())) is True
    counted = apply_fact_op(SetConstant(INDEX, 0), facts, window)
    moved = apply_fact_op(Shift(X, INDEX, 3), counted, window)
    assert moved.value(Atom(X, Equals(3))) is True
    assert moved.value(Atom(INDEX, Equals(0))) is True


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (Truthy(), "x"),
        (IsNone(), "x is None"),
        (Equals("a"), "x == 'a'"),
        (Above(2), "x > 2"),
        (Below(0.5), "x < 0.5"),
        (Residue(4, 3), "x % 4 == 3"),
        (Residue(N, -1), "x % n == -1"),
    ],
)
def test_texts(predicate, text):
    assert str(Atom(X, predicate)) == text


# -- Loop counters ---------------------------------------------------------------------------------------------------

FIRST, LAST, SECOND, ZERO = (Residue(N, 0), Residue(N, -1), Residue(N, 1), Equals(0))
TESTS = (
    *(Atom(INDEX, predicate) for predicate in (FIRST, LAST, SECOND, ZERO, Equals(2), Above(0), Below(2))),
    Atom(N, Equals(1)),
    Atom(N, Above(1)),
)


def holds_for(atom, i, n):
    value = n if atom.subject == N else i
    predicate = atom.predicate
    if isinstance(predicate, Residue):
        predicate = Residue(n if predicate.modulus == N else predicate.modulus, predicate.value)
    return concrete(value, predicate)


def subsets(items, most):
    return [some for size in range(1, most + 1) for some in combinations(items, size)]


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("known_start", [True, False], ids=["from a constant", "from anywhere"])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_a_loop_over_a_counter_never_contradicts_its_own_tests(n, known_start, step):
    """``while True: tests; i += step``, with every choice of up to three tests, from every start."""
    window = Window.of(TESTS)
    for tests, start in product(subsets(TESTS, 3), (-30, -2, 0, 1, 3, 30)):
        i, facts = start, Facts().set_constant(INDEX, start) if known_start else Facts()
        for _ in range(7):
            for atom in TESTS:
                said = facts.value(atom)
                assert said is None or said is holds_for(atom, i, n), f"i={i} n={n}: {atom} after {dict(facts)}"
            for atom in tests:
                facts = facts.assume(atom, holds_for(atom, i, n))
                assert facts is not None, f"i={i} n={n}: {atom}"
            i, facts = i + step, facts.shift(INDEX, INDEX, step, window)


@pytest.mark.parametrize("n", range(2, 6))
def test_a_loop_with_a_known_modulus_never_contradicts_its_own_tests(n):
    tests = [Atom(INDEX, Residue(n, value)) for value in range(n)] + [Atom(INDEX, Equals(0)), Atom(INDEX, Above(0))]
    window = Window.of(tests)
    for some, start, step in product(subsets(tests, 3), range(-1, 3), (1, 3, -1)):
        i, facts = start, Facts()
        for _ in range(2 * n):
            for atom in tests:
                said = facts.value(atom)
                assert said is None or said is holds_for(atom, i, n), f"i={i}: {atom} after {dict(facts)}"
            for atom in some:
                facts = facts.assume(atom, holds_for(atom, i, n))
                assert facts is not None, f"i={i}: {atom}"
            i, facts = i + step, facts.shift(INDEX, INDEX, step, window)


def windows(modulus, trips):
    """All sequences of (first?, last?) that the facts allow in ``for i in range(trips)``, as words over f, m, l, and o.

    f: the first of a window; l: the last; m: neither; o: both at once, a window of one.
    """
    first, last = (Atom(INDEX, Residue(modulus, value)) for value in (0, -1))
    window = Window.of([first, last])
    words = {("", Facts().set_constant(INDEX, 0))}
    for _ in range(trips):
        longer = set()
        for (word, facts), begins, ends in product(words, (True, False), (True, False)):
            after = facts.assume(first, begins)
            after = after.assume(last, ends) if after is not None else None
            if after is not None:
                letter = {(True, False): "f", (False, True): "l", (True, True): "o", (False, False): "m"}[begins, ends]
                longer.add((word + letter, after.shift(INDEX, INDEX, 1, window)))
        words = longer
    return {word for word, _ in words}


def test_windows_of_unknown_size_are_told_apart():
    """A window begins at once, and after the end of one another begins; windows of one never become longer."""
    real = {("fmmmmm" if n > 1 else "o") and word_of(n, 6) for n in range(1, 9)}
    allowed = windows(N, 6)
    assert real <= allowed
    assert {word for word in allowed if "o" in word} == {"oooooo"}
    for word in allowed - {"oooooo"}:
        assert word[0] == "f"
        for now, then in pairwise(word):
            assert (now == "l") == (then == "f"), word


@pytest.mark.parametrize("n", range(2, 5))
def test_windows_of_known_size_are_counted(n):
    assert windows(n, 6) == {word_of(n, 6)}


def word_of(n, trips):
    """What a loop over windows of n really does."""
    letters = {(True, False): "f", (False, True): "l", (True, True): "o", (False, False): "m"}
    return "".join(letters[i % n == 0, (i + 1) % n == 0] for i in range(trips))


def test_a_window_keeps_what_tests_ask_for_and_one_more():
    atoms = [Atom(INDEX, Residue(N, -1)), Atom(INDEX, Equals(3)), Atom(X, Equals(True)), Atom(INDEX, Equals(500))]
    assert Window.of(atoms) == Window(-2, 4)
    assert Window.of([]) == Window(-1, 1)


def test_a_counter_has_finitely_many_facts():
    """However long the loop: what is known of a constant that grows ends as a bound."""
    window = Window.of([Atom(INDEX, Equals(0)), Atom(INDEX, Above(2))])
    facts, seen = Facts().set_constant(INDEX, 0), []
    for _ in range(50):
        facts = facts.shift(INDEX, INDEX, 1, window)
        seen.append(facts)
    assert len(set(seen)) <= 6
    assert seen[-1].value(Atom(INDEX, Above(2))) is True
