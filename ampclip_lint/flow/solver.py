"""Fixpoint over worlds: each node gets the set of states in which a path may reach it. Knows nothing about gradients.

A *world* is a conjunction of facts about guards together with a client's state (property simulation, trace
partitioning): states with different facts are kept apart, so that a test repeated later takes the same arm. The client
says what an operation does to its state; edges assume guards. Facts that no later test can ask for are dropped, and
worlds in one state that together leave a fact open go on as one, which loses nothing. Every world remembers the worlds
that it came from: the witness path of a finding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from ampclip_lint.flow.facts import (
    NOTHING,
    Answers,
    Atom,
    Facts,
    Forget,
    Learn,
    Residue,
    SetConstant,
    Shift,
    Subject,
    Window,
    apply_fact_op,
    decide,
)
from ampclip_lint.flow.graph import Edge, Graph, Guard, Node
from ampclip_lint.records import dataclass

S = TypeVar("S", bound=Hashable)

#: Worlds at one node before their facts are given up, and before the whole exploration stops.
WORLDS_PER_NODE = 160
WORLDS_IN_ALL = 30_000
#: Worlds that are explored without giving up any fact, before it is done again with the limits above.
WORLDS_APART = 70_000
#: So many worlds of a node are explored before nodes behind it, inside a loop, have their turn too.
WORLDS_A_TURN = 16


class Domain(Protocol[S]):
    """What a client tells the solver about its state."""

    def transfer(self, node: Node, state: S, facts: Facts) -> Iterable[tuple[S, tuple[tuple[Atom, bool], ...]]]:
        """States after the node's operation, each with what it proves about atoms; none where the path ends."""
        ...

    def key(self, state: S) -> Hashable:
        """What makes two states the same (a client may carry more, for instance where something happened)."""
        ...


@dataclass(frozen=True)
class World(Generic[S]):
    """Facts about guards and a client's state; `doubt` says why it is no definite witness ("" where it is)."""

    facts: Facts
    state: S
    doubt: str = ""


@dataclass
class Visit(Generic[S]):
    """A world at a node, with the visit and the edge that first led to it.

    `members` are the worlds that it stands for together, where it is the sum of some that differ in one fact.
    """

    node: int
    world: World[S]
    parent: Visit[S] | None
    edge: Edge | None = None
    members: tuple[Visit[S], ...] = ()

    def path(self) -> list[Visit[S]]:
        """From the entry to here: one way that a single run can take."""
        steps: list[Visit[S]] = []
        guards: list[Guard] = []
        visit: Visit[S] | None = self
        while visit is not None:
            member = visit._member(guards)
            steps.append(member if steps else visit)
            guards += member.edge.guards if member.edge is not None else ()
            visit = member.parent
        steps.reverse()
        return steps

    def _member(self, later: Sequence[Guard]) -> Visit[S]:
        """The one of the worlds that can go on as the path does, over edges with these guards, the nearest last."""
        visit = self
        while visit.members:
            known = visit.world.facts
            told = {s for m in visit.members for s, answers in m.world.facts.items() if known.get(s) != answers}
            asked = next((guard for guard in reversed(later) if guard.atom.subject in told), None)
            fitting = visit.members
            if asked is not None:
                fitting = tuple(m for m in fitting if m.world.facts.assume(asked.atom, asked.holds) is not None)
            visit = fitting[0] if fitting else visit.members[0]
        return visit


@dataclass
class Exploration(Generic[S]):
    """All visits by node; `exhausted` where the budget ended the search, `joined` nodes where worlds lost facts."""

    graph: Graph
    visits: dict[int, list[Visit[S]]] = field(default_factory=dict)
    exhausted: bool = False
    joined: set[int] = field(default_factory=set)

    @property
    def worlds(self) -> int:
        """How many worlds were told apart."""
        return sum(map(len, self.visits.values()))

    def at(self, node: int) -> list[Visit[S]]:
        return self.visits.get(node, [])


