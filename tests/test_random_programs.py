"""Random training programs: what torch shows of them is what the engine finds, and the other way round.

benchmarks/random_programs.py does the same with thousands of them.
"""

from __future__ import annotations

import ast
from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ampclip_lint.amp.faults import FaultKind  # noqa: E402
from program_verdicts import (  # noqa: E402
    LIMITS,
    Comparison,
    Unjudged,
    compare,
    engine_verdict,
    shrink,
    torch_verdict,
)
from programs import MISTAKES, Generated, generate  # noqa: E402


@st.composite
def programs(draw: st.DrawFn) -> Generated:
    """A program with zero to three mistakes."""
    return generate(draw(st.randoms(use_true_random=False)))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors of four elements gain nothing from threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def told(found: Comparison) -> str:
    """A disagreement, shrunk by statements: hypothesis would shrink the dice."""
    small = shrink(found)
    return (
        f"{small.problem}: torch says {small.torch.word} {small.torch.choice} {small.torch.detail}, "
        f"the engine {sorted((row, kind.name) for row, kind in small.engine.faults)}\n{small.program.source}"
    )


def agrees(program: Generated) -> Comparison | None:
    """The comparison, once it is one; fails where the verdicts differ and no documented limit is why."""
    try:
        found = compare(program)
    except Unjudged:
        return None
    if found.problem and not found.limit:
        pytest.fail(told(found), pytrace=False)
    return found


@settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(programs())
def test_torch_and_the_engine_agree_on_programs_that_hypothesis_draws(program):
    agrees(program)


def test_torch_and_the_engine_agree_on_programs_by_seed():
    verdicts = Counter(found.torch.word for seed in range(80) if (found := agrees(generate(Random(seed)))))
    # The comparison means something only where all verdicts are frequent.
    assert min(verdicts[word] for word in ("right", "wrong", "raises")) >= 8, verdicts


def test_a_program_without_mistakes_is_right_to_both():
    for seed in range(1000, 1012):
        program = generate(Random(seed), mistakes=0)
        found = agrees(program)
        assert found is not None and found.torch.word == "right" and not found.engine.faults, program.source


def test_the_generator_varies_what_it_should():
    drawn = [generate(Random(seed)) for seed in range(300)]
    made = Counter(mistake for program in drawn for mistake in program.mistakes)
    assert set(made) == {mistake.__name__ for mistake in MISTAKES}
    assert {len(program.mistakes) for program in drawn} == {0, 1, 2, 3}
    text = "\n".join(program.source for program in drawn)
    for spelling in (
        "class Trainer", "    def ", "continue", "zip(", ".values()", "enumerate(loader, start=1)", "use_amp=True",
        "scaler is not None", "GradScaler(enabled=use_amp)", "if use_amp else None", "if use_amp else loss).backward()",
        "[start:start +", "count += 1", "boundary =", "i + 1 == len(loader)", "clip_grad_value_", "get_total_norm",
        "float('inf')", "scaler.get_scale()", "scaled.backward()", ".detach()",
    ):  # fmt: skip
        assert spelling in text, spelling


def test_a_seed_gives_the_same_program_again():
    assert generate(Random(7)) == generate(Random(7))
    assert len({generate(Random(seed)).source for seed in range(50)}) == 50


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_every_program_is_source_that_ast_reads_back(seed):
    program = generate(Random(seed))
    tree = ast.parse(program.source)
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)][-1] == "program"
    compile(program.source, "program.py", "exec")


LOOP = """\
import torch


def program(net, loader, opt, scaler, crit, use_amp):
    for xb, yb in loader:
        opt.zero_grad()
        loss = crit(net(xb), yb)
        if use_amp:
            scaler.scale(loss).backward()
{scaled}
            scaler.step(opt)
            scaler.update()
        else:
            loss.backward()
            opt.step()
"""
CLIP = "torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)"


def loop(*lines: str) -> Generated:
    return Generated(LOOP.format(scaled="\n".join(" " * 12 + line for line in lines or ("pass",))))


def test_torch_sees_a_wrong_arm_although_the_other_one_is_right():
    assert torch_verdict(loop("scaler.unscale_(opt)", CLIP)).word == "right"
    verdict = torch_verdict(loop(CLIP))
    assert verdict.word == "wrong" and verdict.choice["use_amp"] is True
    assert torch_verdict(loop("scaler.unscale_(opt)", "scaler.unscale_(opt)")).word == "raises"


def test_a_loose_clip_shows_what_a_tight_one_hides():
    """Scaled gradients, clipped, then stepped without the scaler: two bugs that cancel where the clip bites."""
    source = LOOP.format(scaled=f"            {CLIP}").replace("scaler.step(opt)", "opt.step()")
    verdict = torch_verdict(Generated(source.replace("            scaler.update()\n", "")))
    assert verdict.word == "wrong" and verdict.choice["clips"] == "loose"


def test_the_engine_is_asked_for_its_definite_faults():
    verdict = engine_verdict(loop(CLIP).source)
    assert verdict.faults == {(10, FaultKind.CLIP_SCALED)} and not verdict.gaps


def test_limits_are_told_in_full():
    assert all(len(name.split()) > 5 for name in LIMITS)


def test_shrinking_keeps_the_disagreement():
    program = loop("print('a line that does nothing')", CLIP)
    found = compare(program)
    assert not found.problem
    blind = Comparison(program, found.torch, engine_verdict(loop().source), "missed")
    # The engine is not blind: no smaller program disagrees in the same way.
    assert shrink(blind, limit=20) == blind
