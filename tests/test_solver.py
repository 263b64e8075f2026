"""The solver on toy domains that know nothing of gradients: which paths it tells apart, and which it never sees.

As in Infer's analyzer tests, programs are written in a small structured language, and what is checked is the number of
worlds at a point: joining too much or too little is a wrong number, and a missing join is a run without end.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampclip_lint.flow.facts import (
    Above,
    Atom,
    Equals,
    Facts,
    Forget,
    IsNone,
    Learn,
    Residue,
    SetConstant,
    Shift,
    Subject,
    Truthy,
    symbol_subject,
)
from ampclip_lint.flow.graph import Edge, Graph, Guard
from ampclip_lint.flow.solver import Exploration, live_subjects, solve

A, B, C, INDEX, N = (symbol_subject(name, name) for name in "abcin")
NO_ITERATION = "no iteration"


# -- A structured language -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class If:
    """``if atom: then else: otherwise``; without an atom, either arm may be taken."""

    atom: Atom | None
    then: tuple
    otherwise: tuple = ()


@dataclass(frozen=True)
class For:
    """A loop over something unknown. That it runs zero times is in doubt."""

    body: tuple


@dataclass(frozen=True)
class While:
    """``while atom: body``."""

    atom: Atom
    body: tuple


@dataclass(frozen=True)
class Worlds:
    """Here this many states are expected."""

    count: int


@dataclass(frozen=True)
class Prove:
    """An operation that proves an atom: no path goes on from it where the atom is known to be otherwise.

    It asks for the atom's subject. If it did not, what is known of it could be forgotten on the way here.
    """

    atom: Atom
    holds: bool = True

    @property
    def asks(self) -> tuple[Subject, ...]:
        return (self.atom.subject,)


@dataclass(frozen=True)
class Ask:
    """An operation that asks for subjects."""

    asks: tuple[Subject, ...]


END, SPLIT = "END", "SPLIT"


def built(*program) -> Graph:
    """A program's graph; its last node is the exit."""
    graph = Graph()
    last = _lower(graph, program, graph.add())
    graph.connect(last, Edge(graph.add()))
    return graph


def _lower(graph: Graph, program, node: int) -> int:
    for statement in program:
        match statement:
            case If(atom, then, otherwise):
                ends = []
                for arm, holds in ((then, True), (otherwise, False)):
                    start = graph.add()
                    graph.connect(node, Edge(start, _guards(atom, holds)))
                    ends.append(_lower(graph, arm, start))
                node = graph.add()
                for end in ends:
                    graph.connect(end, Edge(node))
            case For(body):
                start, behind = graph.add(), graph.add()
                graph.connect(node, Edge(start))
                graph.connect(node, Edge(behind, doubt=NO_ITERATION))
                end = _lower(graph, body, start)
                graph.connect(end, Edge(start))
                graph.connect(end, Edge(behind))
                node = behind
            case While(atom, body):
                head, start, behind = graph.add(), graph.add(), graph.add()
                graph.connect(node, Edge(head))
                graph.connect(head, Edge(start, _guards(atom, True)))
                graph.connect(head, Edge(behind, _guards(atom, False)))
                graph.connect(_lower(graph, body, start), Edge(head))
                node = behind
            case op:
                after = graph.add(op)
                graph.connect(node, Edge(after))
                node = after
    return node


def _guards(atom: Atom | None, holds: bool) -> tuple[Guard, ...]:
    return (Guard(atom, holds),) if atom else ()


def on(subject: Subject) -> Atom:
    return Atom(subject, Truthy())


def fork(subject: Subject | None, then: str, otherwise: str) -> If:
    return If(on(subject) if subject else None, (then,), (otherwise,))


# -- Domains ---------------------------------------------------------------------------------------------------------


@dataclass
class Paths:
    """The state is the path: all letters on it. Longer paths than `longest` are dropped."""

    longest: int = 99
    seen: list[tuple[object, str, Facts]] = field(default_factory=list)

    def transfer(self, node, state: str, facts: Facts) -> Iterator[tuple[str, tuple[tuple[Atom, bool], ...]]]:
        self.seen.append((node.op, state, facts))
        match node.op:
            case Prove(atom, holds):
                yield state, ((atom, holds),)
            case Worlds() | Ask():
                yield state, ()
            case "END":
                return
            case "SPLIT":
                yield state + "1", ()
                yield state + "2", ()
            case letter:
                if len(state) < self.longest:
                    yield state + letter, ()

    def key(self, state: str) -> Hashable:
        return state


