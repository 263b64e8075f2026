"""Records, beside those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest

from ampclip_lint import records

KINDS: list[dict[str, bool]] = [{}, {"eq": False}, {"frozen": True}, {"frozen": True, "order": True}]


def made(decorator: Any, **options: bool) -> Any:
    @decorator(**options)
    class Place:
        row: int
        text: str = "a"
        notes: list[int] = field(default_factory=list, compare=False)
        seen: int = field(init=False, repr=False, default=0)

    return Place


class Counted:
    made = 0

    def __post_init__(self) -> None:
        type(self).made += 1


def outcome(of: Any) -> Any:
    """What something gives, or which error it raises."""
    try:
        return of()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_record_does_what_a_dataclass_does(options: dict[str, bool]) -> None:
    answers = []
    for decorator in (records.dataclass, dataclasses.dataclass):
        one = made(decorator, **options)
        a, b, c = one(1), one(row=1, notes=[7]), one(2, "b")
        questions = [
            lambda one=one: one(),
            lambda one=one: one(1, "a", [], 0),
            lambda a=a: repr(a),
            lambda a=a, b=b: a == b,
            lambda a=a, c=c: a == c,
            lambda a=a: a == (1, "a"),
            lambda a=a, b=b: hash(a) == hash(b),
            lambda a=a, c=c: (a < c, a <= c, a > c, a >= c),
            lambda a=a: a < 1,
            lambda a=a: a.notes,
            lambda a=a: dataclasses.astuple(dataclasses.replace(a, row=5)),
            lambda a=a: setattr(a, "row", 3),
            lambda a=a: a.row,
            lambda c=c: delattr(c, "row"),
            lambda a=a: copy.deepcopy(a) == a,
            lambda one=one: (one.__doc__ or "")[:0],
            lambda one=one: one.__match_args__,
            lambda one=one: hash(one(1)) == hash((1, "a")),
        ]
        answers.append([outcome(question) for question in questions])
    assert answers[0] == answers[1]


def test_methods_of_its_own_stay() -> None:
    @records.dataclass(frozen=True)
    class Odd:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd) and other.value % 2 == self.value % 2

        def __hash__(self) -> int:
            return self.value % 2

        def __repr__(self) -> str:
            return "odd"

    assert Odd(1) == Odd(3) != Odd(2)
    assert (len({Odd(1), Odd(3)}), repr(Odd(1))) == (1, "odd")


def test_with_an_eq_of_its_own_it_is_hashed_by_its_fields_all_the_same() -> None:
    @records.dataclass(frozen=True)
    class Same:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Same)

    assert Same(1) == Same(2)
    assert hash(Same(1)) == hash((1,))


def test_a_class_that_extends_one() -> None:
    @records.dataclass
    class Base:
        value: int

    class More(Base):
        def __init__(self) -> None:
            super().__init__(3)

    assert More().value == 3
    assert More() == More() != Base(3)


def test_post_init_is_called() -> None:
    @records.dataclass(frozen=True)
    class Told(Counted):
        value: int

    Told(1)
    assert Told.made == 1


@records.dataclass(frozen=True)
class Pickled:
    value: int


@records.dataclass(frozen=True)
class NeverMade:
    value: int


def test_what_was_never_made_here_compares_all_the_same() -> None:
    """As where another process sends one: unpickling calls no `__init__`."""
    assert pickle.loads(pickle.dumps(Pickled(1))) == Pickled(1)
    one, other = (object.__new__(NeverMade) for _ in range(2))
    for record in (one, other):
        record.__dict__["value"] = 1
    assert hash(one) == hash(other)
    assert one == other


def test_a_missing_argument_is_told_of_as_ever() -> None:
    with pytest.raises(TypeError, match=r"Place.__init__\(\) missing 1 required positional argument: 'row'"):
        made(records.dataclass)()
