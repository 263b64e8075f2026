"""Graphs: simplification keeps every sequence of operations that a path may run, under every value of the guards."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampclip_lint.flow.facts import Atom, Truthy, symbol_subject
from ampclip_lint.flow.graph import Edge, Graph, Guard, compact, simplify

GUARDS = [Atom(symbol_subject(name, name), Truthy()) for name in "ab"]
NOISE = "noise"


def when(name: str, holds: bool = True) -> tuple[Guard, ...]:
    return (Guard(Atom(symbol_subject(name, name), Truthy()), holds),)


def keep(op: object) -> bool:
    return op != NOISE


def made(*nodes: tuple[str | None, list[Edge]]) -> Graph:
    graph = Graph()
    for op, _ in nodes:
        graph.add(op)
    for index, (_, out) in enumerate(nodes):
        for edge in out:
            graph.connect(index, edge)
    return graph


def words(graph: Graph, values: dict[Atom, bool], length: int = 4) -> set[tuple[str, bool]]:
    """What paths run, up to a length, where guards have these values; and whether without any doubt."""
    reached = set()
    pending = [(0, "", True)]
    while pending:
        node, word, sure = pending.pop()
        op = graph.nodes[node].op
        word += op if op is not None and keep(op) else ""
        if len(word) > length or (node, word, sure) in reached:
            continue
        reached.add((node, word, sure))
        for edge in graph.edges[node]:
            if all(values[guard.atom] is guard.holds for guard in edge.guards):
                pending.append((edge.target, word, sure and not edge.doubt))
    return {(word, sure) for _, word, sure in reached}


def runs_silently_for_ever(graph: Graph, values: dict[Atom, bool]) -> bool:
    """Whether junctions form a cycle that can be entered and, with guards of these values, never has to be left."""
    silent = {node.index for node in graph.nodes if node.op is None or not keep(node.op)}
    while True:
        going_on = {
            index
            for index in silent
            for edge in graph.edges[index]
            if edge.target in silent and all(values[guard.atom] is guard.holds for guard in edge.guards)
        }
        if going_on == silent:
            return bool(silent)
        silent = going_on


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Nodes with one way out, with two or three by the guards, or with two of which none knows which is taken."""
    size = draw(st.integers(2, 7))
    nodes = []
    for _ in range(size):
        op = draw(st.sampled_from([None, None, NOISE, "x", "y"]))
        targets = [draw(st.integers(0, size - 1)) for _ in range(3)]
        doubts = [draw(st.sampled_from(["", "", "doubt"])) for _ in range(3)]
        first, second = draw(st.permutations("ab"))
        guards = draw(
            st.sampled_from(
                [
                    [],
                    [()],
                    [(), ()],
                    [when(first), when(first, False)],
                    [when(first), when(first, False) + when(second), when(first, False) + when(second, False)],
                ]
            )
        )
        nodes.append((op, [Edge(*each) for each in zip(targets, guards, doubts)]))
    return made(*nodes)


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_simplify_keeps_the_words_of_a_graph(graph):
    simple = simplify(graph, keep)
    assert len(simple.nodes) <= len(graph.reachable())
    for values in product((True, False), repeat=len(GUARDS)):
        before, after = (words(one, dict(zip(GUARDS, values))) for one in (graph, simple))
        # A path that may be taken without doubt stays so; where arms meet, one of them suffices.
        assert {word for word, sure in before if sure} <= {word for word, sure in after if sure}
        assert {word for word, _ in before} <= {word for word, _ in after}
        # `simplify` takes it that a loop without operations ends: its guards can't change, so it would run for ever.
        if not runs_silently_for_ever(graph, dict(zip(GUARDS, values))):
            assert {word for word, _ in after} <= {word for word, _ in before}


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_simplify_leaves_nothing_to_do(graph):
    simple = simplify(graph, keep)
    again = simplify(simple, keep)
    assert (again.nodes, again.edges) == (simple.nodes, simple.edges)
    for index, (node, out) in enumerate(zip(simple.nodes, simple.edges)):
        assert node.op is None or keep(node.op)
        # Arms that all meet are one, unless there is a case in which none of them is taken: there the path ends.
        if len({edge.target for edge in out}) == 1 and len(out) > 1:
            cases = [dict(zip(GUARDS, values)) for values in product((True, False), repeat=len(GUARDS))]
            assert any(not any(all(v[g.atom] is g.holds for g in edge.guards) for edge in out) for v in cases)
        only = out[0] if len(out) == 1 else None
        assert not (index and node.op is None and only and not only.guards and only.target != index)


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_compact_keeps_what_is_reachable_in_order(graph):
    small = compact(graph)
    assert small.reachable() == list(range(len(small.nodes)))
    assert [node.index for node in small.nodes] == list(range(len(small.nodes)))
    for values in product((True, False), repeat=len(GUARDS)):
        assert words(small, dict(zip(GUARDS, values))) == words(graph, dict(zip(GUARDS, values)))


