"""The analysis in words: operations, units and guards as a reader of the source would say them.

What the engine keeps for itself never gets out: the tags of choices, keys of symbols, what calling a method has proven.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import libcst as cst

from ampclip_lint.amp.faults import OF_STAGES, FaultKind, Mark
from ampclip_lint.amp.machine import Buffer, Outcome, Stage, State, evaluate, run
from ampclip_lint.amp.ops import (
    OPERATIONS,
    Backward,
    Clip,
    ClipKind,
    Edit,
    Escape,
    Freeze,
    Hook,
    Multiply,
    NewOptimizer,
    NewScaler,
    Op,
    OptimizerStep,
    RaiseOnNonfinite,
    Read,
    Retire,
    Scale,
    ScalerStep,
    Store,
    Unscale,
    Update,
    ZeroGrad,
)
from ampclip_lint.amp.units import Age, Ref, Unit, Units
from ampclip_lint.diagnostics import Span, TraceStep
from ampclip_lint.flow.facts import (
    Above,
    Atom,
    Below,
    Equals,
    IsNone,
    Learn,
    Residue,
    SetConstant,
    Shift,
    Subject,
    Truthy,
)
from ampclip_lint.flow.graph import Edge, Graph, Guard
from ampclip_lint.flow.solver import Visit

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import GradScalerDomain
    from ampclip_lint.amp.link import Linked

MAX_STEPS = 24
NO_GRADIENTS = "no gradients"

_CLIPS = {
    ClipKind.NORM: "by norm",
    ClipKind.VALUE: "by value",
    ClipKind.HAND: "by hand",
    ClipKind.ADAPTIVE: "adaptively",
}
#: Faults that are about what was done to another optimizer than the one that is wrong.
_SHARED = frozenset({FaultKind.CLIP_PARTIAL, FaultKind.UPDATE_BETWEEN_STEPS, FaultKind.DOUBLE_UNSCALE})
_DOUBTS = {
    "exception": "an exception is raised here",
    "given again": "the call gives the optimizer that there was",
    "zero rounds": "a loop is left without a single round",
}
_PATH = re.compile(r"[A-Za-z_][\w.]*(\[[\w'\".-]+\][\w.]*)*")

_COMPARISON = re.compile(r" (<|>|==|!=|<=|>=|in|is|and|or|not) |^not ")


# -- Names ------------------------------------------------------------------------------------------------------------


class Names:
    """How the source writes the objects and values of one function."""

    def __init__(self, linked: Linked) -> None:
        self.graph = linked.graph
        self.several_scalers = len(linked.scalers) > 1
        self.optimizers = linked.optimizers
        self._scaler_of = {atom.subject: scaler for scaler, atom in linked.enabled.items()}
        self._texts = {atom.subject: atom.subject.text for atom in self.graph.atoms() if atom.subject.text}
        self._names: dict[Ref, str] = {}
        for refs, what in ((linked.scalers, "scaler"), (linked.optimizers, "optimizer")):
            for ref in refs:
                self._names[ref] = self._name(ref, what, set(self._names.values()))

    def __getitem__(self, ref: Ref) -> str:
        """The plain name: ``self.scaler``, or ``the scaler`` where the source gives none."""
        return self._names.get(ref) or (ref.text if ref.text not in ("", "?") else "the optimizer")

    def quoted(self, ref: Ref) -> str:
        """The name in backticks; words that are no name stay as they are."""
        return _quoted(self[ref])

    def list(self, refs: Iterable[Ref]) -> str:
        """Several names."""
        return " and ".join(dict.fromkeys(map(self.quoted, refs)))

    def subject(self, subject: Subject) -> str | None:
        """What a fact speaks of, as the source writes it; ``None`` where the source has no word for it."""
        key = subject.key
        if isinstance(key, tuple) and key and key[0] in ("tag", "enabled"):
            return None
        return subject.text or self._texts.get(subject)

    def atom(self, atom: Atom, holds: bool) -> str | None:
        """A guard as source: ``not use_amp``, ``(i + 1) % n == 0``; ``None`` for what only the engine asks."""
        scaler = self._scaler_of.get(atom.subject)
        if scaler is not None:
            return f"{self[scaler]}.is_enabled()" if holds else f"not {self[scaler]}.is_enabled()"
        if atom.subject.key == "amp-switch":
            return "mixed precision" if holds else "not mixed precision"
        text = self.subject(atom.subject)
        if text is None:
            return None
        modulus = atom.predicate.modulus if isinstance(atom.predicate, Residue) else None
        if isinstance(modulus, Subject):
            modulus = self.subject(modulus)
            if modulus is None:
                return None
        return _condition(text, atom, modulus, holds)

    def where(self, atom: Atom, holds: bool) -> str | None:
        """A guard for a sentence: ``where `use_amp` is false``."""
        scaler = self._scaler_of.get(atom.subject)
        if scaler is not None:
            return f"where {self.quoted(scaler)} is {'enabled' if holds else 'disabled'}"
        if atom.subject.key == "amp-switch":
            return f"where mixed precision is {'on' if holds else 'off'} (presumed to be one switch)"
        text = self.atom(atom, holds)
        if text is None:
            return None
        if atom.predicate == Truthy():
            subject = self.subject(atom.subject) or ""
            if holds and _COMPARISON.search(subject):
                return f"where `{subject}`"
            return f"where `{subject}` is {'true' if holds else 'false'}"
        return f"where `{text}`"

    def scale(self, scaler: Ref) -> str:
        """``S``, or whose S where there are several."""
        return f"S({self[scaler]})" if self.several_scalers else "S"

    def units(self, units: Units) -> str:
        """A set of units: ``no gradients``, ``S``, ``1 + S``."""
        return " + ".join(sorted(map(self._unit, units))) or NO_GRADIENTS

    def buffer(self, buffer: Buffer) -> str:
        """What the gradients of an optimizer are."""
        maybe = buffer.maybe - buffer.units
        if not buffer.units:
            if buffer.unknown:
                return "unknown"
            return f"perhaps {self.units(maybe)}" if maybe else NO_GRADIENTS
        text = self.units(buffer.units) + (f", perhaps + {self.units(maybe)}" if maybe else "")
        # What a later backward added is not applied.
        return f"{text} (applied)" if buffer.applied and len(buffer.units) == 1 else text

    def _unit(self, unit: Unit) -> str:
        if not unit.powers or not self.several_scalers:
            return str(unit)
        old = "_old" if unit.age is Age.STALE else ""
        return "·".join(
            f"{self.scale(scaler)}{old}" + (f"^{power}" if power != 1 else "") for scaler, power in unit.powers
        )

    def _name(self, ref: Ref, what: str, taken: set[str]) -> str:
        candidates = [ref.text] if ref.text not in ("", "?") else []
        # In the function itself before its helpers: there a parameter stands for the object.
        places = ((node, node.place is not None and node.place.frame.caller is not None) for node in self.graph.nodes)
        for node, _ in sorted(places, key=lambda pair: pair[1]):
            text = _written(node.op, node.place, ref)
            if text is not None and _PATH.fullmatch(text):
                candidates.append(text)
        free = next((text for text in candidates if text not in taken), None)
        if free is not None:
            return free
        name, count = (candidates or [f"the {what}"])[0], 2
        if name not in taken:
            return name
        while f"{name} ({count})" in taken:
            count += 1
        return f"{name} ({count})"


_names: weakref.WeakKeyDictionary[GradScalerDomain, Names] = weakref.WeakKeyDictionary()


def names_of(domain: GradScalerDomain) -> Names:
    """The names of a function, made once."""
    found = _names.get(domain)
    if found is None:
        found = _names[domain] = Names(domain.linked)
    return found


def _quoted(name: str) -> str:
    if name.startswith("the "):
        return name
    name, bracket, count = name.partition(" (")
    return f"`{name}`{bracket}{count}"


def _written(op: Any, place: Any, ref: Ref) -> str | None:
    """How the call of an operation writes an object: its receiver, its first argument, or what it is assigned to."""
    if place is None:
        return None
    call = place.call
    match op:
        case NewScaler(scaler) if scaler == ref:
            return _assigned(place)
        case Scale(scaler) | Update(scaler) if scaler == ref:
            return _receiver(call)
        case Unscale(scaler, optimizer) | ScalerStep(scaler, optimizer):
            if scaler == ref:
                return _receiver(call)
            if optimizer == ref and call is not None and call.args and not call.args[0].star:
                return _code(call.args[0].value)
        case OptimizerStep(optimizer) | ZeroGrad((optimizer,)) if optimizer == ref:
            func = call.func if call is not None else None
            if isinstance(func, cst.Attribute) and func.attr.value in ("step", "zero_grad"):
                return _receiver(call)
    return None


def _receiver(call: cst.Call | None) -> str | None:
    if call is None or not isinstance(call.func, cst.Attribute):
        return None
    if call.func.attr.value == "backward":  # `scaler.scale(loss).backward()`
        return _receiver(call.func.value) if isinstance(call.func.value, cst.Call) else None
    return _code(call.func.value)


def _assigned(place: Any) -> str | None:
    statement = place.statement
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        return _code(statement.targets[0].target)
    return _code(statement.target) if isinstance(statement, cst.AnnAssign) else None


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _condition(text: str, atom: Atom, modulus: object, holds: bool) -> str:
    """An answered question about something, as the source would ask it."""
    same, above, below = ("==", ">", "<") if holds else ("!=", "<=", ">=")
    match atom.predicate:
        case Truthy():
            return text if holds else f"not {_operand(text)}"
        case IsNone():
            return f"{text} is None" if holds else f"{text} is not None"
        case Residue(_, value):
            if isinstance(modulus, int) and (value == modulus - 1 or value > modulus // 2):
                value -= modulus
            # `i` is -1 modulo n where (i + 1) % n == 0.
            counter = _operand(text) if value >= 0 else f"({text} + {-value})"
            return f"{counter} % {_operand(str(modulus))} {same} {max(value, 0)}"
        case Equals(value):
            return _compared(text, atom, same, value)
        case Above(bound):
            return _compared(text, atom, above, _number(bound))
        case Below(bound):
            return _compared(text, atom, below, _number(bound))


def _compared(text: str, atom: Atom, sign: str, value: object) -> str:
    key = atom.subject.key
    if isinstance(key, tuple) and key[0] == "difference":
        if text.endswith(")") and " - (" in text:  # so written where there is another difference in it
            left, _, right = text[:-1].rpartition(" - (")
        else:
            left, _, right = text.rpartition(" - ")
        if value == 0:
            return f"{left} {sign} {right}"
        return f"{left} {sign} {right} {'+' if isinstance(value, int) and value > 0 else '-'} {str(value).lstrip('-')}"
    return f"{text} {sign} {value!r}"


def _number(bound: float) -> float:
    return int(bound) if float(bound).is_integer() else bound


def _operand(text: str) -> str:
    return text if re.fullmatch(r"[\w.]+(\([^()]*\)|\[[^\[\]]*\])*", text) else f"({text})"


# -- Operations -------------------------------------------------------------------------------------------------------


def describe(
    op: object, state: State, disabled: frozenset[Ref], names: Names, optimizers: frozenset[Ref] | None = None
) -> str | None:
    """What an operation does in a state, in a few words.

    ``None`` where it does nothing to gradients, or not to those of `optimizers` (where given).
    """

    def concerns(refs: Iterable[Ref]) -> bool:
        return optimizers is None or not optimizers.isdisjoint(refs)

    def whose(refs: tuple[Ref, ...], word: str) -> str:
        return f" {word} {names.list(refs)}" if optimizers is None and len(names.optimizers) > 1 and refs else ""

    match op:
        case NewScaler(scaler):
            return f"{names.quoted(scaler)} is made" if optimizers is None else None
        case Scale(scaler):
            return f"the loss is multiplied by {names.scale(scaler)}" if optimizers is None else None
        case Backward(loss, must, may):
            if not concerns((*must, *may)):
                return None
            certain = bool(must) if optimizers is None else concerns(must)
            verb = "adds" if certain else "may add"
            to = whose(must or may, "to")
            return f"backward {verb} {_contribution(evaluate(loss, state, disabled), names)}{to}"
        case Unscale(scaler, of):
            if not concerns((op.buffer,)):
                return None
            if scaler in disabled:
                return f"{_method(names, scaler, 'unscale_')} does nothing: the scaler is disabled"
            what = f"divides the gradients of {names.quoted(of)} by {names.scale(scaler)}"
            return f"{_method(names, scaler, 'unscale_')} {what}"
        case Clip(refs, bound, kind):
            if not concerns(refs):
                return None
            if bound is None:
                return f"the norm of the gradients{whose(refs, 'of')} is measured"
            return f"gradients{whose(refs, 'of')} are clipped {_CLIPS[kind]}"
        case ScalerStep(scaler, of):
            if not concerns((op.buffer,)):
                return None
            divides = scaler not in disabled and state.pair(scaler, of).stage is Stage.READY
            what = f"the gradients of {names.quoted(of)}"
            if divides:
                return f"{_method(names, scaler, 'step')} divides {what} by {names.scale(scaler)} and applies them"
            return f"{_method(names, scaler, 'step')} applies {what}"
        case OptimizerStep(of):
            return f"{_method(names, of, 'step')} applies the gradients" if concerns((of,)) else None
        case Update(scaler):
            if scaler in disabled:
                return None if optimizers is not None else f"{_method(names, scaler, 'update')} does nothing"
            return f"{_method(names, scaler, 'update')} may change {names.scale(scaler)}"
        case ZeroGrad(refs):
            return f"gradients{whose(refs, 'of')} are cleared" if concerns(refs) else None
        case Multiply(refs, factor):
            if not concerns(refs):
                return None
            by = names.units(evaluate(factor, state, disabled))
            return f"gradients{whose(refs, 'of')} are multiplied by hand" + ("" if by == "1" else f" (unit {by})")
        case Edit(refs):
            return f"gradients{whose(refs, 'of')} are edited by hand" if concerns(refs) else None
        case Read(value):
            return f"a number of unit {names.units(evaluate(value, state, disabled))} is read"
        case RaiseOnNonfinite():
            return "raises where the norm is not finite"
        case Hook(refs):
            return f"a hook clamps the gradients{whose(refs, 'of')}" if concerns(refs) else None
        case Escape(_, refs):
            return "code outside the program may change the gradients" + whose(refs, "of") if concerns(refs) else None
    return None


def outcome(op: Op, state: State, disabled: frozenset[Ref], node: int) -> Outcome:
    """What torch really does at an operation; also what the machine leaves to the protocol."""
    if isinstance(op, ScalerStep) and op.closure and op.scaler not in disabled:
        return Outcome(state, "Closure use is not currently supported if GradScaler is enabled.")
    return run(op, state, disabled, node)


def describe_error(op: Op, error: str, names: Names) -> str:
    """That an operation raises, with torch's text."""
    match op:
        case Unscale(scaler):
            call = _method(names, scaler, "unscale_")
        case ScalerStep(scaler):
            call = _method(names, scaler, "step")
        case Update(scaler):
            call = _method(names, scaler, "update")
        case _:
            call = "this"
    return f"{call} raises: {error.rstrip('.')}"


