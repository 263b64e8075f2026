"""Fixpoint over worlds: each node gets the set of states in which a path may reach it. Knows nothing about gradients.

A *world* is a conjunction of facts about guards together with a client's state (property simulation, trace
partitioning): states with different facts are kept apart, so that a test repeated later takes the same arm. The client
says what an operation does to its state; edges assume guards. Facts that no later test can ask for are dropped, which
is what lets worlds meet again. Every world remembers the first world it came from: the witness path of a finding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ampclip_lint.flow.facts import (
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
)
from ampclip_lint.flow.graph import Graph, Node

S = TypeVar("S", bound=Hashable)

#: Worlds at one node before their facts are given up, and before the whole exploration stops.
WORLDS_PER_NODE = 160
WORLDS_IN_ALL = 30_000


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
    """A world at a node, and the visit that first led to it."""

    node: int
    world: World[S]
    parent: Visit[S] | None

    def path(self) -> list[Visit[S]]:
        """From the entry to here."""
        steps: list[Visit[S]] = []
        visit: Visit[S] | None = self
        while visit is not None:
            steps.append(visit)
            visit = visit.parent
        steps.reverse()
        return steps


@dataclass
class Exploration(Generic[S]):
    """All visits by node; `exhausted` where the budget ended the search, `joined` nodes where worlds lost facts."""

    graph: Graph
    visits: dict[int, list[Visit[S]]] = field(default_factory=dict)
    exhausted: bool = False
    joined: set[int] = field(default_factory=set)

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
    window = Window.of(graph.atoms())
    live = live_subjects(graph)
    result: Exploration[S] = Exploration(graph)
    seen: dict[int, dict[Hashable, str]] = {}
    certain: deque[Visit[S]] = deque()
    doubtful: deque[Visit[S]] = deque()
    total = 0

    def reach(node: int, world: World[S], parent: Visit[S] | None) -> None:
        nonlocal total
        wanted = live[node]
        facts = world.facts.keep(lambda subject: subject in wanted)
        here = seen.setdefault(node, {})
        if len(here) >= worlds_per_node:
            result.joined.add(node)
            facts, world = Facts(), World(Facts(), world.state, world.doubt or "joined")
        key = (facts, domain.key(world.state))
        # A world seen without doubt says all that the same world in doubt could say.
        if key in here and (here[key] == "" or world.doubt):
            return
        here[key] = world.doubt
        if total >= worlds_in_all:
            result.exhausted = True
            return
        total += 1
        visit = Visit(node, World(facts, world.state, world.doubt), parent)
        result.visits.setdefault(node, []).append(visit)
        (doubtful if world.doubt else certain).append(visit)

    for state in entry:
        reach(0, World(facts or Facts(), state), None)
    # Definite worlds first: the witness that a finding shows is then a definite one whenever there is one.
    while certain or doubtful:
        visit = certain.popleft() if certain else doubtful.popleft()
        if result.exhausted:
            break
        node, world = graph.nodes[visit.node], visit.world
        for after in _after(node, world, domain, window):
            for edge in graph.edges[visit.node]:
                assumed: Facts | None = after.facts
                for guard in edge.guards:
                    if assumed is not None:
                        assumed = assumed.assume(guard.atom, guard.holds)
                if assumed is not None:
                    reach(edge.target, World(assumed, after.state, after.doubt or edge.doubt), visit)
    return result


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
        case Forget(symbol):
            return {s for s in after if symbol not in s.mentions}
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