def test_compact_keeps_places():
    graph = Graph()
    graph.add("x", place=(1, 0))
    graph.add("lost", place=(2, 0))
    graph.connect(0, Edge(graph.add("y", place=(3, 0))))
    assert [(node.op, node.place) for node in compact(graph).nodes] == [("x", (1, 0)), ("y", (3, 0))]


# -- By example ------------------------------------------------------------------------------------------------------


def test_reverse_postorder_puts_a_join_behind_its_arms():
    graph = made(("0", [Edge(3), Edge(1)]), ("1", [Edge(2)]), ("2", [Edge(0)]), ("3", [Edge(2)]), ("4", [Edge(2)]))
    order = graph.reachable()
    assert order[0] == 0 and order[-1] == 2 and set(order) == {0, 1, 2, 3}
    assert {node: sorted(before) for node, before in graph.predecessors().items()} == {
        0: [2],
        1: [0],
        2: [1, 3],
        3: [0],
    }


def test_a_long_chain_needs_no_recursion():
    graph = Graph()
    for index in range(5000):
        graph.add("x" if index % 100 == 0 else None)
        if index:
            graph.connect(index - 1, Edge(index))
    assert len(graph.reachable()) == 5000
    assert [node.op for node in simplify(graph, keep).nodes][:50] == ["x"] * 50


def test_connect_twice_is_one_edge():
    graph = made(("x", [Edge(1), Edge(1), Edge(1, when("a"))]), ("y", []))
    assert graph.edges[0] == [Edge(1), Edge(1, when("a"))]


def test_atoms_are_those_that_reachable_edges_test():
    graph = made(
        (None, [Edge(1, when("a")), Edge(2, when("a", False))]), ("x", []), ("y", []), (None, [Edge(1, when("b"))])
    )
    assert graph.atoms() == {GUARDS[0]}


def test_a_branch_that_decides_nothing_goes():
    graph = made(
        ("x", [Edge(1, when("a")), Edge(2, when("a", False))]), (NOISE, [Edge(3)]), (None, [Edge(3)]), ("y", [])
    )
    simple = simplify(graph, keep)
    assert [node.op for node in simple.nodes] == ["x", "y"]
    assert simple.edges == [[Edge(1)], []]


def test_a_branch_that_decides_something_stays():
    graph = made(("x", [Edge(1, when("a")), Edge(2, when("a", False))]), ("y", [Edge(2)]), ("z", []))
    simple = simplify(graph, keep)
    assert sorted(guard.holds for out in simple.edges for edge in out for guard in edge.guards) == [False, True]


def test_doubt_survives_a_bypass_and_not_the_meeting_with_a_sure_arm():
    bypass = made(("x", [Edge(1)]), (None, [Edge(2, doubt="no iteration")]), ("y", []))
    assert simplify(bypass, keep).edges[0] == [Edge(1, doubt="no iteration")]
    meeting = made(("x", [Edge(1, when("a"), "doubt"), Edge(1, when("a", False))]), ("y", []))
    assert simplify(meeting, keep).edges[0] == [Edge(1)]
    both = made(("x", [Edge(1, when("a"), "one"), Edge(1, when("a", False), "two")]), ("y", []))
    assert simplify(both, keep).edges[0] == [Edge(1, doubt="one")]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_cycles_of_junctions_end(size):
    cycle = [(None, [Edge(1 + (index + 1) % size)]) for index in range(size)]
    simple = simplify(made(("x", [Edge(1)]), *cycle), keep)
    assert len(simple.nodes) <= 2


def test_a_loop_without_operations_goes():
    graph = made(("x", [Edge(1)]), (None, [Edge(1, when("a")), Edge(2, when("a", False))]), ("y", []))
    simple = simplify(graph, keep)
    assert words(simple, {GUARDS[0]: False}) == {("x", True), ("xy", True)}
    assert all(edge.target != index for index, out in enumerate(simple.edges) for edge in out)


def test_to_dot_quotes_and_marks_guards_and_doubts():
    graph = made(('say "x"\n', [Edge(1, when("a", False) + when("b")), Edge(1, doubt="why")]), ("back\\slash", []))
    assert graph.to_dot(lambda node: node.op).splitlines() == [
        "digraph flow {",
        "  node [shape=box, fontname=monospace];",
        r'  n0 [label="say \"x\"\n"];',
        '  n0 -> n1 [label="not (a) and b"];',
        '  n0 -> n1 [label="", style=dashed];',
        r'  n1 [label="back\\slash"];',
        "}",
    ]
