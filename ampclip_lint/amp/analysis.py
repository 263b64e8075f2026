"""The analysis of a program: which functions are roots, their fixpoints, and the sites that rules ask about."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import libcst as cst

from ampclip_lint.amp.builder import ConstructorTooLarge, Draft, Place, TooLarge
from ampclip_lint.amp.callgraph import CallGraph, every_function, speaks_of_scaling
from ampclip_lint.amp.cycles import on_cycles
from ampclip_lint.amp.faults import PRECEDENCE, Fault, FaultKind, Mark
from ampclip_lint.amp.link import Linked, PresumeEnabled, link, live_variables
from ampclip_lint.amp.lower import Lowering
from ampclip_lint.amp.machine import Buffer, ScalerState, State, Table, as_if_disabled
from ampclip_lint.amp.models import Models
from ampclip_lint.amp.narrate import names_of, tested, trace_of
from ampclip_lint.amp.ops import (
    OPERATIONS,
    Backward,
    Clip,
    ClipKind,
    Edit,
    NewScaler,
    Op,
    OptimizerStep,
    Read,
    ScalerStep,
    Unscale,
    Update,
    ZeroGrad,
)
from ampclip_lint.amp.protocol import Protocol, Step
from ampclip_lint.amp.roots import Ahead, Told, all_roots
from ampclip_lint.amp.units import Ref, ScaleOf, Stored, UnitExpr, leaves
from ampclip_lint.diagnostics import Confidence, Position, Span
from ampclip_lint.flow.facts import Atom, Facts, Forget, Residue, SetConstant, Shift, Subject
from ampclip_lint.flow.graph import Node
from ampclip_lint.flow.solver import WORLDS_APART, Exploration, Visit, solve
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.concrete import Unreadable
from ampclip_lint.syntax.index import ClassInfo, FunctionInfo, ModuleIndex, ProgramIndex, parse
from ampclip_lint.syntax.prefilter import mentions_scaler
from ampclip_lint.syntax.source import SourceFile

_OF_MISSING_GRADIENTS = frozenset(
    {FaultKind.STEP_WITHOUT_GRADIENTS, FaultKind.CLIP_WITHOUT_GRADIENTS, FaultKind.UPDATE_WITHOUT_CHECK}
)


@dataclass(frozen=True)
class SyntaxProblem:
    """A file that does not parse; whether it mentions a scaler decides whether that is a finding."""

    span: Span
    message: str
    mentions_scaler: bool = True


@dataclass(frozen=True)
class Gap:
    """Something that was not analysed, and why."""

    span: Span
    message: str


class _Setting(NamedTuple):
    """What the facts of a world mean to operations: the scalers whose S is 1, the optimizers that there are not, and
    whether a test has shown that gradients are finite.
    """

    disabled: frozenset[Ref]
    absent: frozenset[Ref]
    finite: bool


class GradScalerDomain:
    """The solver's client: the protocol on the states of one function."""

    def __init__(self, linked: Linked) -> None:
        self.linked = linked
        self.protocol = Protocol(linked.clears, linked.checks)
        self.live = live_variables(linked.graph)
        # Worlds differ in many facts and in few that operations ask for: what is the same is worked out once.
        self._settings: dict[Facts, _Setting] = {}
        self._steps: dict[tuple[int, State, _Setting], Step] = {}

    def transfer(self, node: Node, state: State, facts: Facts) -> Iterator[tuple[State, tuple[tuple[Atom, bool], ...]]]:
        op = node.op
        if isinstance(op, PresumeEnabled):
            yield state, tuple((atom, op.holds) for atom in op.atoms if facts.value(atom) is None)
            return
        after = self.advance(node, state, facts).state
        if after is not None:
            yield after.without_variables(self.live[node.index]), ()

    def advance(self, node: Node, state: State, facts: Facts) -> Step:
        """The protocol's step at a node, for the optimizers that there are in this world."""
        key = (node.index, state, self._setting(facts))
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._advance(*key)
        return step

    def _advance(self, index: int, state: State, setting: _Setting) -> Step:
        op = self.linked.graph.nodes[index].op
        if isinstance(op, OptimizerStep) and setting.finite:
            op = replace(op, guarded=True)
        if setting.absent:
            for name in ("must", "may", "vague", "optimizers"):
                if hasattr(op, name):
                    op = replace(op, **{name: tuple(o for o in getattr(op, name) if o not in setting.absent)})
        if setting.disabled:
            state = as_if_disabled(state, setting.disabled)
        return self.protocol.advance(op, index, state, setting.disabled)

    def _setting(self, facts: Facts) -> _Setting:
        found = self._settings.get(facts)
        if found is None:
            absent = {
                o
                for o, guards in self.linked.optional.items()
                if any(facts.value(guard.atom) is guard.holds for guard in guards)
            }
            off = {s for s, atom in self.linked.enabled.items() if facts.value(atom) is False}
            finite = any(subject in facts for subject in self.linked.finite)
            found = self._settings[facts] = _Setting(self.linked.inert | off, frozenset(absent), finite)
        return found

    def disabled(self, facts: Facts) -> frozenset[Ref]:
        """The scalers whose S is 1 in a world."""
        return self._setting(facts).disabled

    def key(self, state: State) -> Hashable:
        return state

    def entry(self) -> State:
        """Unknown buffers and stage READY; what the function itself makes does not exist yet."""
        outside = self.linked.outside
        buffers = {o: Buffer(unknown=o in outside, absent=o not in outside) for o in self.linked.optimizers}
        scalers = {
            s: ScalerState(scaled=True, unknown=True) for s in self.linked.scalers if s not in self.linked.constructed
        }
        return State(buffers=Table(buffers), scalers=Table(scalers))