def solve(
    graph: Graph,
    entry: Iterable[S],
    domain: Domain[S],
    *,
    worlds_per_node: int = WORLDS_PER_NODE,
    worlds_in_all: int = WORLDS_IN_ALL,
    facts: Facts | None = None,
) -> Exploration[S]:
    """Run the domain over the graph until nothing new is reached, or the budget is used up."""
    search = _Search(graph, domain, worlds_per_node, worlds_in_all)
    for state in entry:
        search.reach(0, World(facts or Facts(), state), None, None)
    search.run()
    return search.result


@dataclass
class _Seen:
    """What the explored worlds of a node with one state know, and whether they are doubtful."""

    facts: set[tuple[Facts, bool]] = field(default_factory=set)
    masks: list[tuple[int, int, bool]] = field(default_factory=list)


class _Search(Generic[S]):
    """
    The work list: nodes in the order of the graph, so that the worlds of all arms of a branch are there when the node
    behind it is explored, and those that differ in nothing that matters can go on as one.

    Definite worlds come first: the witness that a finding shows is then a definite one whenever there is one.
    """

    def __init__(self, graph: Graph, domain: Domain[S], worlds_per_node: int, worlds_in_all: int) -> None:
        self.graph = graph
        self.domain = domain
        self.worlds_per_node = worlds_per_node
        self.worlds_in_all = worlds_in_all
        self.window = Window.of(graph.atoms())
        self.live = live_subjects(graph)
        self.rank = {index: rank for rank, index in enumerate(graph.reachable())}
        #: Subjects that operations ask for: a world without such a fact is not the sum of those with it.
        self.told = frozenset(s for node in graph.nodes for s in getattr(node.op, "asks", None) or ())
        self.domains = _constant_domains(graph, self.live[0])
        self.result: Exploration[S] = Exploration(graph)
        self.explored: dict[int, dict[Hashable, _Seen]] = {}
        #: Worlds that know the same share one object, so that what follows from it is worked out once.
        self.shared: dict[Facts, Facts] = {}
        self.kept: dict[tuple[int, Facts], Facts] = {}
        self.behind: dict[tuple[int, int, Facts], Facts | None] = {}
        self.masks: dict[Facts, tuple[int, int]] = {}
        self.bits: dict[tuple[Subject, tuple[Any, bool]], int] = {}
        self.waiting: dict[tuple[bool, int], list[Visit[S]]] = {}
        self.queue: list[tuple[bool, int, int, int]] = []
        self.total = 0

    def reach(self, node: int, world: World[S], parent: Visit[S] | None, edge: Edge | None) -> None:
        """Note a world at a node, to be explored in its turn."""
        visit = Visit(node, World(self._kept(node, world.facts), world.state, world.doubt), parent, edge)
        place = (bool(world.doubt), node)
        if place not in self.waiting:
            self.waiting[place] = []
            turn = len(self.result.at(node)) // WORLDS_A_TURN
            heappush(self.queue, (place[0], turn, self.rank[node], node))
        self.waiting[place].append(visit)

    def run(self) -> None:
        while self.queue and not self.result.exhausted:
            doubtful, _, _, node = heappop(self.queue)
            for visit in self._merged(self.waiting.pop((doubtful, node))):
                fresh = self._admit(visit)
                if self.result.exhausted:
                    return
                if fresh is not None:
                    self._explore(fresh)

    def _explore(self, visit: Visit[S]) -> None:
        for after in _after(self.graph.nodes[visit.node], visit.world, self.domain, self.window):
            for number, edge in enumerate(self.graph.edges[visit.node]):
                assumed = self._behind(visit.node, number, edge, after.facts)
                if assumed is not None:
                    self.reach(edge.target, World(assumed, after.state, after.doubt or edge.doubt), visit, edge)

    def _kept(self, node: int, facts: Facts) -> Facts:
        """The facts that matter from a node on."""
        found = self.kept.get((node, facts))
        if found is None:
            wanted = self.live[node]
            found = facts.keep(lambda subject: subject in wanted)
            found = self.kept[node, facts] = self.shared.setdefault(found, found)
        return found

    def _behind(self, node: int, number: int, edge: Edge, facts: Facts) -> Facts | None:
        """The facts on an edge out of a node; None where they forbid it."""
        if not edge.guards:
            return facts
        key = (node, number, facts)
        if key not in self.behind:
            assumed: Facts | None = facts
            for guard in edge.guards:
                assumed = assumed.assume(guard.atom, guard.holds) if assumed is not None else None
            self.behind[key] = assumed
        return self.behind[key]

    def _admit(self, visit: Visit[S]) -> Visit[S] | None:
        """The visit as it is explored; None where one that was explored before says as much."""
        node, world = visit.node, visit.world
        if len(self.result.at(node)) >= self.worlds_per_node:
            self.result.joined.add(node)
            world = World(Facts(), world.state, world.doubt or "joined")
            visit = Visit(node, world, visit.parent, visit.edge, visit.members)
        alike = self.explored.setdefault(node, {}).setdefault(self.domain.key(world.state), _Seen())
        if self._is_covered(world, alike):
            return None
        if self.total >= self.worlds_in_all:
            self.result.exhausted = True
            return None
        self.total += 1
        alike.facts.add((world.facts, bool(world.doubt)))
        alike.masks.append((*self._mask(world.facts), bool(world.doubt)))
        self.result.visits.setdefault(node, []).append(visit)
        return visit

    def _is_covered(self, world: World[S], alike: _Seen) -> bool:
        """Whether every run that a world allows is one that an explored world with its state allows."""
        doubtful = bool(world.doubt)
        if (world.facts, False) in alike.facts or (doubtful and (world.facts, True) in alike.facts):
            return True
        special, told = self._mask(world.facts)
        return any(
            not (general & ~special) and asked == told and (doubtful or not doubt)
            for general, asked, doubt in alike.masks
        )

    def _mask(self, facts: Facts) -> tuple[int, int]:
        """The answers of some facts as bits, and those of them that operations ask for."""
        found = self.masks.get(facts)
        if found is None:
            every = asked = 0
            for subject, answers in facts.items():
                for answer in answers:
                    bit = 1 << self.bits.setdefault((subject, answer), len(self.bits))
                    every |= bit
                    asked |= bit if subject in self.told else 0
            found = self.masks[facts] = (every, asked)
        return found

    def _merged(self, visits: list[Visit[S]]) -> list[Visit[S]]:
        """Worlds with one state that differ in one fact only, and have all its values, put together."""
        groups: dict[tuple[Hashable, str], dict[Facts, Visit[S]]] = {}
        for visit in visits:
            alike = groups.setdefault((self.domain.key(visit.world.state), visit.world.doubt), {})
            alike.setdefault(visit.world.facts, visit)
        return [visit for alike in groups.values() for visit in self._sum(alike).values()]

    def _sum(self, worlds: dict[Facts, Visit[S]]) -> dict[Facts, Visit[S]]:
        subjects = list(dict.fromkeys(s for facts in worlds for s in facts if s not in self.told))
        grown = len(worlds) > 1
        while grown:
            grown = False
            for subject in subjects:
                by_rest: dict[int, list[Facts]] = {}
                for facts in worlds:
                    by_rest.setdefault(facts.signature(without=subject), []).append(facts)
                for those in by_rest.values():
                    found = self._complementary(subject, those) if len(those) > 1 else None
                    if found is None:
                        continue
                    common, parts = found
                    summed = parts[0].with_answers(subject, common)
                    if any(part.with_answers(subject, common) != summed for part in parts):
                        continue  # Signatures may meet by chance.
                    members = tuple(worlds.pop(facts) for facts in parts)
                    if summed not in worlds:
                        one = members[0].world
                        world = World(summed, one.state, one.doubt)
                        worlds[summed] = Visit(members[0].node, world, None, None, members)
                    grown = True
        return worlds

    def _complementary(self, subject: Subject, those: Sequence[Facts]) -> tuple[Answers, Sequence[Facts]] | None:
        """What is left of the answers about a subject, and whose sum that is."""
        for one in those:
            for other in those:
                first, second = one.get(subject, NOTHING), other.get(subject, NOTHING)
                differ = first ^ second
                if len(differ) == 2 and len({predicate for predicate, _ in differ}) == 1:
                    return first & second, (one, other)
        values = self.domains.get(subject)
        if values is not None and values <= {facts.get(subject, NOTHING) for facts in those}:
            return NOTHING, [facts for facts in those if facts.get(subject, NOTHING) in values]
        return None


