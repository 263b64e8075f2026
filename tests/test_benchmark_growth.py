"""The families of growing programs, and what is told of them. Nothing is timed here: what counts is worlds."""

from __future__ import annotations

import ast
import math
from itertools import pairwise
from pathlib import Path

import pytest

from ampclip_lint.flow.solver import WORLDS_IN_ALL
from benchmarks import growth
from benchmarks.growth import FAMILIES, Family, Growth, Point


@pytest.mark.parametrize("name", FAMILIES)
def test_worlds_grow_in_proportion_or_are_bounded(name: str) -> None:
    """... and the programs are right: `measure` refuses any with a finding."""
    _, made, _ = FAMILIES[name]
    if name == "open-flags":
        many = growth.measure(made(32), 32, 1)
        assert many.incomplete
        assert many.worlds <= WORLDS_IN_ALL
        return
    small, large = (growth.measure(made(size), size, 1) for size in (8, 16))
    assert not large.incomplete
    assert large.worlds < 2.1 * small.worlds


def test_sixty_flags_in_two_thousand_lines_stay_within_the_budget() -> None:
    _, made, sizes = FAMILIES["flags"]
    (text,) = made(sizes[-1]).values()
    tests = [node.test for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If)]
    assert len({ast.unparse(test) for test in tests}) == 60
    assert len(tests) == 6 * 60
    point = growth.measure(made(sizes[-1]), sizes[-1], 1)
    assert (point.size, point.incomplete) == (60, False)
    assert 1_900 <= point.lines <= 2_000


@pytest.mark.parametrize("name", FAMILIES)
def test_each_program_is_about_twice_as_large_as_the_one_before(name: str) -> None:
    _, _, sizes = FAMILIES[name]
    assert len(sizes) == 6
    assert all(1.8 <= larger / smaller <= 2.1 for smaller, larger in pairwise(sizes))


def family(*seconds: float, incomplete: bool = False) -> Family:
    points = (Point(2**index, 10, value, 5, incomplete) for index, value in enumerate(seconds))
    return Family("some", "things", tuple(points))


def test_the_exponent_is_that_of_the_last_programs() -> None:
    exponent = family(9, 9, 1, 2, 4, 8).exponent
    assert exponent is not None
    assert math.isclose(exponent, 1)
    exponent = family(9, 9, 1, 4, 16, 64).exponent
    assert exponent is not None
    assert math.isclose(exponent, 2)
    assert family(1, 2, 3, 4, incomplete=True).exponent is None


def test_the_store_is_written_as_it_is_read(tmp_path: Path) -> None:
    measured = Growth("2 processors", (family(1, 2, 4, 8),))
    path = tmp_path / "growth.json"
    path.write_text(growth.dump(measured))
    assert growth.load(path) == measured
    assert growth.dump(growth.load(growth.STORE)) == growth.STORE.read_text(encoding="utf-8")
    assert [kept.name for kept in growth.load(growth.STORE).families] == list(FAMILIES)