class Letters(Paths):
    """The state is the set of letters on the path: finitely many, so that every loop ends."""

    def transfer(self, node, state, facts):
        for after, proven in super().transfer(node, state, facts):
            yield "".join(sorted(set(after))), proven


def check(*program, domain: Paths | None = None, **limits) -> Exploration[str]:
    """Solves a program and compares the number of states at each `Worlds` with the expected one."""
    graph = built(*program)
    result = solve(graph, [""], domain or Paths(), **limits)
    for node in graph.nodes:
        if isinstance(node.op, Worlds):
            states = sorted({visit.world.state for visit in result.at(node.index)})
            assert len(states) == node.op.count, states
    return result


def at_exit(result: Exploration[str]) -> set[str]:
    return {visit.world.state for visit in result.at(len(result.graph.nodes) - 1)}


# -- Branches --------------------------------------------------------------------------------------------------------


def test_if_diamond():
    check(Worlds(1), fork(None, "x", "y"), Worlds(2), fork(None, "x", "y"), Worlds(4))


def test_arms_that_do_the_same_meet():
    result = check(fork(None, "x", "x"), Worlds(1), fork(A, "y", "y"), Worlds(1))
    assert len(result.at(len(result.graph.nodes) - 1)) == 1


def test_the_same_test_twice_takes_the_same_arm():
    result = check(fork(A, "x", "y"), Worlds(2), fork(A, "u", "w"), Worlds(2))
    assert at_exit(result) == {"xu", "yw"}


def test_different_tests_are_independent():
    check(fork(A, "x", "y"), fork(B, "u", "w"), Worlds(4), fork(A, "x", "y"), fork(B, "u", "w"), Worlds(4))


def test_a_test_inside_an_arm_is_settled_there():
    check(If(on(A), (If(on(A), ("x",), (Worlds(0),)),), (If(on(A), (Worlds(0),), ("y",)),)), Worlds(2))


def test_one_armed_tests():
    assert at_exit(check(If(on(A), ("x",)), "m", If(on(A), ("y",)))) == {"xmy", "m"}
    assert at_exit(check(If(on(A), ("x",)), "m", If(on(A), (), ("y",)))) == {"xm", "my"}


def chain(*letters: str) -> If:
    """``if a == "0": … elif a == "1": … else: …``"""
    *arms, other = letters
    program: tuple = (other,)
    for number, letter in reversed(list(enumerate(arms))):
        program = (If(Atom(A, Equals(str(number))), (letter,), program),)
    return program[0]


def test_arms_of_an_elif_chain_exclude_each_other():
    result = check(chain("x", "y", "z"), Worlds(3), chain("u", "v", "w"), Worlds(3))
    assert at_exit(result) == {"xu", "yv", "zw"}


def test_a_chain_of_other_constants_is_settled_by_an_equal_one():
    result = check(chain("x", "y", "z"), If(Atom(A, Equals("9")), ("p",), ("q",)))
    assert at_exit(result) == {"xq", "yq", "zq", "zp"}


def test_none_is_not_true():
    result = check(If(Atom(A, IsNone()), ("x",), ("y",)), fork(A, "u", "w"))
    assert at_exit(result) == {"xw", "yu", "yw"}


# -- Instructions on facts -------------------------------------------------------------------------------------------


def test_a_new_value_makes_a_test_open_again():
    check(fork(A, "x", "y"), Forget("a"), fork(A, "x", "y"), Worlds(4))
    check(fork(A, "x", "y"), Forget("b"), fork(A, "x", "y"), Worlds(2))


def test_a_new_value_of_a_part_makes_the_whole_open_again():
    both = Subject(("and", "a", "b"), frozenset({"a", "b"}))
    check(fork(both, "x", "y"), Forget("b"), fork(both, "x", "y"), Worlds(4))


