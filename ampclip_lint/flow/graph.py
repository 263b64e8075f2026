"""Control-flow graph of operations with guards on its edges. Knows nothing about gradients or syntax trees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from typing import Any, NamedTuple

from ampclip_lint.flow.facts import Atom
from ampclip_lint.records import dataclass


class Guard(NamedTuple):
    """An atom that has the value `holds` whenever the edge is taken."""

    atom: Atom
    holds: bool

    def __str__(self) -> str:
        return str(self.atom) if self.holds else f"not ({self.atom})"


class Edge(NamedTuple):
    """An arc. `guards` are assumed when it is taken; `doubt` says why a path over it is no definite witness."""

    target: int
    guards: tuple[Guard, ...] = ()
    doubt: str = ""


@dataclass
class Node:
    """One operation (or ``None`` for a mere junction), with where it stands."""

    index: int
    op: Any = None
    place: Any = None


@dataclass
class Graph:
    """Nodes by index, edges out of each; node 0 is the entry."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[list[Edge]] = field(default_factory=list)

    def add(self, op: Any = None, place: Any = None) -> int:
        node = Node(len(self.nodes), op, place)
        self.nodes.append(node)
        self.edges.append([])
        return node.index

    def connect(self, source: int, edge: Edge) -> None:
        if edge not in self.edges[source]:
            self.edges[source].append(edge)

    def reachable(self) -> list[int]:
        """Indices reachable from the entry, in reverse postorder."""
        return _reached(self.edges)

    def leads_to(
        self, source: int, goal: int, without: Iterable[int] = (), where: Mapping[Atom, bool] | None = None
    ) -> bool:
        """Whether a path of at least one edge leads from one node to another, `without` passing certain ones, `where`
        some atoms have these values all the time.
        """
        seen: set[int] = set(without)
        pending = [source]
        while pending:
            for edge in self.edges[pending.pop()]:
                if where and any(where.get(guard.atom, guard.holds) is not guard.holds for guard in edge.guards):
                    continue
                if edge.target == goal:
                    return True
                if edge.target not in seen:
                    seen.add(edge.target)
                    pending.append(edge.target)
        return False

    def on_cycle(self, index: int, without: int | None = None) -> bool:
        """Whether a path leads from a node back to it, `without` passing a certain one."""
        seen: set[int] = set() if without is None else {without}
        pending = [edge.target for edge in self.edges[index]]
        while pending:
            current = pending.pop()
            if current == index:
                return True
            if current not in seen:
                seen.add(current)
                pending.extend(edge.target for edge in self.edges[current])
        return False

    def predecessors(self) -> dict[int, list[int]]:
        """For each reachable node the nodes with an edge to it."""
        found: dict[int, list[int]] = {index: [] for index in self.reachable()}
        for index in found:
            for edge in self.edges[index]:
                found[edge.target].append(index)
        return found

    def atoms(self) -> set[Atom]:
        """Every atom that some reachable edge tests."""
        return {guard.atom for index in self.reachable() for edge in self.edges[index] for guard in edge.guards}

    def to_dot(self, label: Callable[[Node], str]) -> str:
        """The graph in Graphviz's language; `label` writes a node's text."""
        lines = ["digraph flow {", "  node [shape=box, fontname=monospace];"]
        for index in self.reachable():
            lines.append(f"  n{index} [label={_quote(label(self.nodes[index]))}];")
            for edge in self.edges[index]:
                text = " and ".join(map(str, edge.guards))
                style = ", style=dashed" if edge.doubt else ""
                lines.append(f"  n{index} -> n{edge.target} [label={_quote(text)}{style}];")
        return "\n".join([*lines, "}"])


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def simplify(graph: Graph, keep: Callable[[Any], bool], asked: Callable[[Atom], bool] = lambda atom: True) -> Graph:
    """A graph with the same paths over the operations that `keep` accepts.

    A branch whose arms all reach the same node without an operation in between tests nothing that matters,
    so its guards go; junctions with one way out are bypassed. What is left is what a reader would draw.
    A way out that meets no further operation just ends; the guard on what is then the only way on stays only where
    `asked` says that somebody else wants to know.
    """
    ops = [node.op if node.op is not None and keep(node.op) else None for node in graph.nodes]
    leading = _leading_to(graph, {index for index, op in enumerate(ops) if op is not None})
    edges = [[edge for edge in out if edge.target in leading] for out in graph.edges]
    _bypass_junctions(ops, edges, asked)
    return _renumbered(graph, ops, edges)