class Site:
    """An operation at its place in the source, with the faults that were found there."""

    def __init__(self, analysis: FunctionAnalysis, node: Node, found: Sequence[tuple[Mark, Visit[State]]]) -> None:
        self.op: Op = node.op
        self.node = node
        self._analysis = analysis
        self._found = found

    @property
    def span(self) -> Span:
        """Where the call stands. A clip or read by hand in a function that has nothing to do with scalers is shown
        at the call that enters it.
        """
        place: Place = self.node.place
        hand = isinstance(self.op, (Edit, Read)) or (
            isinstance(self.op, Clip) and self.op.kind in (ClipKind.HAND, ClipKind.ADAPTIVE)
        )
        frame = place.frame
        while hand and not frame.has_scaler_calls and frame.called_at is not None and frame.caller is not None:
            if frame.caller.called_at is None and not frame.caller.concrete.info.owner and frame.called_at.call is None:
                break
            if frame.called_at.call is None:
                break
            place, frame = frame.called_at, frame.caller
        return place.span

    def faults(self, kind: FaultKind) -> Iterator[Fault]:
        """The faults of one kind here, definite ones first."""
        marked = [(mark, visit) for mark, visit in self._found if mark.kind is kind]
        marked.sort(key=lambda pair: bool(pair[1].world.doubt))
        for mark, visit in marked:
            yield self._analysis.fault(mark, visit)


