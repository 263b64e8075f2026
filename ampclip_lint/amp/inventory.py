"""What an analysis knows about a function as a training loop: objects, windows, clips, calls, and what was not decided.

Only reads; judges nothing. What a rule would say about a fault is none of its business.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.analysis import FunctionAnalysis, GradScalerDomain, info_span
from ampclip_lint.amp.builder import Place
from ampclip_lint.amp.cycles import on_cycles
from ampclip_lint.amp.faults import OF_STAGES, FaultKind, Mark
from ampclip_lint.amp.link import Linked
from ampclip_lint.amp.machine import Buffer, State
from ampclip_lint.amp.narrate import Names, describe, names_of, outcome, tested, touched
from ampclip_lint.amp.ops import (
    Backward,
    ClipKind,
    Edit,
    Escape,
    Multiply,
    NewScaler,
    Op,
    OptimizerStep,
    Read,
    ScalerStep,
    Unscale,
    Update,
    ZeroGrad,
)
from ampclip_lint.amp.ops import Clip as ClipOp
from ampclip_lint.amp.units import Age as UnitAge
from ampclip_lint.amp.units import Ref, Unit
from ampclip_lint.diagnostics import Span
from ampclip_lint.flow.facts import Facts, Residue
from ampclip_lint.flow.graph import Edge, Graph, Guard, Node
from ampclip_lint.flow.solver import Visit
from ampclip_lint.loops import Age, Call, Clip, Doubt, Held, History, Level, Loop, Moment, Scaler, Suspicion
from ampclip_lint.syntax.index import FunctionInfo, ModuleIndex, qualified

#: What makes a function a training loop.
_TRAINING = (Backward, Unscale, ScalerStep, OptimizerStep)
_STEPS = (ScalerStep, OptimizerStep)
#: What is told of a loop, call by call.
_TOLD = (NewScaler, Backward, Unscale, ClipOp, Multiply, Edit, *_STEPS, Update, ZeroGrad, Escape)
#: Faults of no consequence for what is applied.
_REMARKS = frozenset({FaultKind.CLIP_EACH, FaultKind.NORM_MISREAD})
#: The last events before a fault that a history keeps.
MAX_MOMENTS = 24


def training_loop(analysis: FunctionAnalysis) -> Loop | None:
    """The function as a training loop; None where nothing in it is made or applied under a scaler."""
    gaps = tuple(dict.fromkeys(Doubt(gap.span, gap.message) for gap in analysis.gaps))
    if analysis.linked is not None:
        return _Inventory(analysis, analysis.linked).loop(gaps)
    if not gaps:
        speaking = sorted(
            (info_span(info) for info in {analysis.info, *analysis.followed} if _speaks_of_scaling(info)),
            key=lambda span: (span.filename, span.start),
        )
        gaps = tuple(
            Doubt(span, "it speaks of loss scaling, but no scaler of torch is recognised") for span in speaking
        )
    return Loop(analysis.name, analysis.span, doubts=gaps) if gaps else None


def _speaks_of_scaling(info: FunctionInfo) -> bool:
    """Whether a function does what is done with a scaler, by its words; that one is made does not suffice."""
    return "unscale_" in info.words or info.words >= {"scale", "backward", "update"}


class _Inventory:
    def __init__(self, analysis: FunctionAnalysis, linked: Linked) -> None:
        assert analysis.domain is not None and analysis.exploration is not None
        self.analysis = analysis
        self.linked = linked
        self.graph = linked.graph
        self.domain = analysis.domain
        self.visits = analysis.exploration.visits
        self.names = names_of(analysis.domain)

    def loop(self, gaps: tuple[Doubt, ...]) -> Loop | None:
        if not any(self._reached(_TRAINING)) and not gaps:
            return None
        return Loop(
            self.analysis.name,
            self.analysis.span,
            tuple(map(self._scaler, self.linked.scalers)),
            tuple(self.names[optimizer] for optimizer in self.linked.optimizers),
            tuple(self._windows()),
            tuple(self._clips()),
            tuple(self._calls()),
            (*gaps, *dict.fromkeys(self._doubts())),
            tuple(dict.fromkeys(Suspicion(s.span, mark.kind in _REMARKS) for s, mark, _ in self.analysis.found())),
        )

    def _reached(self, kinds: type | tuple[type, ...]) -> Iterator[Node]:
        return (node for node in self.graph.nodes if isinstance(node.op, kinds) and node.index in self.visits)

    # -- objects ----------------------------------------------------------------------------------------------------

    def _scaler(self, scaler: Ref) -> Scaler:
        places = [n.place for n in self._reached(NewScaler) if n.op.scaler == scaler and n.place is not None]
        said = next((found for place in places if (found := _construction(place))), {})
        return Scaler(
            self.names[scaler],
            tuple(dict.fromkeys(place.span for place in places)),
            said.get("device"),
            said.get("enabled"),
            said.get("init_scale"),
            scaler in self.linked.inert,
        )

    # -- windows ----------------------------------------------------------------------------------------------------

    def _windows(self) -> Iterator[str]:
        """
        The conditions behind which a step comes before the next backward, and beside which it does not.

        A test before the backward, or one that chooses between two kinds of steps, is no such condition.
        """
        steps = {node.index for node in self._reached(_STEPS)}
        backwards = {node.index for node in self._reached(Backward)}
        followers = {index: [edge.target for edge in out] for index, out in enumerate(self.graph.edges)}
        behind = _reach(backwards, followers)
        stepping = _reach(steps, self.graph.predecessors(), but=backwards)
        repeated = on_cycles(self.graph)
        found: dict[str, None] = {}
        for index, out in enumerate(self.graph.edges):
            applies = [edge for edge in out if edge.target in stepping]
            if len(out) < 2 or not applies or index not in behind or index not in repeated:
                continue
            past = [edge for edge in out if edge not in applies]
            # Where every way leads to a step, one of them may be for what is left over behind the loop.
            chosen = (
                self._deciding(applies, past, index) if past else [filter(_counts, edge.guards) for edge in applies]
            )
            for guards in chosen:
                text = self._condition(guards, index)
                if text:
                    found[text] = None
        return iter(found)

    def _deciding(self, applies: Sequence[Edge], past: Sequence[Edge], node: int) -> list[Iterable[Guard]]:
        """For each way to a step the guards that keep a path from going past it."""
        turning = [[g for g in edge.guards if any(_turns(edge, g, other) for other in past)] for edge in applies]

        def is_open(guard: Guard) -> bool:
            # Where it is denied, something steps as well, for no reason that has a name.
            denied = Guard(guard.atom, not guard.holds)
            return any(
                denied in edge.guards and not self._condition((g for g in guards if g != denied), node)
                for edge, guards in zip(applies, turning)
            )

        return [[guard for guard in guards if not is_open(guard)] for guards in turning]

    def _condition(self, guards: Iterable[Guard], node: int) -> str:
        """Guards as source, but for the question whether an object is there at all."""
        objects = {guard.atom for guards in self.linked.optional.values() for guard in guards}
        asked = (guard for guard in guards if guard.atom not in objects and tested(guard, self.graph, node))
        texts = dict.fromkeys(self.names.atom(guard.atom, guard.holds) for guard in asked)
        return " and ".join(text for text in texts if text)

    # -- calls ------------------------------------------------------------------------------------------------------

    def _clips(self) -> Iterator[Clip]:
        found: dict[Span, Clip] = {}
        for node in self._reached(ClipOp):
            op, place = node.op, node.place
            if place is None:
                continue
            units = self._units(op.optimizers, (visit.world.state for visit in self.visits[node.index]))
            old = found.get(place.span)
            kind = "measured" if op.bound is None else op.kind.value
            found[place.span] = Clip(
                place.span, kind, _threshold(op, place), tuple(dict.fromkeys((*(old.units if old else ()), *units)))
            )
        return iter(found.values())

    def _units(self, optimizers: Sequence[Ref], states: Iterable[State]) -> tuple[str, ...]:
        texts = {self.names.buffer(state.buffer(o)): None for state in states for o in optimizers}
        return tuple(sorted(texts, key=lambda text: ("S" not in text, text)))

    def _calls(self) -> Iterator[Call]:
        """The calls in the order of the graph; several operations of one call are told together."""
        told: dict[tuple[Span, str], dict[str, dict[str, None]]] = {}
        for node in self._reached(_TOLD):
            if node.place is None:
                continue
            visits = self.visits[node.index]
            # What a disabled scaler does not do is told only where that is all there is.
            live = [visit for visit in visits if not self.domain.disabled(visit.world.facts)]
            for visit in live or visits:
                what = describe(node.op, visit.world.state, self.domain.disabled(visit.world.facts), self.names)
                if what is None:
                    continue
                after = _behind(node, visit, self.domain)
                units = told.setdefault((node.place.span, what), {})
                for optimizer in touched(node.op):
                    units.setdefault(self.names[optimizer], {})[self.names.buffer(after.buffer(optimizer))] = None
        for (span, what), by_optimizer in told.items():
            yield Call(span, what, tuple((name, tuple(texts)) for name, texts in by_optimizer.items()))

    # -- doubts -----------------------------------------------------------------------------------------------------

    def _doubts(self) -> Iterator[Doubt]:
        """Why a verdict of this loop is worth less than it seems."""
        if not self.linked.optimizers:
            yield Doubt(self.analysis.span, "no optimizer is known here, so no gradients are followed")
        for optimizer in self.linked.optimizers:
            yield from self._doubts_about(optimizer)

    def _doubts_about(self, optimizer: Ref) -> Iterator[Doubt]:
        name = self.names.quoted(optimizer)
        steps = [node for node in self._reached(_STEPS) if optimizer in touched(node.op)]
        backwards = [node for node in self._reached(Backward) if optimizer in touched(node.op)]
        held = [visit.world.state.buffer(optimizer) for node in steps for visit in self.visits[node.index]]
        if not steps:
            for node in backwards[:1]:
                assert node.place is not None
                yield Doubt(node.place.span, f"no step of {name} is seen: who applies these gradients is not known")
        elif not any(buffer.units for buffer in held) and any(map(_may_hold, held)):
            outside = [n for n in self._reached(Escape) if optimizer in n.op.optimizers and n.place is not None]
            for node in outside:
                yield Doubt(node.place.span, f"code that is not followed may change the gradients of {name} here")
            if not outside:
                place = steps[0].place
                span = place.span if place is not None else self.analysis.span
                why = "not known to reach it" if backwards else "not seen"
                yield Doubt(span, f"the gradients of {name} are unknown here: a backward that makes them is {why}")


def _may_hold(buffer: Buffer) -> bool:
    return buffer.unknown or bool(buffer.maybe)


def _turns(edge: Edge, guard: Guard, other: Edge) -> bool:
    """Whether denying one guard of an edge, and nothing else of it, may lead over another edge."""
    denied = Guard(guard.atom, not guard.holds)
    if denied not in other.guards:
        return False
    facts: Facts | None = Facts()
    for each in (*(g for g in edge.guards if g != guard), *other.guards):
        facts = facts.assume(each.atom, each.holds) if facts is not None else None
    return facts is not None


def _counts(guard: Guard) -> bool:
    """Whether a guard holds once in so many rounds."""
    return isinstance(guard.atom.predicate, Residue) and guard.holds


def _reach(start: Iterable[int], next_to: Mapping[int, Sequence[int]], but: Container[int] = ()) -> set[int]:
    """The nodes that lie on ways from some, these included, and that no way leads to through certain others."""
    seen = set(start)
    pending = list(seen)
    while pending:
        fresh = {node for node in next_to.get(pending.pop(), ()) if node not in seen and node not in but}
        seen |= fresh
        pending.extend(fresh)
    return seen


def _behind(node: Node, visit: Visit[State], domain: GradScalerDomain) -> State:
    """The state behind an operation as torch leaves it, not as the engine corrects it."""
    disabled = domain.disabled(visit.world.facts)
    return outcome(node.op, visit.world.state, disabled, node.index).state


# -- what a construction or a clip says of itself ---------------------------------------------------------------------


def _construction(place: Place) -> dict[str, str]:
    """The arguments of a scaler's construction as the source writes them; none where it is not torch's own."""
    call = place.call
    if call is None:
        return {}
    module: ModuleIndex = place.frame.info.module
    name = qualified(_code(call.func), module)
    if not api.is_scaler(name):
        return {}
    enabled_at, scale_at = api.SCALERS.get(name, (4, 0))
    positions = {enabled_at: "enabled", scale_at: "init_scale"}
    if scale_at == 1:
        positions[0] = "device"
    elif ".cuda." in name:
        positions[-1] = "device"
    found = {"device": '"cuda"'} if -1 in positions else {}
    for index, argument in enumerate(call.args):
        if argument.star:
            break
        key = argument.keyword.value if argument.keyword is not None else positions.get(index)
        if key in ("device", "enabled", "init_scale"):
            found[key] = _code(argument.value)
    return found


def _threshold(op: ClipOp, place: Place) -> str | None:
    """The bound of a clip as its call writes it."""
    call = place.call
    if op.bound is None or call is None or op.kind not in (ClipKind.NORM, ClipKind.VALUE):
        return None
    known = api.clip_call(qualified(_code(call.func), place.frame.info.module))
    position, keyword = known.bound if known is not None else (1, "max_norm")
    if len(call.args) == 1:
        position = 0  # A method of the model or the optimizer takes the bound alone.
    for index, argument in enumerate(call.args):
        if argument.star:
            return None
        if argument.keyword.value == keyword if argument.keyword is not None else index == position:
            return " ".join(_code(argument.value).split())
    return None


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


# -- histories --------------------------------------------------------------------------------------------------------


def history_of(analysis: FunctionAnalysis, mark: Mark, visit: Visit[State]) -> History | None:
    """
    The path to a fault as the units of the gradients see it, from where they were last cleared.

    None where the fault is about no gradients at all.
    """
    assert analysis.linked is not None and analysis.domain is not None
    graph, domain = analysis.linked.graph, analysis.domain
    names = names_of(domain)
    path = visit.path()
    begin = _beginning(mark, path, graph)
    events = [
        (index, event)
        for index, here in enumerate(path)
        if index >= begin
        and (event := _event(graph.nodes[here.node].op, mark)) is not None
        and graph.nodes[here.node].place is not None
    ][-MAX_MOMENTS:]
    shown = _shown(mark, [graph.nodes[path[index].node].op for index, _ in events], analysis.linked.optimizers)
    moments = []
    for index, event in events:
        here, last = path[index], index == len(path) - 1
        node = graph.nodes[here.node]
        state = _behind(node, here, domain) if last else path[index + 1].world.state
        held = tuple(_held(state.buffer(optimizer), names) for optimizer in shown)
        moments.append(Moment(node.place.span, event, held, here.node == mark.at))
    if not any(held.levels for moment in moments for held in moment.held):
        return None
    return History(tuple(names[optimizer] for optimizer in shown), tuple(moments))


def _beginning(mark: Mark, path: Sequence[Visit[State]], graph: Graph) -> int:
    """The last place before the fault where what it is about began."""
    for index in range(len(path) - 2, -1, -1):
        op = graph.nodes[path[index].node].op
        if mark.kind in OF_STAGES:
            if isinstance(op, Update) and op.scaler == mark.scaler:
                return index
        elif isinstance(op, ZeroGrad) and (not mark.optimizers or set(op.optimizers) & set(mark.optimizers)):
            return index
    return 0


def _shown(mark: Mark, ops: Sequence[Op], optimizers: Sequence[Ref]) -> tuple[Ref, ...]:
    """The optimizers that a history is about: those of the fault, and those that its events touch beside them."""
    beside = {ref for op in ops for ref in touched(op)}
    return tuple(ref for ref in optimizers if ref in mark.optimizers or ref in beside)


def _event(op: object, mark: Mark) -> str | None:
    """An operation in one word; None for what changes no gradients."""
    match op:
        case Backward():
            return "backward"
        case Unscale():
            return "unscale_"
        case ClipOp(_, bound):
            return "norm" if bound is None else "clip"
        case ScalerStep():
            return "scaler.step"
        case OptimizerStep():
            return "step"
        case Update():
            return "update"
        case ZeroGrad():
            return "zero_grad"
        case Multiply():
            return "multiply"
        case Edit():
            return "edit"
        case Escape():
            return "unknown code"
        case NewScaler() if mark.kind is FaultKind.SCALER_RECREATED:
            return "new scaler"
        case Read():
            return "read"
    return None


def _held(buffer: Buffer, names: Names) -> Held:
    units = buffer.units or buffer.maybe
    return Held(tuple(sorted(_level(unit, names) for unit in units)), buffer.unknown and not units)


def _level(unit: Unit, names: Names) -> Level:
    age = {UnitAge.CURRENT: Age.CURRENT, UnitAge.STALE: Age.STALE, UnitAge.MIXED: Age.MIXED}[unit.age]
    return Level(sum(power for _, power in unit.powers), names.units(frozenset({unit})), age)
