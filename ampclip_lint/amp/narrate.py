"""The path of a finding in words: scaled here, this branch taken, clipped here, with the gradient's unit at each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import Mark
from ampclip_lint.amp.machine import State
from ampclip_lint.amp.ops import (
    Backward,
    Clip,
    Escape,
    Multiply,
    OptimizerStep,
    ScalerStep,
    Unscale,
    Update,
    ZeroGrad,
)
from ampclip_lint.amp.units import Ref, units_text
from ampclip_lint.diagnostics import TraceStep
from ampclip_lint.flow.graph import Graph
from ampclip_lint.flow.solver import Visit

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import GradScalerDomain

MAX_STEPS = 24


def describe(op: object, before: State, after: State | None, optimizer: Ref | None) -> str | None:
    """What an operation does, in a few words; ``None`` where it does not concern the optimizer."""
    match op:
        case Backward(_, must, may):
            if optimizer is not None and optimizer not in (*must, *may):
                return None
            gained = after.buffer(optimizer).units if after is not None and optimizer is not None else frozenset()
            scaled = any(not unit.is_one for unit in gained)
            return "backward adds scaled gradients" if scaled else "backward adds gradients"
        case Unscale(scaler, of):
            return f"`{scaler}.unscale_` divides the gradients of `{of}` by S"
        case Clip(optimizers, bound, kind):
            if optimizer is not None and optimizer not in optimizers:
                return None
            return "norm is measured" if bound is None else f"gradients are clipped ({kind.value})"
        case ScalerStep(scaler, of):
            return f"`{scaler}.step` applies the gradients of `{of}`"
        case OptimizerStep(of):
            return f"`{of}.step()` applies the gradients"
        case Update(scaler):
            return f"`{scaler}.update()` may change S"
        case ZeroGrad(optimizers) if optimizer is None or optimizer in optimizers:
            return "gradients are cleared"
        case Multiply(optimizers) if optimizer is None or optimizer in optimizers:
            return "gradients are multiplied by hand"
        case Escape():
            return "code outside the program may have changed the gradients"
    return None


def trace_of(mark: Mark, visit: Visit[State], graph: Graph, domain: GradScalerDomain) -> tuple[TraceStep, ...]:
    """The steps from where the gradients were last empty to the operation that shows the fault."""
    optimizer = mark.optimizers[0] if mark.optimizers else None
    path = visit.path()
    steps: list[TraceStep] = []
    for index, here in enumerate(path):
        node = graph.nodes[here.node]
        if node.place is None:
            continue
        after = path[index + 1].world.state if index + 1 < len(path) else None
        if index + 1 < len(path):
            edge = next(
                (
                    e
                    for e in graph.edges[here.node]
                    if e.target == path[index + 1].node
                    and all(path[index + 1].world.facts.value(g.atom) in (g.holds, None) for g in e.guards)
                ),
                None,
            )
            shown = [str(g) for g in edge.guards if _readable(str(g))] if edge is not None else []
        else:
            shown = []
        if isinstance(node.op, ZeroGrad) and (optimizer is None or optimizer in node.op.optimizers):
            steps.clear()
        text = describe(node.op, here.world.state, after, optimizer) if node.op is not None else None
        if text is not None:
            state = after if after is not None else here.world.state
            unit = units_text(state.buffer(optimizer).units) if optimizer is not None else None
            steps.append(TraceStep(node.place.span, text, unit))
        for guard in shown:
            steps.append(TraceStep(node.place.span, f"on the path where `{guard}`", None))
    return tuple(steps[-MAX_STEPS:])


def _readable(text: str) -> bool:
    return not text.startswith(("(", "not ((")) and " == " + "0" not in text[:0] and "('" not in text and text.strip() not in ("", "not ()")