def test_a_constant_settles_tests():
    nothing = Atom(A, IsNone())
    assert at_exit(check(SetConstant(A, None), If(nothing, ("x",), ("y",)))) == {"x"}
    assert at_exit(check(fork(A, "x", "y"), SetConstant(A, False), fork(A, "u", "w"))) == {"xw", "yw"}
    one_arm = If(on(B), (SetConstant(A, True), "x"), (SetConstant(A, False), "y"))
    assert at_exit(check(one_arm, fork(A, "u", "w"))) == {"xu", "yw"}


def test_a_copy_has_what_is_known_of_the_original():
    result = check(fork(A, "x", "y"), Shift(B, A, 0), Forget("a"), fork(B, "u", "w"), fork(A, "p", "q"))
    assert at_exit(result) == {first + second + third for first, second in ("xu", "yw") for third in "pq"}


def test_learn_overrides_what_was_known():
    assert at_exit(check(fork(A, "x", "y"), Learn(on(A), True), fork(A, "u", "w"))) == {"xu", "yu"}


def test_what_an_operation_proves_ends_paths_that_contradict_it():
    program = (fork(A, "x", "y"), Prove(on(A)), Worlds(1), fork(A, "u", "w"))
    assert at_exit(check(*program)) == {"xu"}
    assert at_exit(check(Prove(on(A)), fork(A, "u", "w"))) == {"u"}


def test_an_operation_may_end_a_path_or_split_it():
    result = check(If(on(A), ("x", END), ("y", SPLIT)), Worlds(2))
    assert at_exit(result) == {"y1", "y2"}


def test_the_domain_sees_the_facts():
    domain = Paths()
    check(If(on(A), ("x",)), "m", fork(A, "y", "z"), domain=domain)
    assert {facts.value(on(A)) for op, _, facts in domain.seen if op == "m"} == {True, False}


# -- Loops -----------------------------------------------------------------------------------------------------------


def test_loops_end_and_no_iteration_is_in_doubt():
    result = check(For(("x", For(("y",)))), Worlds(3), domain=Letters())
    doubts = {visit.world.state: visit.world.doubt for visit in result.at(len(result.graph.nodes) - 1)}
    assert doubts == {"xy": "", "x": NO_ITERATION, "": NO_ITERATION}


def test_a_flag_is_the_same_in_every_iteration():
    result = check(For((fork(A, "x", "y"),)), fork(A, "u", "w"), domain=Letters())
    assert at_exit(result) == {"ux", "wy", "u", "w"}


def test_a_flag_that_changes_in_the_loop_is_not():
    result = check(For((Forget("a"), fork(A, "x", "y"))), fork(A, "u", "w"), domain=Letters())
    assert at_exit(result) == {"ux", "wy", "uxy", "wxy", "u", "w"}


def test_a_test_in_the_loop_settles_the_test_behind_it():
    result = check(While(on(A), ("x", Forget("a"))), fork(A, "u", "w"), domain=Letters())
    assert at_exit(result) == {"w", "wx"}


def test_a_while_loop_over_a_flag_that_never_changes_is_not_left():
    assert at_exit(check(While(on(A), ("x",)), domain=Letters())) == {""}


def test_a_counter_leaves_its_loop():
    program = (SetConstant(INDEX, 0), While(Atom(INDEX, Above(2)), (END,)), "s", Shift(INDEX, INDEX, 1))
    loop = (SetConstant(INDEX, 0), For(("x", If(Atom(INDEX, Above(2)), ("y", END)), Shift(INDEX, INDEX, 1))))
    assert at_exit(check(*program)) == {"s"}
    assert {state for op, state, _ in visits_of(loop) if op == "y"} == {"xxxx"}


def visits_of(program) -> list[tuple[object, str, Facts]]:
    domain = Paths(longest=8)
    check(*program, domain=domain)
    return domain.seen


FIRST, LAST = Atom(INDEX, Residue(N, 0)), Atom(INDEX, Residue(N, -1))


