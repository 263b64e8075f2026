"""Facts about guards: what a path has learnt from its tests, and what follows from it. Knows nothing about gradients.

A *subject* is an immutable expression over symbols, for instance the variable ``use_amp`` or the counter ``i``. A
*predicate* is a question about it with a yes or no answer. `Facts` is a conjunction of answers. An atom pairs a
subject with a predicate, and `Facts.assume` answers it, refuses a contradiction, or learns it.

Residues model loop counters: ``(i + 1) % n == 0`` is the predicate "i is -1 modulo n". When the counter advances, its
facts are shifted, so the first, a middle and the last iteration of a window stay apart, as do windows of one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache, reduce
from operator import xor
from typing import Any, Union

from ampclip_lint.records import dataclass


@dataclass(frozen=True)
class Truthy:
    """``bool(x)``."""


@dataclass(frozen=True)
class IsNone:
    """``x is None``."""


@dataclass(frozen=True)
class Equals:
    """``x == value`` for a constant."""

    value: Hashable

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are different constants here: a flag is not a count.
        return isinstance(other, Equals) and type(self.value) is type(other.value) and self.value == other.value


@dataclass(frozen=True)
class Above:
    """``x > bound``."""

    bound: float


@dataclass(frozen=True)
class Below:
    """``x < bound``."""

    bound: float


@dataclass(frozen=True)
class Residue:
    """x is congruent to `value` modulo `modulus`, an integer of at least 2 or the key of an unknown one."""

    modulus: Hashable
    value: int


#: The largest constant modulus whose phases are all told apart.
MAX_PHASES = 12

Predicate = Union[Truthy, IsNone, Equals, Above, Below, Residue]
Symbol = Hashable


@dataclass(frozen=True)
class Subject:
    """What a fact speaks of: a key, and the symbols whose redefinition makes the fact void.

    As a number it rises with the symbol `with_`, and falls as the symbol `against` rises.
    """

    key: Hashable
    mentions: frozenset[Symbol]
    text: str = ""
    with_: Symbol = None
    against: Symbol = None
    _hash: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.key))  # Keys are deep, and are looked up all the time.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subject) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Atom:
    """A question that a guard asks."""

    subject: Subject
    predicate: Predicate

    def __str__(self) -> str:
        name = self.subject.text or str(self.subject.key)
        match self.predicate:
            case Truthy():
                return name
            case IsNone():
                return f"{name} is None"
            case Equals(value):
                return f"{name} == {value!r}"
            case Above(bound):
                return f"{name} > {bound:g}"
            case Below(bound):
                return f"{name} < {bound:g}"
            case Residue(modulus, value):
                return f"{name} % {_modulus_text(modulus)} == {value}"


def _modulus_text(modulus: Hashable) -> str:
    return str(modulus.text if isinstance(modulus, Subject) else modulus)


def symbol_subject(symbol: Symbol, text: str = "") -> Subject:
    """The subject that is a bare symbol."""
    return Subject(("symbol", symbol), frozenset((symbol,)), text, symbol)


@dataclass(frozen=True)
class Window:
    """The residues and constants worth keeping: those that some test asks for, and one more each side."""

    low: int = 0
    high: int = 0
    moduli: tuple[int, ...] = ()

    @staticmethod
    def of(atoms: Iterable[Atom]) -> Window:
        values: list[int] = [0]
        moduli: set[int] = set()
        for atom in atoms:
            match atom.predicate:
                case Residue(int() as modulus, _):
                    # Phases of a known, small modulus are told apart for ever, not only near the start.
                    if modulus <= MAX_PHASES:
                        moduli.add(modulus)
                case Residue(_, value):
                    values.append(value)
                case Equals(bool()):
                    pass
                case Equals(int() as value) if abs(value) <= 16:
                    values.append(value)
                case Above(bound) | Below(bound) if abs(bound) <= 16:
                    values.append(int(bound))
        return Window(max(min(values) - 1, -17), min(max(values) + 1, 17), tuple(sorted(moduli)))


Answers = frozenset[tuple[Predicate, bool]]
NOTHING: Answers = frozenset()


class Facts(Mapping[Subject, Answers]):
    """An immutable conjunction of answered predicates, grouped by subject."""

    __slots__ = ("_answers", "_hash", "_parts")

    def __init__(self, answers: Mapping[Subject, Answers] | None = None) -> None:
        self._answers: dict[Subject, Answers] = dict(answers) if answers else {}
        self._hash: int | None = None
        self._parts: dict[Subject, int] | None = None

    def __getitem__(self, subject: Subject) -> Answers:
        return self._answers[subject]

    def __iter__(self) -> Iterator[Subject]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = reduce(xor, self._hashes().values(), 0)
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and hash(self) == hash(other) and self._answers == other._answers

    def signature(self, without: Subject) -> int:
        """A hash of what is known of all subjects but one; equal facts have equal signatures."""
        return hash(self) ^ self._hashes().get(without, 0)

    def _hashes(self) -> dict[Subject, int]:
        if self._parts is None:
            self._parts = {subject: hash((subject, answers)) for subject, answers in self._answers.items()}
        return self._parts

    def value(self, atom: Atom) -> bool | None:
        """What the facts say of an atom: true, false, or ``None`` where they leave it open."""
        known = self._answers.get(atom.subject, NOTHING)
        answer = decide(known, atom.predicate)
        if answer is None and isinstance(atom.predicate, Residue):
            return self._residue(known, atom.predicate)
        return answer

    def assume(self, atom: Atom, holds: bool) -> Facts | None:
        """These facts and one more; ``None`` where it contradicts them."""
        known = self.value(atom)
        if known is not None:
            return self if known == holds else None
        fresh = dict(self._answers)
        fresh[atom.subject] = tidy(fresh.get(atom.subject, NOTHING) | {(atom.predicate, holds)})
        facts = Facts(fresh)
        if isinstance(atom.predicate, Residue):
            return facts._learn_modulus(atom.subject, atom.predicate, holds)
        return facts

    def forget(self, symbol: Symbol, rises: bool = False) -> Facts:
        """Without every fact that mentions a symbol; with `rises`, what it has passed it has passed for good."""
        fresh: dict[Subject, Answers] = {}
        for subject, answers in self._answers.items():
            if symbol not in subject.mentions:
                kept = frozenset(answer for answer in answers if not _measured_by(answer[0], symbol))
            elif rises and symbol in (subject.with_, subject.against):
                kept = frozenset(answer for answer in answers if _outlasts(answer, symbol == subject.with_))
            else:
                continue
            if kept:
                fresh[subject] = kept
        return self if fresh == self._answers else Facts(fresh)

    def keep(self, wanted: Callable[[Subject], bool]) -> Facts:
        """Only the facts about the subjects that `wanted` accepts."""
        if all(wanted(subject) for subject in self._answers):
            return self
        return Facts({s: a for s, a in self._answers.items() if wanted(s)})

    def with_answers(self, subject: Subject, answers: Answers) -> Facts:
        """These facts with what is known of one subject replaced."""
        fresh = {s: known for s, known in self._answers.items() if s != subject}
        return Facts({**fresh, subject: answers} if answers else fresh)

    def shift(self, target: Subject, source: Subject, offset: int, window: Window) -> Facts:
        """After ``target = source + offset``: what was known of `source` now holds, shifted, of `target`."""
        moved: set[tuple[Predicate, bool]] = set()
        for predicate, holds in self._answers.get(source, NOTHING):
            number = predicate.value if isinstance(predicate, Equals) and holds else None
            if isinstance(number, int) and not isinstance(number, bool):
                moved |= {(Residue(m, (number + offset) % m), True) for m in window.moduli}
            shifted = _shift(predicate, holds, offset, window)
            if shifted is not None:
                moved.add(shifted)
        facts = self
        for symbol in target.mentions:
            facts = facts.forget(symbol)
        if not moved:
            return facts
        fresh = dict(facts._answers)
        fresh[target] = tidy(frozenset(moved))
        return Facts(fresh)

    def set_constant(self, target: Subject, value: Hashable) -> Facts:
        """After ``target = value``."""
        facts = self
        for symbol in target.mentions:
            facts = facts.forget(symbol)
        fresh = dict(facts._answers)
        fresh[target] = frozenset({(IsNone() if value is None else Equals(value), True)})
        return Facts(fresh)

    def _residue(self, known: Answers, predicate: Residue) -> bool | None:
        """A residue from other residues: windows of one know all of them; else neighbours exclude each other."""
        one = self._window_of_one(predicate.modulus)
        if one:
            return True
        if isinstance(predicate.modulus, int):
            excluded = {
                other.value % predicate.modulus
                for other, holds in known
                if isinstance(other, Residue) and other.modulus == predicate.modulus and not holds
            }
            if len(excluded) == predicate.modulus - 1 and predicate.value % predicate.modulus not in excluded:
                return True
        for other, holds in known:
            if isinstance(other, Equals):
                if not holds or not isinstance(other.value, int) or isinstance(other.value, bool):
                    continue
                distance = abs(other.value - predicate.value)
            elif isinstance(other, Residue) and other.modulus == predicate.modulus:
                distance = abs(other.value - predicate.value)
            else:
                continue
            if isinstance(predicate.modulus, int):
                if distance % predicate.modulus == 0:
                    return holds
                if holds:
                    return False
            elif distance == 0:
                return holds
            elif distance == 1 and holds and one is False:
                return False
        return None

    def _window_of_one(self, modulus: Hashable) -> bool | None:
        if isinstance(modulus, int):
            return modulus == 1
        assert isinstance(modulus, Subject)
        return decide(self._answers.get(modulus, NOTHING), Equals(1))

    def _learn_modulus(self, subject: Subject, predicate: Residue, holds: bool) -> Facts | None:
        """Two neighbouring residues at once mean a window of one; one without the other rules it out."""
        modulus = predicate.modulus
        if not isinstance(modulus, Subject):
            return self
        facts: Facts | None = self
        for other, other_holds in self._answers.get(subject, NOTHING):
            if isinstance(other, Equals):
                if not other_holds or not isinstance(other.value, int) or isinstance(other.value, bool):
                    continue
                distance = abs(other.value - predicate.value)
            elif isinstance(other, Residue) and other.modulus == modulus:
                distance = abs(other.value - predicate.value)
            else:
                continue
            if facts is not None and distance and holds != other_holds:
                # The one that holds and the one that does not can't be the same residue: n is not 1.
                facts = facts.assume(Atom(modulus, Equals(1)), False)
            elif facts is not None and distance == 1 and holds and other_holds:
                facts = facts.assume(Atom(modulus, Equals(1)), True)
        return facts


def _outlasts(answer: tuple[Predicate, bool], rises: bool) -> bool:
    """Whether an answer still holds of a subject that has risen, or else fallen."""
    predicate, holds = answer
    return (isinstance(predicate, Above) and holds is rises) or (isinstance(predicate, Below) and holds is not rises)


def _measured_by(predicate: Predicate, symbol: Symbol) -> bool:
    modulus = predicate.modulus if isinstance(predicate, Residue) else None
    return isinstance(modulus, Subject) and symbol in modulus.mentions


def _shift(predicate: Predicate, holds: bool, offset: int, window: Window) -> tuple[Predicate, bool] | None:
    if offset == 0:
        return predicate, holds
    match predicate:
        case Residue(modulus, value):
            value += offset
            if isinstance(modulus, int):
                return Residue(modulus, value % modulus), holds
            return (Residue(modulus, value), holds) if window.low <= value <= window.high else None
        case Equals(bool()):
            return None
        case Equals(int() as number):
            if window.low <= number + offset <= window.high:
                return Equals(number + offset), holds
            if not holds:
                return None
            return (Above(window.high), True) if number + offset > window.high else (Below(window.low), True)
        case Above(bound):
            if holds and offset > 0:
                return Above(min(bound + offset, window.high)), True
            return (Above(bound + offset), holds) if window.low <= bound + offset <= window.high else None
        case Below(bound):
            if holds and offset < 0:
                return Below(max(bound + offset, window.low)), True
            return (Below(bound + offset), holds) if window.low <= bound + offset <= window.high else None
    return None


@lru_cache(maxsize=65536)
def decide(known: Answers, question: Predicate) -> bool | None:
    """Whether answers about one subject settle a further question about it; ``None`` where they do not."""
    if (question, True) in known:
        return True
    if (question, False) in known:
        return False
    for predicate, holds in known:
        if holds and isinstance(predicate, (Equals, IsNone)):
            value = predicate.value if isinstance(predicate, Equals) else None
            return ask_constant(value, question)
    low, high = _bounds(known)
    truth = next((holds for predicate, holds in known if isinstance(predicate, Truthy)), None)
    not_none = (IsNone(), False) in known
    match question:
        case IsNone():
            # Comparing with a number, or being true, shows that it is an object.
            if truth or low is not None or high is not None:
                return False
        case Truthy():
            if (low is not None and low > (0, False)) or (high is not None and (high[0] < 0 or high == (0, True))):
                return True
            if (Equals(True), False) in known and (Equals(False), False) in known and not_none:
                return None
        case Equals(value):
            if truth is not None and bool(value) != truth:
                return False
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                if low is not None and (value < low[0] or (value == low[0] and low[1])):
                    return False
                if high is not None and (value > high[0] or (value == high[0] and high[1])):
                    return False
        case Above(bound):
            if low is not None and (low[0] > bound or (low[0] == bound and low[1])):
                return True
            if (high is not None and high[0] <= bound) or (truth is False and bound >= 0):
                return False
        case Below(bound):
            if high is not None and (high[0] < bound or (high[0] == bound and high[1])):
                return True
            if (low is not None and low[0] >= bound) or (truth is False and bound <= 0):
                return False
    return None


@lru_cache(maxsize=65536)
def tidy(known: Answers) -> Answers:
    """Without the answers that follow from the others, so that worlds that know the same are equal."""
    if len(known) < 2:
        return known
    kept = known
    for answer in sorted(known, key=repr):
        rest = kept - {answer}
        if decide(rest, answer[0]) == answer[1]:
            kept = rest
    return kept


def _bounds(known: Answers) -> tuple[tuple[float, bool] | None, tuple[float, bool] | None]:
    """The tightest (bound, strict) from below and from above."""
    low: tuple[float, bool] | None = None
    high: tuple[float, bool] | None = None
    for predicate, holds in known:
        match predicate:
            case Above(bound):
                if holds and (low is None or (bound, True) > low):
                    low = (bound, True)
                if not holds and (high is None or bound < high[0]):
                    high = (bound, False)
            case Below(bound):
                if holds and (high is None or bound < high[0] or bound == high[0]):
                    high = (bound, True)
                if not holds and (low is None or bound > low[0]):
                    low = (bound, False)
    return low, high


def ask_constant(value: Any, question: Predicate) -> bool | None:
    """A question about a known constant."""
    match question:
        case Truthy():
            return bool(value)
        case IsNone():
            return value is None
        case Equals(other):
            return bool(value == other)
        case Above(bound):
            return value > bound if isinstance(value, (int, float)) else None
        case Below(bound):
            return value < bound if isinstance(value, (int, float)) else None
        case Residue(modulus, residue):
            if isinstance(modulus, int) and isinstance(value, int):
                return (value - residue) % modulus == 0
            return True if value == residue else None
    return None


# -- Instructions on facts that a graph carries beside the client's operations. ---------------------------------------


@dataclass(frozen=True)
class Forget:
    """The symbol gets a new, unknown value here; with `rises`, not a lower one."""

    symbol: Symbol
    rises: bool = False


@dataclass(frozen=True)
class SetConstant:
    """The subject, a bare symbol, gets a constant."""

    target: Subject
    value: Hashable


@dataclass(frozen=True)
class Shift:
    """``target = source + offset``, both bare symbols."""

    target: Subject
    source: Subject
    offset: int = 0


@dataclass(frozen=True)
class Learn:
    """The atom has this value from here on, whatever was known of it."""

    atom: Atom
    holds: bool


FactOp = Union[Forget, SetConstant, Shift, Learn]


def apply_fact_op(op: FactOp, facts: Facts, window: Window) -> Facts:
    """The facts after an instruction on them."""
    match op:
        case Forget(symbol, rises):
            return facts.forget(symbol, rises)
        case SetConstant(target, value):
            return facts.set_constant(target, value)
        case Shift(target, source, offset):
            return facts.shift(target, source, offset, window)
        case Learn(atom, holds):
            known = {s: a for s, a in facts.items() if s != atom.subject}
            known[atom.subject] = frozenset({(atom.predicate, holds)})
            return Facts(known)
