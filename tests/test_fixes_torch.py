"""
The fixes of every program in fixtures/ that is wrong: what is left of it, and what torch says of the result.

Each program is fixed by itself, with what it uses of its file, safe and unsafe fixes alike. What no fix is offered for
is listed here with the reason: a program that loses its fix, or gains one, fails.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ampclip_lint.fix.apply import fix_all, write
from ampclip_lint.lint.config import Selection, Settings
from ampclip_lint.lint.run import RunResult, lint_paths
from ampclip_lint.testing import Program, ProgramError, judge, judge_overflow, load_module, read_programs
from ampclip_rules import RULES
from test_fixture_programs import FOLDERS
from test_fixture_programs import program as imported

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("*.py"))
PROGRAMS = [
    pytest.param(path, program, id=f"{path.stem}::{program.name}")
    for path in FIXTURES
    for program in read_programs(path.read_text(encoding="utf-8"), path.name)
    if program.name.startswith("bad_")
]
WRONG_FOLDERS = [pytest.param(folder, id=folder.name) for folder in FOLDERS if folder.name.startswith("bad_")]

REWRITE = "it has to be written in another way, which no few edits do"
SEVERAL = "what was meant may be several things"
NAMES = "scaler or optimizer have no name at the place"
OTHER = "the call comes from elsewhere: a hook, a callback, an argument, a method under another name"

#: Fixture, then program, to the reason why no fix is offered. `*`: none for any program of the file.
LEFT: dict[str, dict[str, str]] = {
    "clip_partial_unscale": {
        "bad_the_first_of_the_optional_optimizers": NAMES,
    },
    "backward_without_scale": {
        "bad_penalty_in_helper": NAMES,
        "bad_sum_of_scaled_and_plain": SEVERAL,
        "bad_conditional_receiver": SEVERAL,
    },
    "clip_before_unscale": {
        "bad_methods_under_their_own_names": OTHER,
    },
    "clip_mid_accumulation": {
        "bad_trainer_class": NAMES,
        "bad_in_helper": NAMES,
    },
    "clip_threshold_unit": {
        "bad_norm_taken_while_scaled": SEVERAL,
        "bad_threshold_divided_by_the_scale": SEVERAL,
        "bad_threshold_scaled_under_another_option": SEVERAL,
        "bad_after_division_by_hand": SEVERAL,
        "bad_one_of_two_optimizers": SEVERAL,
        "bad_norm_returned_while_scaled": SEVERAL,
    },
    "closure_with_scaler": {"*": REWRITE},
    "double_step": {
        "bad_step_again_after_update": SEVERAL,
        "bad_one_optimizer_under_two_keys": SEVERAL,
        "bad_tail_flush_after_a_full_window": SEVERAL,
        "bad_optimizer_twice_in_a_list": SEVERAL,
    },
    "edit_while_scaled": {
        "bad_penalty_of_scaled_gradients": REWRITE,
        "bad_penalty_of_outputs_scaled_by_map": REWRITE,
    },
    "nonfinite_norm_raises": {
        "bad_raise_if_the_norm_is_not_finite": REWRITE,
        "bad_raise_if_nan_or_inf": REWRITE,
        "bad_assert_that_the_norm_is_finite": REWRITE,
        "bad_error_if_nonfinite_by_place": REWRITE,
        "bad_raise_in_a_helper": REWRITE,
        "bad_raise_for_each_parameter": REWRITE,
        "bad_raise_before_unscale": REWRITE,
    },
    "overflow_hidden": {
        "bad_bound_carries_the_scale": SEVERAL,
        "bad_parameter_hook": OTHER,
        "bad_post_accumulate_hook": OTHER,
    },
    "per_tensor_clip": {
        "bad_each_named_parameter": REWRITE,
        "bad_each_child": REWRITE,
        "bad_trainer_class": REWRITE,
        "bad_comprehension": REWRITE,
        "bad_parameters_of_groups": REWRITE,
        "bad_in_helper": REWRITE,
    },
    "returned_norm_misread": {"*": REWRITE},
    "scaled_norm_read": {
        "bad_rebound_loss_logged": REWRITE,
        "bad_norm_returned_from_the_step": REWRITE,
        "bad_total_of_scaled_losses": REWRITE,
    },
    "scaler_mismatch": {
        "bad_scaler_renewed_after_backward": SEVERAL,
    },
    "scaler_recreated": {
        "bad_built_for_one_call": REWRITE,
        "bad_built_in_a_helper": REWRITE,
        "bad_attribute_set_in_every_step": REWRITE,
        "bad_factory_called_in_the_loop": REWRITE,
        "bad_context_of_a_step": REWRITE,
    },
    "stale_scale_read": {"*": REWRITE},
    "step_bypasses_scaler": {
        "bad_divided_by_hand": SEVERAL,
        "bad_step_in_helper": NAMES,
        "bad_the_third_pair_is_divided_by_hand": SEVERAL,
    },
    "step_on_scaled_gradients": {
        "bad_step_in_helper": NAMES,
    },
    "step_without_gradients": {
        "bad_step_before_backward": SEVERAL,
        "bad_cleared_by_hand_before_step": SEVERAL,
        "bad_other_model_s_optimizer": SEVERAL,
        "bad_tail_flush_of_nothing": SEVERAL,
        "bad_unscale_before_the_first_scale": SEVERAL,
        "bad_step_before_the_backward_it_clears": SEVERAL,
        "bad_no_backward_in_the_scaled_arm": SEVERAL,
        "bad_backward_only_in_the_other_arm": SEVERAL,
        "bad_unscaled_where_the_other_arm_has_no_backward": SEVERAL,
    },
    "unscale_mid_accumulation": {
        "bad_norm_logged_mid_window": SEVERAL,
    },
    "update_mid_accumulation": {
        "bad_update_of_the_other_optimizer": SEVERAL,
        "bad_restored_between_micro_batches": SEVERAL,
        "bad_critic_updates_while_the_generator_accumulates": SEVERAL,
        "bad_each_optimizer_has_its_own_window": SEVERAL,
        "bad_only_the_first_fold_makes_the_optimizer": SEVERAL,
        "bad_each_group_counts_a_window_of_its_own": SEVERAL,
        "bad_groups_object_with_a_window_for_each": SEVERAL,
    },
    "update_without_check": {
        "bad_update_where_nothing_was_scaled": SEVERAL,
        "bad_scaled_loss_is_dropped": SEVERAL,
        "bad_update_behind_the_loop_without_any_step": SEVERAL,
        "bad_update_where_settings_leave_out_both_steps": SEVERAL,
    },
}

#: Folders in fixtures/programs without a fix, with the reason.
LEFT_FOLDERS: dict[str, str] = {
    "bad_callback_list": OTHER,
    "bad_engine_backward": NAMES,
    "bad_gradient_penalty": REWRITE,
    "bad_loss_scaler_wrapper": SEVERAL,
    "bad_steps_by_name": SEVERAL,
}

#: Every step of these is skipped on the judge's data, so that there is none to look at.
WITHOUT_STEPS = frozenset(
    {
        "bad_continue_on_a_large_norm",
        "bad_early_return",
        "bad_gradients_dropped_unchecked",
        "bad_methods_of_a_wrapper",
        "bad_nan_guard_returns",
    }
)
#: What these rules flag fares differently from a right program once a gradient overflows.
OVERFLOW_RULES = frozenset(
    {"step_bypasses_scaler", "nonfinite_norm_raises", "overflow_hidden", "step_on_scaled_gradients"}
)


def alone(text: str, program: Program) -> str:
    """A file of programs with one of them, and what that one uses, line for line; others are left empty."""
    tree = ast.parse(text)
    definitions = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    wanted = [program.name]
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            wanted += [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    used: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in definitions and name not in used:
            used.add(name)
            wanted += [inner.id for inner in ast.walk(definitions[name]) if isinstance(inner, ast.Name)]
    lines = text.split("\n")
    for name, node in definitions.items():
        if name not in used:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines[first - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - first + 1)
    return "\n".join(lines)


def fixed(path: Path, *extra: str, unsafe: bool = True) -> tuple[RunResult, RunResult]:
    """What is found before and after the fixes are written."""
    settings = Settings(selection=Selection(extend_select=extra), isolated=True)
    before = lint_paths([path], settings)
    made = fix_all(before, unsafe=unsafe)
    assert write(made, before.sources_of_all) == []
    after = lint_paths([path], settings)
    assert len(before.diagnostics) - len(after.diagnostics) == made.count
    return before, after


def judged(run: Callable[..., object], name: str, *, overflow: bool) -> None:
    verdict = judge(run)
    assert verdict.error is None
    assert verdict.invariant, verdict.rows
    assert bool(verdict.steps) == (name not in WITHOUT_STEPS)
    if overflow:
        after = judge_overflow(run)
        assert not (after.applied or after.hidden or after.error)


def flags(run: Callable[..., object]) -> Iterator[Callable[..., object]]:
    """The program with each of its flags the other way round."""
    for name, parameter in inspect.signature(run).parameters.items():
        if isinstance(parameter.default, bool):
            yield functools.wraps(run)(functools.partial(run, **{name: not parameter.default}))


def works(run: Callable[..., object]) -> bool:
    try:
        verdict = judge(run)
    except ProgramError:  # it does not run without a scaler either
        return False
    return verdict.error is None and verdict.invariant


@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_a_fixed_program_is_clean_and_scale_invariant(path: Path, program: Program, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    target = tmp_path / f"{program.name}.py"
    target.write_text(alone(path.read_text(encoding="utf-8"), program), encoding="utf-8")
    own = [rule.code for rule in RULES if rule.name.replace("-", "_") == path.stem]
    before, after = fixed(target, *own)
    assert before.diagnostics
    reasons = LEFT.get(path.stem, {})
    expected = reasons.get(program.name, reasons.get("*"))
    if expected is None:
        assert [(found.code, found.span.start.row, found.message) for found in after.diagnostics] == []
        run = getattr(load_module(target), program.name)
        judged(run, program.name, overflow=path.stem in OVERFLOW_RULES)
        for old, new in zip(flags(getattr(load_module(path), program.name)), flags(run)):
            assert works(new) or not works(old), "what was right with another flag is not any more"
    else:
        assert after.diagnostics, "it has a fix: take it from the list"


@pytest.mark.parametrize("folder", WRONG_FOLDERS)
def test_a_fixed_program_of_several_files(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    target = tmp_path / folder.name
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__"))
    before, after = fixed(target)
    assert before.diagnostics
    if folder.name in LEFT_FOLDERS:
        assert after.diagnostics, "it has a fix: take it from the list"
    else:
        assert [(found.code, found.span.filename, found.message) for found in after.diagnostics] == []
        judged(imported(target), folder.name, overflow=False)


def test_the_lists_name_what_there_is() -> None:
    programs = {(path.stem, program.name) for path, program in (parameter.values for parameter in PROGRAMS)}
    for stem, reasons in LEFT.items():
        for name in reasons:
            assert name == "*" or (stem, name) in programs
    assert LEFT_FOLDERS.keys() <= {folder.name for folder in FOLDERS}
    assert {name for _, name in programs} >= WITHOUT_STEPS


@pytest.mark.parametrize("stem", ["clip_partial_unscale", "unscale_mid_accumulation", "update_between_steps"])
def test_safe_fixes_of_a_whole_file_bring_nothing_new(stem: str, tmp_path: Path) -> None:
    path = FIXTURES[0].with_name(f"{stem}.py")
    target = tmp_path / path.name
    shutil.copy(path, target)
    before, after = fixed(target, unsafe=False)
    known = {(found.code, found.span.function, found.message) for found in before.diagnostics}
    assert {(found.code, found.span.function, found.message) for found in after.diagnostics} <= known
    assert os.listdir(tmp_path) == [path.name]


def test_neighbours_with_the_same_method_names_are_in_nobodys_way(tmp_path: Path) -> None:
    target = tmp_path / "update_between_steps.py"
    shutil.copy(FIXTURES[0].with_name(target.name), target)
    before, after = fixed(target)
    assert len(before.diagnostics) > 5
    assert after.diagnostics == ()