@pytest.mark.parametrize("start", [SetConstant(INDEX, 0), None], ids=["from 0", "from anywhere"])
def test_windows_of_a_counter(start):
    """``for i in …: if i % n == 0: f; m; if (i + 1) % n == 0: l``: after each l comes an f, and nowhere else."""
    body = (If(FIRST, ("f",)), "m", If(LAST, ("l",)), Shift(INDEX, INDEX, 1))
    paths = at_exit(check(*([start] if start else []), For(body), domain=Paths(longest=10)))
    for n in range(1, 7):
        letters = ["f" * (i % n == 0) + "m" + "l" * ((i + 1) % n == 0) for i in range(12)]
        assert {"".join(letters[:trips]) for trips in range(4)} <= paths
    windows_of_one, longer_windows, rest_of_one = "(fml)*", "(fmm+l)*(fm+)?", "" if start else "(m+l?)?"
    for path in paths:
        assert re.fullmatch(f"{windows_of_one}|{rest_of_one}{longer_windows}", path), path


def test_whether_n_is_one_is_kept_with_its_windows():
    """A window of one is one for ever, and what is known of n settles a test of n."""
    one = Atom(N, Equals(1))
    body = (If(FIRST, ("f",)), If(LAST, ("l",)), Shift(INDEX, INDEX, 1))
    result = check(SetConstant(INDEX, 0), For(body), If(one, ("1",), ("n",)), domain=Letters())
    assert at_exit(result) - {"1", "n"} == {"1fl", "fn", "fln"}


# -- Witnesses -------------------------------------------------------------------------------------------------------


def test_a_witness_is_a_path_of_the_graph():
    result = check(For((fork(None, "x", "y"), For(("z",)))), fork(A, "u", "w"), domain=Letters())
    for visits in result.visits.values():
        for visit in visits:
            path = visit.path()
            assert path[0].node == 0 and path[0].parent is None and path[-1] is visit
            for before, after in pairwise(path):
                assert after.node in {edge.target for edge in result.graph.edges[before.node]}


def test_a_witness_through_a_sum_of_worlds_is_one_run():
    """Both arms do the same, so that their worlds go on as one; a later test tells which of them the path came from."""
    result = check(fork(A, "x", "x"), fork(B, "y", "y"), "m", Worlds(1), fork(B, "p", "q"), fork(A, "u", "w"))
    middle = next(node.index for node in result.graph.nodes if node.op == "m")
    assert len(result.at(middle)) == 1
    ends = result.at(len(result.graph.nodes) - 1)
    assert {visit.world.state for visit in ends} == {"xympu", "xympw", "xymqu", "xymqw"}
    for visit in ends:
        answers: dict[Atom, set[bool]] = {}
        for before, after in pairwise(visit.path()):
            for edge in result.graph.edges[before.node]:
                if edge.target == after.node:
                    for guard in edge.guards:
                        answers.setdefault(guard.atom, set()).add(guard.holds)
        assert len(answers) == 2
        assert all(len(given) == 1 for given in answers.values())


def test_what_an_operation_asks_for_is_never_summed_away():
    result = check(fork(A, "x", "x"), Ask((A,)), "m")
    asking = next(node.index for node in result.graph.nodes if isinstance(node.op, Ask))
    assert len(result.at(asking)) == 2


def test_constants_that_are_all_there_are_leave_a_variable_open():
    flag = If(None, (SetConstant(A, 1),), (If(None, (SetConstant(A, 2),), (SetConstant(A, 3),)),))
    result = check(flag, "m", If(Atom(A, Equals(1)), ("x",), ("y",)))
    middle = next(node.index for node in result.graph.nodes if node.op == "m")
    assert len(result.at(middle)) == 1
    assert at_exit(result) == {"mx", "my"}


def test_a_state_that_needs_no_doubt_has_a_witness_without_doubt():
    """The path around the loop is shorter and reaches the end first; the definite one is found all the same."""
    result = check(For(("x", *["x"] * 20)), "x", domain=Letters())
    visits = result.at(len(result.graph.nodes) - 1)
    assert any(not visit.world.doubt for visit in visits)
    assert all(not step.world.doubt for visit in visits if not visit.world.doubt for step in visit.path())


def test_a_definite_world_is_explored_before_any_doubtful_one():
    domain = Letters()
    check(For(("x",)), "m", domain=domain)
    assert [state for op, state, _ in domain.seen if op == "m"] == ["x", ""]


def test_what_was_seen_without_doubt_is_not_seen_again_with_it():
    domain = Letters()
    check("x", For(("x",)), "m", domain=domain)
    assert [state for op, state, _ in domain.seen if op == "m"] == ["x"]