def _constant_domains(graph: Graph, before: Set[Subject]) -> dict[Subject, frozenset[Answers]]:
    """What can be known of subjects that are only ever set to constants, where the sum of it says as much: nothing else
    may be asked of them `before`, at the entry, and each question has both answers.
    """
    asked: dict[Subject, set[Any]] = {}
    for atom in graph.atoms():
        asked.setdefault(atom.subject, set()).add(atom.predicate)
    constants, moved = constants_of(graph)
    found = {
        subject: frozenset(Facts().set_constant(subject, value)[subject] for value in values)
        for subject, values in constants.items()
        if not subject.mentions & moved and subject not in before
    }
    return {
        subject: values
        for subject, values in found.items()
        if all({decide(value, question) for value in values} >= {True, False} for question in asked.get(subject, ()))
    }


def constants_of(graph: Graph) -> tuple[dict[Subject, list[Hashable]], set[Hashable]]:
    """The constants that each subject is set to somewhere, and the symbols that get other values, too."""
    found: dict[Subject, list[Hashable]] = {}
    moved: set[Hashable] = set()
    for node in graph.nodes:
        match node.op:
            case SetConstant(target, value):
                found.setdefault(target, []).append(value)
            case Forget(symbol):
                moved.add(symbol)
            case Shift(target, _, _):
                moved |= target.mentions
            case Learn(atom, _):
                moved |= atom.subject.mentions
    return found, moved