def _contribution(units: Units, names: Names) -> str:
    if all(unit.is_one for unit in units):
        return "gradients"
    text = names.units(units)
    return "scaled gradients" if text == "S" else f"gradients of unit {text}"


def _method(names: Names, ref: Ref, method: str) -> str:
    name = names[ref]
    return f"`{method}` of {_quoted(name)}" if " " in name else f"`{name}.{method}`"


def touched(op: object) -> tuple[Ref, ...]:
    """The optimizers whose gradients an operation is about."""
    match op:
        case Backward(_, must, may):
            return (*must, *may)
        case Unscale() | ScalerStep():
            return (op.buffer,)
        case OptimizerStep(optimizer):
            return (optimizer,)
        case Clip(refs) | Multiply(refs) | Edit(refs) | ZeroGrad(refs) | Hook(refs) | Escape(_, refs):
            return refs
    return ()


# -- Paths ------------------------------------------------------------------------------------------------------------


def trace_of(mark: Mark, visit: Visit[State], graph: Graph, domain: GradScalerDomain) -> tuple[TraceStep, ...]:
    """The steps from where the gradients were last empty (or the scaler last updated) to what shows the fault."""
    return _Story(mark, graph, domain).tell(visit)


class _Story:
    def __init__(self, mark: Mark, graph: Graph, domain: GradScalerDomain) -> None:
        self.mark = mark
        self.graph = graph
        self.domain = domain
        self.names = names_of(domain)
        self.focus = frozenset(mark.optimizers)
        self.steps: list[TraceStep] = []
        self.news = ""
        self._asked: set[Subject] = set()
        """What the path is asked on its way."""
        self._ahead: dict[int, frozenset[int]] = {}

    def tell(self, visit: Visit[State]) -> tuple[TraceStep, ...]:
        path = visit.path()
        seen: set[int] = set()
        ways = [taken(self.graph.edges[here.node], here, then) for here, then in itertools.pairwise(path)]
        self._asked = {guard.atom.subject for edge in ways if edge is not None for guard in edge.guards}
        for (here, then), edge in zip(itertools.pairwise(path), ways):
            self._count(here.node, seen)
            if self._starts_anew(here):
                self.steps.clear()
            self._operation(here, then.world.state)
            self._way(here, edge)
        self._count(visit.node, seen)
        self._last(visit)
        return tuple(self.steps[-MAX_STEPS:])

    def _count(self, node: int, seen: set[int]) -> None:
        """A node that the path has seen before: a loop has come round."""
        if node in seen:
            seen.clear()
            self.news = "in the next iteration, "
        seen.add(node)

    def _starts_anew(self, here: Visit[State]) -> bool:
        op = self.graph.nodes[here.node].op
        if self.mark.kind in OF_STAGES:
            return isinstance(op, Update) and op.scaler == self.mark.scaler and self._legal(op, here)
        return isinstance(op, ZeroGrad) and (not self.focus or not self.focus.isdisjoint(op.optimizers))

    def _legal(self, op: Op, here: Visit[State]) -> bool:
        return run(op, here.world.state, self.domain.disabled(here.world.facts)).error is None

    def _operation(self, here: Visit[State], after: State) -> None:
        node = self.graph.nodes[here.node]
        if node.place is None or not isinstance(node.op, OPERATIONS):
            return
        disabled = self.domain.disabled(here.world.facts)
        text = describe(node.op, here.world.state, disabled, self.names, self._audience())
        if text is not None:
            self._add(node.place.span, text, self._unit(node.op, after))

    def _last(self, visit: Visit[State]) -> None:
        """The operation that shows the fault: with what it makes of the gradients, or the error that it raises."""
        node = self.graph.nodes[visit.node]
        if node.place is None:
            return
        state, disabled = visit.world.state, self.domain.disabled(visit.world.facts)
        out = outcome(node.op, state, disabled, visit.node)
        if out.error is not None:
            self._add(node.place.span, describe_error(node.op, out.error, self.names), self._unit(node.op, state))
            return
        text = describe(node.op, state, disabled, self.names, self._audience())
        self._add(node.place.span, text or self.mark.kind.value, self._unit(node.op, out.state))

    def _audience(self) -> frozenset[Ref] | None:
        if not self.focus:
            return frozenset(self.domain.linked.optimizers)
        return frozenset(self.domain.linked.optimizers) if self.mark.kind in _SHARED else self.focus

    def _unit(self, op: object, state: State) -> str | None:
        refs = touched(op) or self.mark.optimizers or self.domain.linked.optimizers[:1]
        shown = next((ref for ref in refs if ref in self.focus), next(iter(refs), None))
        if shown is None:
            return None
        buffer = state.buffer(shown)
        if buffer.unknown and not buffer.units:
            return None
        return self.names.units(buffer.units or buffer.maybe)

    def _way(self, here: Visit[State], edge: Edge | None) -> None:
        """The guards of the edge that the path takes, as far as they are news."""
        node = self.graph.nodes[here.node]
        if edge is None or node.place is None:
            return
        if edge.doubt in _DOUBTS and not here.world.doubt:
            self._add(node.place.span, _DOUBTS[edge.doubt], None)
        if not self._matters(edge, self.graph.edges[here.node]):
            return
        for guard in edge.guards:
            text = self.names.where(guard.atom, guard.holds) if tested(guard, self.graph, here.node) else None
            if text is None:
                continue
            told = any(step.message.endswith(text) for step in self.steps)
            if not told or here.world.facts.value(guard.atom) is None:
                self._add(node.place.span, f"on the path {text}", None)

    def _matters(self, edge: Edge, edges: Iterable[Edge]) -> bool:
        """Whether another way out than `edge` would have led to something else that counts."""
        others = {other.target for other in edges} - {edge.target}
        return any(self._next(other) != self._next(edge.target) for other in others)

    def _next(self, node: int) -> frozenset[int]:
        """The nodes that count which come first from `node` on."""
        if node not in self._ahead:
            found: set[int] = set()
            seen, pending = {node}, [node]
            while pending:
                current = pending.pop()
                if self._counts(current):
                    found.add(current)
                    continue
                pending += (fresh := {edge.target for edge in self.graph.edges[current]} - seen)
                seen |= fresh
            self._ahead[node] = frozenset(found)
        return self._ahead[node]

    def _counts(self, node: int) -> bool:
        """Whether a node does something to gradients, or answers what the path is asked, or what enables a scaler."""
        op = self.graph.nodes[node].op
        match op:
            case SetConstant(target, _) | Shift(target, _, _) | Learn(Atom(target, _), _):
                kind = target.key[0] if isinstance(target.key, tuple) else ""
                # Which of several objects a name stands for shows in what is done to it.
                return kind == "enabled" or (kind != "tag" and target in self._asked)
            case NewScaler() | NewOptimizer() | Retire() | Freeze() | Store():
                return False
        return isinstance(op, OPERATIONS)

    def _add(self, span: Span, message: str, unit: str | None) -> None:
        step = TraceStep(span, self.news + message, unit)
        if self.steps and self.steps[-1] in (step, TraceStep(span, message, unit)):
            return
        self.steps.append(step)
        self.news = ""


def taken(edges: Iterable[Edge], here: Visit[State], then: Visit[State]) -> Edge | None:
    """The edge between two visits of a path."""
    fitting = [
        edge
        for edge in edges
        if edge.target == then.node
        and all(here.world.facts.value(guard.atom) in (guard.holds, None) for guard in edge.guards)
        and all(then.world.facts.value(guard.atom) in (guard.holds, None) for guard in edge.guards)
    ]
    # An edge in doubt only where the world is in doubt from here on.
    fitting.sort(key=lambda edge: bool(edge.doubt) != (bool(then.world.doubt) and not here.world.doubt))
    return fitting[0] if fitting else None


def tested(guard: Guard, graph: Graph, node: int) -> bool:
    """Whether the source asks this at a node. That calling a method proves an object to be there is no test."""
    if guard.atom.predicate != IsNone() or guard.holds:
        return True
    return any(
        other.atom == guard.atom and other.holds != guard.holds for edge in graph.edges[node] for other in edge.guards
    )
