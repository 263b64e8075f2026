"""The machine against torch: every word of operations up to a length, and longer ones drawn by chance.

torch's verdict on a step is measured: the gradient that it applies is the same at every S, or it is not. The machine's
verdict is `wrong_when_applied`. benchmarks/enumerate_words.py does the same with longer words.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

torch = pytest.importorskip("torch")

from ampclip_lint.amp.machine import (  # noqa: E402
    ALREADY_STEPPED,
    ALREADY_UNSCALED,
    NO_CHECKS_FOR_STEP,
    NO_CHECKS_FOR_UPDATE,
    SCALE_IS_NONE,
    UNSCALE_AFTER_STEP,
)
from words import (  # noqa: E402
    ALPHABETS,
    EVERYTHING,
    ONE_OPTIMIZER,
    RECREATED_SCALER,
    REMEMBERED_SCALE,
    THRESHOLDS,
    Bench,
    Outcome,
    chance,
    disagreement,
    spell,
    too_loose_beside_a_right_one,
    walk,
)

LENGTHS = {"1 optimizer": 4, "2 optimizers": 3, "2 scalers": 4, "remembered S": 4}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors of two elements gain nothing from threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@lru_cache
def outcomes(name: str) -> tuple[Outcome, ...]:
    return tuple(walk(ALPHABETS[name], LENGTHS[name]))


@pytest.mark.parametrize("name", ALPHABETS)
def test_the_machine_agrees_with_torch_on_every_word(name):
    seen = outcomes(name)
    open_questions = [f"{one}: {disagreement(one)}" for one in seen if disagreement(one) and not excused(one)]
    assert open_questions == []
    steps = [one for one in seen if one.right is not None]
    wrong = [one for one in steps if not one.machine_right]
    # The comparison means something only where both verdicts are frequent, and excuses are not.
    assert len(wrong) >= 30 and len(steps) - len(wrong) >= 80
    assert sum(map(excused, seen)) <= len(wrong) // 50


def excused(outcome: Outcome) -> bool:
    """The one false alarm of the machine. Nothing excuses a miss, or another error than torch's."""
    flagged_for_nothing = not outcome.machine_right and outcome.right is not None and all(outcome.right)
    return flagged_for_nothing and too_loose_beside_a_right_one(outcome)


def test_every_error_of_the_scaler_occurs():
    texts = {one.torch_error for one in outcomes("1 optimizer") if one.torch_error}
    never_scaled = {SCALE_IS_NONE.format(call) for call in ("unscale_", "step", "update")}
    stages = {ALREADY_UNSCALED, UNSCALE_AFTER_STEP, ALREADY_STEPPED, NO_CHECKS_FOR_STEP, NO_CHECKS_FOR_UPDATE}
    assert texts == never_scaled | stages


def test_twelve_words_generate_all_silent_failures_of_one_optimizer():
    """A word is minimal when no word that is left of it after dropping letters fails as well."""
    failing = [one.word for one in outcomes("1 optimizer") if one.right is not None and not all(one.right)]
    minimal = {word for word in failing if not any(other != word and is_part(other, word) for other in failing)}
    assert {"".join(token.name for token in word) for word in minimal} == {
        *("BO", "BbS", "bBS", "BCS", "BVS", "BDS", "bDO", "bKO", "BUKS", "BUBS", "BUPS", "BSPS")
    }


def is_part(part: tuple[object, ...], whole: tuple[object, ...]) -> bool:
    letters = iter(whole)
    return all(letter in letters for letter in part)


@pytest.mark.parametrize("name", ALPHABETS)
def test_a_disabled_scaler_changes_nothing(name):
    for outcome in walk(ALPHABETS[name], 3, enabled=False):
        assert not outcome.raises, outcome
        assert outcome.machine_right, outcome
        assert outcome.right is None or all(outcome.right), outcome


@pytest.mark.parametrize("seed", range(3))
def test_the_machine_agrees_with_torch_on_long_words_of_all_letters(seed):
    steps = 0
    for outcome in chance(EVERYTHING, words=40, length=16, seed=seed):
        assert not disagreement(outcome) or excused(outcome), f"{outcome}: {disagreement(outcome)}"
        steps += outcome.right is not None
    assert steps > 40


def test_two_bugs_cancel_where_the_norm_exceeds_the_threshold():
    """Clipping scaled gradients and stepping without the scaler: wrong only where the true norm is below M."""
    outcome = spell(ONE_OPTIMIZER, "B C O")
    assert dict(zip(THRESHOLDS, outcome.right)) == {0.25: True, 4.5: True, 5.5: False, 4096.0: False}
    assert not outcome.machine_right


def test_a_threshold_times_s_before_unscaling_is_right():
    outcome = spell(ONE_OPTIMIZER, "B K S")
    assert all(outcome.right) and outcome.machine_right


def test_a_too_loose_clip_is_excused_only_beside_a_right_one():
    assert excused(spell(ONE_OPTIMIZER, "B U C K S"))
    assert not excused(spell(ONE_OPTIMIZER, "B U K S"))
    assert not excused(spell(ONE_OPTIMIZER, "B C U K S"))


def test_the_worked_example_of_the_design():
    """Gradient (3, 4), M = 1, S = 8."""
    bench = Bench((8.0, 8.0), doubling=False)
    letters = {token.name: token for token in ONE_OPTIMIZER}

    def applied(word: str) -> tuple[float, ...]:
        bench.load(fresh)
        for name in word:
            letters[name].act(bench, 1.0)
        return bench.applied()[:2]

    fresh = bench.save()
    assert applied("BUCS") == pytest.approx((0.6, 0.8))
    assert applied("BCUS") == pytest.approx((0.075, 0.1))


def test_two_old_scales_of_different_epochs_do_not_cancel():
    """The variable keeps S of the first epoch, the gradients carry S of the second, and a third one has begun."""
    outcome = spell(REMEMBERED_SCALE, "B R Z N B N D O")
    assert disagreement(outcome) == ""


@pytest.mark.parametrize("word", ["B U Z G B U", "B S Z G B S"])
def test_a_new_scaler_has_no_stages(word):
    assert disagreement(spell(RECREATED_SCALER, word)) == ""


@pytest.mark.parametrize("word", ["B S G S", "B S G B Z P"])
def test_a_new_scaler_has_scaled_and_checked_nothing(word):
    assert disagreement(spell(RECREATED_SCALER, word)) == ""


def test_a_new_scaler_has_another_scale():
    """The old one had doubled its scale."""
    assert disagreement(spell(RECREATED_SCALER, "B S Z P B G B S")) == ""