def test_the_domain_says_which_states_are_the_same():
    class Lengths(Paths):
        def key(self, state):
            return len(state)

    result = check(fork(None, "x", "y"), Worlds(1), domain=Lengths())
    assert len(at_exit(result)) == 1


def test_several_entry_states_and_facts_at_entry():
    graph = built(fork(A, "x", "y"))
    assert at_exit(solve(graph, ["p", "q"], Paths())) == {"px", "py", "qx", "qy"}
    assert at_exit(solve(graph, ["p"], Paths(), facts=Facts().assume(on(A), True))) == {"px"}
    assert at_exit(solve(graph, [], Paths())) == set()


# -- Budgets ---------------------------------------------------------------------------------------------------------


def test_enough_worlds_are_no_budget_case():
    result = check(*[fork(None, "x", "y")] * 5, Worlds(32))
    assert not result.exhausted and not result.joined


def test_too_many_worlds_in_all_end_the_search_and_say_so():
    result = check(*[fork(None, "x", "y")] * 8, worlds_in_all=50)
    assert result.exhausted
    assert sum(map(len, result.visits.values())) == 50


def test_too_many_worlds_at_a_node_lose_their_facts_and_say_so():
    """Which paths there are is then over-reported, with doubt, and never under-reported."""
    flags = [symbol_subject(f"flag{number}") for number in range(5)]
    program = [fork(flag, "x", "y") for flag in (*flags, *flags)]
    exact = check(*program)
    assert not exact.joined and len(at_exit(exact)) == 32
    joined = check(*program, worlds_per_node=8)
    assert joined.joined and not joined.exhausted
    assert at_exit(exact) < at_exit(joined)
    for visit in joined.at(len(joined.graph.nodes) - 1):
        if visit.world.state not in at_exit(exact):
            assert visit.world.doubt == "joined"


def test_a_loop_without_end_stops_at_the_budget():
    result = check(For(("x",)), domain=Paths(longest=10**9), worlds_in_all=500)
    assert result.exhausted


# -- Liveness --------------------------------------------------------------------------------------------------------


def test_facts_that_no_later_test_asks_for_are_dropped():
    """So the number of worlds does not grow with the number of flags, only with those in use at a time."""
    flags = [symbol_subject(f"flag{number}") for number in range(40)]
    program = [step for flag in flags for step in (If(on(flag), ("x",), ("x",)), If(on(flag), ("y",), ("y",)))]
    result = check(*program, Worlds(1), domain=Letters())
    assert max(map(len, result.visits.values())) <= 2
    assert all(not visit.world.facts for visit in result.at(len(result.graph.nodes) - 1))


def test_a_fact_survives_up_to_the_last_test_only():
    graph = built("x", If(on(A), ("y",)), "p", If(on(A), ("z",)), "q")
    result = solve(graph, [""], Paths())
    kept = {node.op: {len(visit.world.facts) for visit in result.at(node.index)} for node in graph.nodes if node.op}
    assert kept == {"x": {0}, "y": {1}, "p": {1}, "z": {0}, "q": {0}}


@pytest.mark.parametrize(
    ("op", "asked", "live"),
    [
        ("x", on(A), {A}),
        (Forget("a"), on(A), set()),
        (Forget("b"), on(A), {A}),
        (SetConstant(A, 1), on(A), set()),
        (Shift(A, B, 1), on(A), {B}),
        (Shift(A, B, 1), on(C), {C}),
        (Shift(INDEX, INDEX, 1), FIRST, {INDEX, N}),
        (Learn(on(A), True), on(A), set()),
        (Ask((B,)), on(A), {A, B}),
    ],
    ids=str,
)
def test_live_subjects_before_an_operation(op, asked, live):
    graph = built(op, If(asked, ("y",)))
    assert live_subjects(graph)[1] == live


def test_subjects_are_live_around_a_loop():
    graph = built(For((If(on(A), ("x",)), "y")), "z")
    live = live_subjects(graph)
    by_op = {node.op: live[node.index] for node in graph.nodes if node.op}
    assert by_op == {"x": {A}, "y": {A}, "z": frozenset()}