@dataclass(eq=False)
class FunctionAnalysis:
    """One root function with everything it calls: the graph, its fixpoint, and the faults by site."""

    info: FunctionInfo
    linked: Linked | None = None
    exploration: Exploration[State] | None = None
    domain: GradScalerDomain | None = None
    gaps: list[Gap] = field(default_factory=list)
    followed: set[FunctionInfo] = field(default_factory=set)
    """The functions that were read as part of it."""
    too_large: bool = False
    elsewhere: Told | None = None
    """What another process told of it; then there is nothing else."""
    tells: bool = True
    """Whether faults come with the path to them."""
    _marks: dict[int, list[tuple[Mark, Visit[State]]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.info.qualname.replace(".<locals>", "")

    @property
    def is_cut_off(self) -> bool:
        """Whether there were more paths than are followed."""
        if self.elsewhere is not None:
            return self.elsewhere.cut_off
        return self.exploration is not None and self.exploration.exhausted

    @property
    def span(self) -> Span:
        return info_span(self.info)

    @property
    def worlds(self) -> int:
        """How many worlds were told apart; a whole budget of them where the function was too much."""
        if self.elsewhere is not None:
            return self.elsewhere.worlds
        if self.gaps:
            return WORLDS_APART
        return self.exploration.worlds if self.exploration is not None else 0

    def sites(self, op_type: type | tuple[type, ...]) -> Iterator[Site]:
        """Every operation of a kind that some path reaches, in the order of the graph."""
        if self.linked is None or self.exploration is None:
            return
        for node in self.linked.graph.nodes:
            if isinstance(node.op, op_type) and node.index in self.exploration.visits:
                yield Site(self, node, self._marks.get(node.index, ()))

    def judged(self) -> set[FunctionInfo]:
        """The functions with an operation that some path reaches, of their own or of what they call."""
        found: set[FunctionInfo] = set(self.elsewhere.judged) if self.elsewhere is not None else set()
        for site in self.sites(OPERATIONS):
            frame = site.node.place.frame if site.node.place is not None else None
            while frame is not None:
                found.add(frame.info)
                frame = frame.caller
        return found

    def told(self) -> Told | None:
        """What there is to say of it where nothing is wrong."""
        if self._marks:
            return None
        gaps = tuple(
            (s.filename, s.start.row, s.start.column, s.end.row, s.end.column, s.function, gap.message)
            for gap in self.gaps
            for s in (gap.span,)
        )
        followed, judged = frozenset(self.followed), frozenset(self.judged())
        return Told(self.too_large, self.is_cut_off, self.worlds, gaps, followed, judged)

    def _keep_if_certain(self, index: int, visits: Sequence[Visit[State]]) -> None:
        """Gradients that were never made may be missing only because a loop's or a branch's condition is not
        understood: such a fault stays where every path has it, or where gradients were thrown away on the path.
        """
        marks = self._marks.get(index, [])
        marked = {id(visit) for mark, visit in marks if mark.kind in _OF_MISSING_GRADIENTS}
        if not marked:
            return
        update = any(mark.kind is FaultKind.UPDATE_WITHOUT_CHECK for mark, _ in marks)
        assert self.linked is not None and self.domain is not None
        scaler = getattr(self.linked.graph.nodes[index].op, "scaler", None)
        disabled = self.domain.disabled

        def says_nothing(visit: Visit[State]) -> bool:
            unknown = update and any(known.unknown for known in visit.world.state.scalers.values())
            inert = scaler is not None and scaler in disabled(visit.world.facts)
            return bool(visit.world.doubt) or visit.world.state.explained or unknown or inert

        assert self.exploration is not None
        seen_all = not self.exploration.exhausted
        if seen_all and all(id(visit) in marked or says_nothing(visit) for visit in visits):
            return
        self._marks[index] = [
            (mark, visit)
            for mark, visit in marks
            if mark.kind not in _OF_MISSING_GRADIENTS
            or any(visit.world.state.buffer(o).lost for o in mark.optimizers or visit.world.state.buffers)
            or (update and mark.scaler is not None and not visit.world.state.scaler(mark.scaler).scaled)
            or not self._skips_a_backward(mark, visit)
        ]

    def _clears_at_will(self, mark: Mark, visit: Visit[State]) -> bool:
        """Whether the path, since the step, went past a clearing under a condition that nothing else shows the value
        of: when that holds, the loop itself decides (a counter of its own kind), not a forgotten call.
        """
        assert self.linked is not None
        graph = self.linked.graph
        path = visit.path()
        again = max((i for i, here in enumerate(path) if here.node == mark.at), default=len(path) - 1)
        steps = (ScalerStep, OptimizerStep)
        start = max(
            (i for i, here in enumerate(path[:again]) if isinstance(graph.nodes[here.node].op, steps)), default=0
        )
        clears = [
            n.index for n in graph.nodes if isinstance(n.op, ZeroGrad) and set(n.op.optimizers) & set(mark.optimizers)
        ]
        # A clearing that belongs to another backward, in an arm of its own, is no clearing for this one.
        others = [n.index for n in graph.nodes if isinstance(n.op, (Backward, *steps)) and n.index != mark.at]
        # One that only comes behind another backward is none either: that one adds to them, too.
        first = (
            mark.at,
            *(
                b
                for b in others
                if isinstance(op := graph.nodes[b].op, Backward) and set(op.must) & set(mark.optimizers)
            ),
        )
        counters = {n.op.target for n in graph.nodes if isinstance(n.op, Shift)}
        # What each round gets anew (an element, the answer of a call) may itself count the batches of a window.
        renewed = {n.op.symbol for n in graph.nodes if isinstance(n.op, Forget)}
        asked_at: dict[Subject, set[int]] = {}
        for index, out in enumerate(graph.edges):
            for edge in out:
                for guard in edge.guards:
                    asked_at.setdefault(guard.atom.subject, set()).add(index)
        for here, after in zip(path[start:again], path[start + 1 :]):
            for edge in graph.edges[here.node]:
                lone = any(
                    (len(asked_at[g.atom.subject]) == 1 or g.atom.subject.mentions & renewed)
                    and g.atom.subject not in counters
                    for g in edge.guards
                )
                if edge.target != after.node and edge.target not in first and lone:
                    for clear in clears:
                        cleared = edge.target == clear or graph.leads_to(edge.target, clear, without=first)
                        if cleared and graph.leads_to(clear, mark.at, without=others):
                            return True
        return False

    def _may_be_applied(self, mark: Mark, visit: Visit[State]) -> bool:
        """Whether some path from here comes to what uses the gradients before they are cleared."""
        assert self.linked is not None
        graph = self.linked.graph
        mine = set(mark.optimizers)
        uses = [
            n.index
            for n in graph.nodes
            if (isinstance(n.op, (Unscale, ScalerStep)) and n.op.buffer in mine)
            or (isinstance(n.op, OptimizerStep) and n.op.optimizer in mine)
        ]
        clears = [n.index for n in graph.nodes if isinstance(n.op, ZeroGrad) and mine <= set(n.op.optimizers)]
        if not uses:
            return bool(mine & set(self.linked.outside))  # Whoever made it may step it.
        return visit.node in uses or any(graph.leads_to(visit.node, use, clears) for use in uses)

    def _is_guessed(self, mark: Mark) -> bool:
        """Whether the backward of a fault has a loss whose reach is unknown."""
        assert self.linked is not None
        op = self.linked.graph.nodes[mark.at].op
        return isinstance(op, Backward) and not set(mark.optimizers) & set(op.must)

    def _in_a_row(self, mark: Mark, visit: Visit[State]) -> Iterator[Mark]:
        """A fault of a backward, and of those that come directly before it with as much of a loss."""
        assert self.linked is not None
        graph = self.linked.graph
        yield mark
        path = [here.node for here in visit.path()]
        last = max((index for index, node in enumerate(path) if node == mark.at), default=0)
        op = graph.nodes[mark.at].op
        for node in reversed(path[:last]):
            before = graph.nodes[node].op
            alike = isinstance(before, Backward) and (before.loss, before.must, before.may) == (
                op.loss,
                op.must,
                op.may,
            )
            if not alike or len(graph.edges[node]) > 1:
                return
            yield replace(mark, at=node)

    def _skips_a_backward(self, mark: Mark, visit: Visit[State]) -> bool:
        """Whether the path, since gradients were cleared, took a branch past a backward that another arm has."""
        assert self.linked is not None
        graph = self.linked.graph
        path = visit.path()
        cleared = [
            index
            for index, here in enumerate(path[:-1])
            if isinstance(op := graph.nodes[here.node].op, ZeroGrad)
            and (not mark.optimizers or set(op.optimizers) & set(mark.optimizers))
        ]
        wanted = (Unscale, ScalerStep) if mark.kind is FaultKind.UPDATE_WITHOUT_CHECK else (Backward,)
        backwards = {
            n.index
            for n in graph.nodes
            if isinstance(n.op, wanted)
            and getattr(n.op, "scaler", mark.scaler) == mark.scaler
            and not (
                mark.kind is FaultKind.SCALER_MISMATCH
                and isinstance(n.op, Backward)
                and not _carries_scale_of(n.op.loss, mark.scaler)
            )
        }
        start = cleared[-1] if cleared else 0
        understood = self._choosing_steps
        if mark.kind is FaultKind.UPDATE_WITHOUT_CHECK:
            # Where a setting chooses the plain step, it is taken to disable the scaler, too.
            plain = any(isinstance(graph.nodes[here.node].op, OptimizerStep) for here in path)
            understood = frozenset() if plain else self._settings
        chosen = {
            guard.atom: guard.holds
            for here in path
            for guard in (here.edge.guards if here.edge is not None else ())
            if mark.kind is FaultKind.UPDATE_WITHOUT_CHECK and guard.atom in understood
        }
        # What comes behind the next clearing makes other gradients.
        ends = (visit.node, *(path[index].node for index in cleared))
        if mark.kind is FaultKind.BACKWARD_PLAIN:
            start = max((index for index, here in enumerate(path) if here.node == mark.at), default=start) + 1
            ends = (visit.node, *_this_round(path, start))  # So does what comes in another round.
        if any(here.node in backwards for here in path[start:-1]):
            return False  # There was one; what is missing went missing later.
        return self._takes_a_branch_past(backwards, path[start:], (visit.node, ends[1:]), understood, chosen)

    def _leaves_for_another(self, mark: Mark, visit: Visit[State]) -> bool:
        """Whether the path, since the backward that another optimizer's gradients came from, took a branch past one
        that may well make those of this optimizer.
        """
        assert self.linked is not None
        graph = self.linked.graph
        path = visit.path()
        made = {visit.world.state.buffer(o).backward_at for o in mark.optimizers}
        start = max((index for index, here in enumerate(path) if here.node in made), default=0)
        backwards = {n.index for n in graph.nodes if isinstance(n.op, Backward)} - made
        # What comes behind the next clearing makes other gradients.
        clears = [
            n.index for n in graph.nodes if isinstance(n.op, ZeroGrad) and set(n.op.optimizers) & set(mark.optimizers)
        ]
        return self._takes_a_branch_past(backwards, path[start:], (visit.node, clears), self._choosing_steps)

    def _takes_a_branch_past(
        self,
        goals: set[int],
        path: Sequence[Visit[State]],
        end: tuple[int, Sequence[int]],
        understood: frozenset[Atom],
        chosen: Mapping[Atom, bool] | None = None,
    ) -> bool:
        """Whether a branch on a path has another arm with one of these nodes, from where the path's end is reached;
        `end`: that end, and nodes that such an arm does not pass; `chosen`: what all arms have in common.
        """
        assert self.linked is not None
        graph = self.linked.graph
        goal, others_end = end
        asked = [
            {g.atom for edge in graph.edges[here.node] if edge.target == after.node for g in edge.guards}
            for here, after in pairwise(path)
        ]
        for index, (here, after) in enumerate(pairwise(path)):
            # A condition that leads here again behind the branch is understood: no other arm comes here. So is, for
            # gradients, one that chooses the step: those that the plain step is to apply are not made elsewhere.
            later = set().union(understood, *asked[index + 1 :])
            others = [
                edge.target
                for edge in graph.edges[here.node]
                if edge.target != after.node
                and not any(
                    g.atom.subject in self._tracked and here.world.facts.value(g.atom) is (not g.holds)
                    for g in edge.guards
                )
                and any(
                    not isinstance(g.atom.predicate, Residue) and g.atom not in later and tested(g, graph, here.node)
                    for g in edge.guards
                )
            ]
            for target in others:
                around = (goal, *others_end)
                there = (b for b in goals if target == b or graph.leads_to(target, b, around, chosen))
                # An arm with a step of its own is another way, and not a way round to this one.
                if any(graph.leads_to(b, goal, others_end, chosen) for b in there):
                    return True
        return False

    @cached_property
    def _settings(self) -> frozenset[Atom]:
        """The conditions on what was there before the function: whoever runs it chooses, for all of the run."""
        assert self.linked is not None
        graph = self.linked.graph
        moved = frozenset().union(
            *(
                frozenset((op.symbol,)) if isinstance(op, Forget) else op.target.mentions
                for node in graph.nodes
                if isinstance(op := node.op, (Forget, SetConstant, Shift))
            )
        )
        return frozenset(atom for atom in graph.atoms() if not atom.subject.mentions & moved)

    @cached_property
    def _tracked(self) -> frozenset[Subject]:
        """Variables that the function itself sets or counts: where their value is known, there is nothing to choose."""
        assert self.linked is not None
        ops = (node.op for node in self.linked.graph.nodes)
        return frozenset(op.target for op in ops if isinstance(op, (SetConstant, Shift)))

    @cached_property
    def _choosing_steps(self) -> frozenset[Atom]:
        """The conditions with different steps, the scaler's and a plain one, in their arms."""
        assert self.linked is not None
        graph = self.linked.graph
        kinds = [[n.index for n in graph.nodes if isinstance(n.op, kind)] for kind in (ScalerStep, OptimizerStep)]
        found: set[Atom] = set()
        for index, out in enumerate(graph.edges):
            if len(out) > 1 and any(edge.guards for edge in out):
                arms = [
                    {
                        kind
                        for kind, steps in enumerate(kinds)
                        if any(step == edge.target or graph.leads_to(edge.target, step, {index}) for step in steps)
                    }
                    for edge in out
                ]
                if {0} in arms and {1} in arms:
                    found.update(guard.atom for edge in out for guard in edge.guards)
        return frozenset(found)

    def _is_remade(self, node: Node) -> bool:
        """Whether a scaler lives for one step: made in the loop that steps once a round, or in a call that does."""
        assert self.linked is not None
        graph = self.linked.graph
        steps = [n.index for n in graph.nodes if isinstance(n.op, ScalerStep) and n.op.scaler == node.op.scaler]
        updates = [n.index for n in graph.nodes if isinstance(n.op, Update) and n.op.scaler == node.op.scaler]
        assert self.domain is not None and self.exploration is not None
        live = any(
            node.op.scaler not in self.domain.disabled(visit.world.facts)
            for index in steps
            for visit in self.exploration.at(index)
        )
        restored = any(graph.nodes[index].op.restores for index in updates)
        if (
            not live
            or not updates
            or restored
            or not on_cycles(graph, without=node.index).isdisjoint((*steps, *updates))
        ):
            return False
        if graph.on_cycle(node.index):
            return any(graph.leads_to(node.index, index) and graph.leads_to(index, node.index) for index in updates)
        # A scaler that lives for one call: made, used and left in the same activation of a function.
        frame = node.place.frame
        same = any(graph.nodes[index].place.frame is frame for index in (*steps, *updates))
        return same and not isinstance(frame.info.node, ast.Module)

    def found(self) -> Iterator[tuple[Site, Mark, Visit[State]]]:
        """Every mark with its site."""
        assert self.linked is not None or not self._marks
        for index, marks in self._marks.items():
            assert self.linked is not None
            site = Site(self, self.linked.graph.nodes[index], marks)
            for mark, visit in marks:
                yield site, mark, visit

    def keep(self, wanted: Callable[[Site, Mark], bool]) -> None:
        """Drop the marks that are not wanted."""
        for index, marks in list(self._marks.items()):
            assert self.linked is not None
            site = Site(self, self.linked.graph.nodes[index], marks)
            self._marks[index] = [(mark, visit) for mark, visit in marks if wanted(site, mark)]

    def fault(self, mark: Mark, visit: Visit[State]) -> Fault:
        assert self.linked is not None and self.domain is not None
        names = names_of(self.domain)
        subject = ", ".join(dict.fromkeys(names[o] for o in mark.optimizers)) or "gradients"
        return Fault(
            mark.kind,
            Confidence.POSSIBLE if visit.world.doubt else Confidence.DEFINITE,
            trace_of(mark, visit, self.linked.graph, self.domain) if self.tells else (),
            subject,
            names[mark.scaler] if mark.scaler is not None else "scaler",
        )

    def find_faults(self) -> None:
        """The one pass after the fixpoint that asks every world what is wrong at its operation."""
        assert self.linked is not None and self.exploration is not None and self.domain is not None
        for index, visits in self.exploration.visits.items():
            node = self.linked.graph.nodes[index]
            if not isinstance(node.op, OPERATIONS):
                continue
            for visit in visits:
                if isinstance(node.op, NewScaler) and self._is_remade(node):
                    self._marks.setdefault(index, []).append(
                        (Mark(FaultKind.SCALER_RECREATED, index, (), node.op.scaler), visit)
                    )
                for mark in self.domain.advance(node, visit.world.state, visit.world.facts).marks:
                    if mark.kind is FaultKind.ZERO_GRAD_MISSING and self._clears_at_will(mark, visit):
                        continue
                    guessed = mark.kind is FaultKind.BACKWARD_PLAIN and self._is_guessed(mark)
                    if (guessed or mark.kind is FaultKind.SCALER_MISMATCH) and self._skips_a_backward(mark, visit):
                        continue  # That of the step's own loss; what another loss left is not what is meant here.
                    if mark.kind is FaultKind.UPDATE_MID_ACCUMULATION and not self._may_be_applied(mark, visit):
                        continue
                    left = not any(visit.world.state.buffer(o).units for o in mark.optimizers)
                    if mark.kind is FaultKind.UPDATE_BETWEEN_STEPS and left and self._leaves_for_another(mark, visit):
                        continue
                    for one in self._in_a_row(mark, visit) if guessed else (mark,):
                        self._marks.setdefault(one.at, []).append((one, visit))
            self._keep_if_certain(index, visits)
        self._tell_missing_gradients_once()

    def _tell_missing_gradients_once(self) -> None:
        """Where a step has no gradients, that the clips on the way had none is no finding of its own."""
        passed: set[int] = set()
        for marks in self._marks.values():
            for mark, visit in marks:
                if mark.kind is FaultKind.STEP_WITHOUT_GRADIENTS and not visit.world.doubt:
                    passed.update(here.node for here in visit.path())
        for index in passed & self._marks.keys():
            self._marks[index] = [
                (mark, visit) for mark, visit in self._marks[index] if mark.kind is not FaultKind.CLIP_WITHOUT_GRADIENTS
            ]


@dataclass
class ProgramAnalysis:
    """What was found out about a program."""

    functions: Sequence[FunctionAnalysis]
    syntax_errors: Sequence[SyntaxProblem]
    index: ProgramIndex


def analyse_program(
    files: Sequence[SourceFile],
    only: str | None = None,
    entries: Collection[str] | None = None,
    models: Mapping[str, str] | None = None,
    roots: Collection[tuple[str, str]] | None = None,
    jobs: int = 1,
) -> ProgramAnalysis:
    """
    Analyse files as one program; `only`: the qualified name of a function to read as the sole root; `entries`: the
    files whose functions are read for their own sake, by default all; `models`: texts that stand for modules, by their
    dotted names; `roots`: the functions to read as roots, by file and name, if those are known; `jobs`: how many
    processes may analyse. Of functions that others than this one analysed, only those with faults can be looked into.
    """
    modules: list[ModuleIndex] = []
    problems: list[SyntaxProblem] = []
    for file in files:
        try:
            modules.append(ModuleIndex(file, parse(file)))
        except SyntaxError as error:
            row, column = error.lineno or 1, error.offset or 1
            position = Position(row, max(1, column))
            problems.append(
                SyntaxProblem(
                    Span(file.name, position, position), error.msg or "invalid syntax", mentions_scaler(file.text)
                )
            )
        except (ValueError, RecursionError, MemoryError) as error:
            position = Position(1, 1)
            # Python's own parser gives up with one of the last two, which one depends on the version.
            text = str(error) if isinstance(error, ValueError) else "nested too deeply for Python to parse"
            problems.append(SyntaxProblem(Span(file.name, position, position), text, mentions_scaler(file.text)))
    stands = Models(models or {})
    program = ProgramIndex(modules, stands)
    modelled = {module: stands.used_by(module) for module in modules}

    def takes_part(info: FunctionInfo) -> bool:
        return speaks_of_scaling(info) or bool(modelled[info.module] and info.words & modelled[info.module])

    functions: list[FunctionAnalysis] = []
    if roots is not None:
        named = [(info, info_span(info).filename) for info in every_function(program)]
        wanted = [info for info, file in named if (file, info.qualname.replace(".<locals>", "")) in roots]
        functions = [analyse_function(info, program) for info in wanted]
        _one_fault_a_site(functions)
        return ProgramAnalysis(functions, problems, program)
    if only is not None:
        wanted = [
            info
            for info in every_function(program)
            if info.qualname.replace(".<locals>", "") == only and (entries is None or info.module.file.name in entries)
        ]
        functions = [analyse_function(info, program) for info in wanted]
        _one_fault_a_site(functions)
        return ProgramAnalysis(functions, problems, program)
    calls = CallGraph(program, takes_part)
    ahead = Ahead(calls, partial(analyse_function, program=program), jobs)

    def analyse(info: FunctionInfo) -> FunctionAnalysis:
        known = ahead.take(info)
        if isinstance(known, Told):
            return _as_told(info, known)
        return known if isinstance(known, FunctionAnalysis) else analyse_function(info, program)

    functions += all_roots(calls, entries, analyse, _not_tried, ahead.look)
    _one_fault_a_site(functions)
    return ProgramAnalysis(functions, problems, program)


def _as_told(info: FunctionInfo, told: Told) -> FunctionAnalysis:
    """A root in which another process found nothing wrong."""
    gaps = [
        Gap(Span(file, Position(row, column), Position(end_row, end_column), function), message)
        for file, row, column, end_row, end_column, function, message in told.gaps
    ]
    return FunctionAnalysis(info, gaps=gaps, followed=set(told.followed), too_large=told.too_large, elsewhere=told)


def _not_tried(info: FunctionInfo) -> FunctionAnalysis:
    reason = f"`{info.name}` was not tried: others of its file are too large"
    return FunctionAnalysis(info, gaps=[Gap(info_span(info), reason)])


def _one_fault_a_site(functions: Sequence[FunctionAnalysis]) -> None:
    """Where several faults meet at one call, in one function or seen from several, the first in precedence stays."""
    best: dict[Span, tuple[bool, int]] = {}
    order = {kind: rank for rank, kind in enumerate(PRECEDENCE)}
    for function in functions:
        for site, mark, visit in function.found():
            rank = (bool(visit.world.doubt), order[mark.kind])
            best[site.span] = min(best.get(site.span, rank), rank)
    for function in functions:
        function.keep(lambda site, mark: order[mark.kind] == best[site.span][1])


def analyse_function(info: FunctionInfo, program: ProgramIndex) -> FunctionAnalysis:
    """Lower, link, solve and judge one root."""
    result = FunctionAnalysis(info)
    try:
        lowering = _lowered(info, program)
    except TooLarge:
        result.too_large = True
        result.gaps.append(Gap(result.span, f"`{result.name}` is too large to follow with all that it calls"))
        return result
    except Unreadable as error:
        result.gaps.append(Gap(result.span, f"`{result.name}` could not be read: {error}"))
        return result
    except RecursionError:
        result.gaps.append(Gap(result.span, f"`{result.name}` could not be read: it is nested too deeply"))
        return result
    except cst.ParserSyntaxError as error:
        result.gaps.append(Gap(result.span, f"`{result.name}` could not be read: {type(error).__name__}"))
        return result
    result.followed = lowering.followed
    for place, message in lowering.gaps:
        result.gaps.append(Gap(place.span if isinstance(place, Place) else result.span, message))
    linked = link(lowering)
    if linked is None:
        return result
    result.linked = linked
    result.domain = GradScalerDomain(linked)
    result.exploration = _explored(result.domain)
    if result.exploration.exhausted:
        result.gaps.append(Gap(result.span, f"the paths of `{result.name}` are too many; some were not followed"))
    elif result.exploration.joined:
        result.gaps.append(
            Gap(result.span, f"the worlds of `{result.name}` were joined; findings behind are uncertain")
        )
    result.find_faults()
    return result


class _Oversized:
    """The classes of a program whose objects take too much to make."""

    def __init__(self, _program: ProgramIndex) -> None:
        self.classes: set[ClassInfo | None] = set()


def _lowered(info: FunctionInfo, program: ProgramIndex) -> Lowering:
    """One root with all that it calls. Where what makes its object is too large, the object is as if it were given;
    that is the same for all methods.
    """
    oversized = program.shared(_Oversized).classes
    constructs = info.owner not in oversized
    try:
        lowering = Lowering(program, constructs=constructs)
        lowering.lower_root(info, endless=False)
        if info.self_name is not None and _makes_one_step(lowering):
            lowering = Lowering(program, constructs=constructs)
            lowering.lower_root(info, endless=True)
    except ConstructorTooLarge:
        oversized.add(info.owner)
        return _lowered(info, program)
    return lowering


def _explored(domain: GradScalerDomain) -> Exploration[State]:
    """The fixpoint with all worlds told apart; if they are too many, with those of crowded nodes joined."""
    graph, entry = domain.linked.graph, domain.entry()
    exact = solve(graph, [entry], domain, worlds_per_node=WORLDS_APART, worlds_in_all=WORLDS_APART)
    return solve(graph, [entry], domain) if exact.exhausted else exact


def _makes_one_step(lowering: Lowering) -> bool:
    """Whether a method makes gradients and applies them once a call: then somebody calls it again and again."""
    graph = lowering.graph
    drafts = {n: graph.nodes[n].op.name for n in graph.reachable() if isinstance(graph.nodes[n].op, Draft)}
    backwards = [index for index, name in drafts.items() if name == "backward"]
    if not backwards or not set(drafts.values()) & {"scaler_step", "plain_step"}:
        return False
    return on_cycles(graph).isdisjoint(backwards)


def _this_round(path: Sequence[Visit[State]], end: int) -> set[int]:
    """The nodes before a place on a path that it comes past once before and not again behind it."""
    nodes: set[int] = set()
    for here in reversed(path[:end]):
        if here.node in nodes:
            break
        nodes.add(here.node)
    return nodes - {here.node for here in path[end:]}


def _carries_scale_of(expr: UnitExpr, scaler: Ref | None) -> bool:
    """Whether a loss may be scaled by a scaler."""
    return any(
        isinstance(leaf, Stored) or (isinstance(leaf, ScaleOf) and leaf.scaler == scaler) for leaf in leaves(expr)
    )


def info_span(info: FunctionInfo) -> Span:
    """The first line of a function."""
    row = getattr(info.node, "lineno", 1)
    column = getattr(info.node, "col_offset", 0) + 1
    name = "" if isinstance(info.node, ast.Module) else info.qualname.replace(".<locals>", "")
    return Span(info.module.file.name, Position(row, column), Position(row, column), name)