def _after(node: Node, world: World[S], domain: Domain[S], window: Window) -> Iterator[World[S]]:
    """The worlds behind a node's operation."""
    if node.op is None:
        yield world
    elif isinstance(node.op, (Forget, SetConstant, Shift, Learn)):
        yield World(apply_fact_op(node.op, world.facts, window), world.state, world.doubt)
    else:
        for state, proven in domain.transfer(node, world.state, world.facts):
            facts: Facts | None = world.facts
            for atom, holds in proven:
                facts = facts.assume(atom, holds) if facts is not None else None
            if facts is not None:
                yield World(facts, state, world.doubt)


def live_subjects(graph: Graph) -> Mapping[int, frozenset[Subject]]:
    """For each node the subjects that some path from it may still ask about before they are redefined."""
    order = graph.reachable()
    predecessors = graph.predecessors()
    live: dict[int, frozenset[Subject]] = {index: frozenset() for index in order}
    pending = deque(reversed(order))
    waiting = set(order)
    while pending:
        index = pending.popleft()
        waiting.discard(index)
        after: set[Subject] = set()
        for edge in graph.edges[index]:
            after |= live[edge.target]
            for guard in edge.guards:
                after |= _asked(guard.atom)
        before = frozenset(_before(graph.nodes[index].op, after))
        if before != live[index]:
            live[index] = before
            for previous in predecessors[index]:
                if previous not in waiting:
                    waiting.add(previous)
                    pending.append(previous)
    return live


def _asked(atom: Atom) -> set[Subject]:
    subjects = {atom.subject}
    if isinstance(atom.predicate, Residue) and isinstance(atom.predicate.modulus, Subject):
        subjects.add(atom.predicate.modulus)
    return subjects


def _before(op: Any, after: set[Subject]) -> set[Subject]:
    """Subjects that matter before an instruction, from those that matter behind it."""
    match op:
        case Forget(symbol, rises):
            lasting = {s for s in after if symbol in (s.with_, s.against)} if rises else set()
            return {s for s in after if symbol not in s.mentions} | lasting
        case SetConstant(target, _):
            return {s for s in after if not target.mentions & s.mentions}
        case Shift(target, source, _):
            rest = {s for s in after if not target.mentions & s.mentions}
            return rest | {source} if target in after else rest
        case Learn(atom, _):
            return after - {atom.subject}
        case _:
            asked = getattr(op, "asks", None)
            return after | set(asked) if asked else after