# -- Programs by chance ----------------------------------------------------------------------------------------------

LETTERS = st.sampled_from("xyz")
ATOMS = st.sampled_from([on(A), on(B), Atom(C, Equals("0")), Atom(C, Equals("1"))])
INSTRUCTIONS = (Forget("a"), Forget("c"), SetConstant(A, True), SetConstant(C, "1"), Prove(on(B)))
#: What is learnt of a variable after it was copied is not known of the copy: paths are over-reported.
COPY = Shift(B, A, 0)


def programs(*, loops: bool) -> st.SearchStrategy[tuple]:
    """Programs without loops and copies, which the solver follows exactly, or with both."""
    simple = st.one_of(LETTERS, st.sampled_from((*INSTRUCTIONS, COPY) if loops else INSTRUCTIONS))

    def blocks(inner: st.SearchStrategy[tuple]) -> st.SearchStrategy[tuple]:
        branch = st.builds(If, st.one_of(st.none(), ATOMS), inner, inner)
        kinds = [simple, branch]
        if loops:
            kinds += [st.builds(For, inner), st.builds(While, ATOMS, inner)]
        return st.lists(st.one_of(*kinds), max_size=4).map(tuple)

    return st.recursive(st.lists(simple, max_size=2).map(tuple), blocks, max_leaves=6)


Run = tuple[tuple[tuple[str, object], ...], str]


def executed(program: tuple, runs: set[Run], trips: int, longest: int) -> set[Run]:
    """How runs (values of variables, and the path) go on: `Forget` gives any value, loops run up to `trips` times."""
    for statement in program:
        runs = {after for run in runs for after in once(statement, run, trips, longest) if len(after[1]) <= longest}
    return runs


def once(statement, run: Run, trips: int, longest: int) -> set[Run]:
    values, path = dict(run[0]), run[1]
    match statement:
        case If(atom, then, otherwise):
            arms = ((then, True), (otherwise, False))
            taken = [arm for arm, holds in arms if atom is None or answer(atom, values) is holds]
            return {end for arm in taken for end in executed(arm, {run}, trips, longest)}
        case For(body):
            ends = rounds = {run}
            for _ in range(trips):
                rounds = executed(body, rounds, trips, longest)
                ends = ends | rounds
            return ends
        case While(atom, body):
            ends, rounds = set(), {run}
            for _ in range(trips + 1):
                ends |= {each for each in rounds if not answer(atom, dict(each[0]))}
                rounds = executed(body, {each for each in rounds if answer(atom, dict(each[0]))}, trips, longest)
            return ends
        case Forget(symbol):
            return {(frozen({**values, symbol: value}), path) for value in DOMAIN[symbol]}
        case SetConstant(target, value):
            return {(frozen({**values, target.text: value}), path)}
        case Shift(target, source, 0):
            return {(frozen({**values, target.text: values[source.text]}), path)}
        case Prove(atom, holds):
            return {run} if answer(atom, values) is holds else set()
        case letter:
            return {(run[0], path + letter)}


def frozen(values: dict[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(values.items()))


DOMAIN = {"a": (True, False), "b": (True, False), "c": ("0", "1", "2")}


def answer(atom: Atom, values: dict[str, object]) -> bool:
    value = values[atom.subject.text]
    return value == atom.predicate.value if isinstance(atom.predicate, Equals) else bool(value)


def all_executions(program: tuple, trips: int, longest: int = 99) -> set[str]:
    starts = [{"a": a, "b": b, "c": c} for a in DOMAIN["a"] for b in DOMAIN["b"] for c in DOMAIN["c"]]
    return {path for _, path in executed(program, {(frozen(values), "") for values in starts}, trips, longest)}


@settings(max_examples=250, deadline=None)
@given(programs(loops=False))
def test_without_loops_the_paths_are_exactly_the_executions(program):
    assert at_exit(check(*program)) == all_executions(program, 0)


@settings(max_examples=150, deadline=None)
@given(programs(loops=True))
def test_with_loops_no_execution_is_missed(program):
    result = check(*program, domain=Paths(longest=5), worlds_per_node=2000)
    assert not result.exhausted
    assert all_executions(program, trips=2, longest=5) <= at_exit(result)