def _bypass_junctions(ops: Sequence[Any], edges: list[list[Edge]], asked: Callable[[Atom], bool]) -> None:
    """Lead edges past nodes without operation and with one unguarded way out, until there is nothing to bypass."""
    before: list[set[int]] = [set() for _ in ops]
    for index, out in enumerate(edges):
        for edge in out:
            before[edge.target].add(index)
    goal: dict[int, Edge] = {}
    pending = deque(range(len(edges) - 1, -1, -1))
    waiting = set(pending)
    while pending:
        index = pending.popleft()
        waiting.discard(index)
        out = edges[index]
        fresh: list[Edge] = []
        for edge in out:
            target, doubt, seen = edge.target, edge.doubt, {index}
            while target in goal and target not in seen:
                seen.add(target)
                doubt = doubt or goal[target].doubt
                target = goal[target].target
            moved = edge if target == edge.target and doubt == edge.doubt else Edge(target, edge.guards, doubt)
            if moved not in fresh:
                fresh.append(moved)
        # A loop without operations goes nowhere.
        if ops[index] is None and len(fresh) > 1:
            fresh = [edge for edge in fresh if edge.target != index] or fresh
        met = None
        while fresh != met and len({edge.target for edge in fresh}) == 1 and (len(fresh) > 1 or fresh[0].guards):
            met, fresh = fresh, _only_way(fresh, asked)
        if fresh != out:
            edges[index] = fresh
            for edge in fresh:
                before[edge.target].add(index)
        bypassed = index and ops[index] is None and len(fresh) == 1 and not fresh[0].guards and fresh[0].target != index
        if bypassed and goal.get(index) != fresh[0]:
            goal[index] = fresh[0]
            pending.extend(before[index] - waiting)
            waiting |= before[index]


def _only_way(edges: list[Edge], asked: Callable[[Atom], bool]) -> list[Edge]:
    """What is left of a branch whose arms meet at once, or whose other arms just end."""
    if len(edges) > 1 and _exhaustive(edges):
        doubts = [edge.doubt for edge in edges]
        return [Edge(edges[0].target, (), "" if "" in doubts else doubts[0])]
    fresh: list[Edge] = []
    for edge in edges:
        keeps = any(asked(guard.atom) for guard in edge.guards)
        moved = edge if keeps else Edge(edge.target, (), edge.doubt)
        if moved not in fresh:
            fresh.append(moved)
    return fresh


def _exhaustive(edges: list[Edge]) -> bool:
    """Whether some edge can be taken whatever the atoms of their guards are."""
    ways = {frozenset(edge.guards) for edge in edges}
    atoms = {guard.atom for way in ways for guard in way}
    return len(atoms) > 8 or _is_tautology(ways)


def _is_tautology(ways: Set[frozenset[Guard]]) -> bool:
    """Whether in every case all guards of some way hold: case by case, as far as that takes."""
    if frozenset() in ways:
        return True
    atom = next((guard.atom for way in ways for guard in way), None)
    if atom is None:
        return False
    for holds in (True, False):
        true, false = Guard(atom, holds), Guard(atom, not holds)
        if not _is_tautology({way - {true} for way in ways if false not in way}):
            return False
    return True


def _leading_to(graph: Graph, goals: set[int]) -> set[int]:
    """The nodes from which some goal can be reached."""
    predecessors: dict[int, list[int]] = {}
    for index, out in enumerate(graph.edges):
        for edge in out:
            predecessors.setdefault(edge.target, []).append(index)
    found = set(goals)
    pending = list(goals)
    while pending:
        for previous in predecessors.get(pending.pop(), ()):
            if previous not in found:
                found.add(previous)
                pending.append(previous)
    return found


def compact(graph: Graph) -> Graph:
    """The reachable part of a graph, renumbered in reverse postorder."""
    return _renumbered(graph, [node.op for node in graph.nodes], graph.edges)


def _renumbered(graph: Graph, ops: Sequence[Any], edges: Sequence[Sequence[Edge]]) -> Graph:
    order = _reached(edges)
    number = {old: new for new, old in enumerate(order)}
    result = Graph()
    for old in order:
        result.add(ops[old], graph.nodes[old].place)
    for old in order:
        result.edges[number[old]] = [Edge(number[edge.target], edge.guards, edge.doubt) for edge in edges[old]]
    return result


def _reached(edges: Sequence[Sequence[Edge]]) -> list[int]:
    order: list[int] = []
    seen = {0}
    stack: list[tuple[int, Iterator[Edge]]] = [(0, iter(edges[0]))]
    while stack:
        index, rest = stack[-1]
        for edge in rest:
            if edge.target not in seen:
                seen.add(edge.target)
                stack.append((edge.target, iter(edges[edge.target])))
                break
        else:
            order.append(index)
            stack.pop()
    order.reverse()
    return order
