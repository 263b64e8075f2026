"""Fixes of backwards and steps: by the scaler, once, with gradients."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ampclip_lint.diagnostics import Edit
from ampclip_lint.fix.candidate import SAFE, UNSAFE, Candidate, proposed
from ampclip_lint.fix.places import outward, steps_of
from ampclip_lint.fix.scene import Scene, member
from ampclip_lint.fix.tree import Block, Call, Statement, Tree

# --- AMP301, 302: step by the scaler


def step_by_scaler(scene: Scene) -> Iterator[Candidate | None]:
    """Let the scaler step: it unscales, looks for an overflow, and then calls `optimizer.step()`."""
    assert scene.statement is not None
    tree, call = scene.tree, scene.call
    if call is None or call.name != "step" or call.args:
        return  # a closure can't be handed on
    for scaler in scene.scalers[:3]:
        if not scene.is_bound(tree, call.statement, scaler):
            continue
        step = f"{scaler}.step({call.receiver})"
        message = f"replace `{call.receiver}.step()` by `{step}`"
        update = f"{scaler}.update()"
        added = f"{message} and add `{update}`"
        scaled = [found for _, found in scene.all_of("scale") if found.receiver == scaler]
        scaled = [found for found in scaled if found.statement.function is call.statement.function]
        guards = [scene.missing_guards(call.statement, found) for found in scaled]
        if not scaled or any(guard == [] for guard in guards):
            replaced = tree.edit(call.start, call.end, step)
            yield proposed(message, [replaced], SAFE)
            whole = tree.lifted(call.statement)
            for place in (call.statement, whole):
                yield proposed(added, [replaced, tree.after(place, [update])], SAFE)
            continue
        statement = call.statement
        if not call.is_statement or statement.shares_line:
            continue
        for guard in guards:
            if guard:
                test = " and ".join(guard)
                plain = f"{tree.step}{call.receiver}.step()"
                for inner, text in (([step], message), ([step, update], added)):
                    code = [f"if {test}:", *(f"{tree.step}{line}" for line in inner), "else:", plain]
                    content = f"\n{tree.indent(statement)}".join(code)
                    yield proposed(text, [tree.edit(statement.start, statement.end, content)], SAFE)
                break


# --- AMP303, 304


def scale_backward(scene: Scene) -> Iterator[Candidate | None]:
    """Scale the loss of the plain backward."""
    assert scene.statement is not None
    plain = [(tree, call) for tree, call in scene.all_of("backward") if ".scale(" not in tree.code(call.node)]
    first = [found for found in plain if scene.call is not None and found[1].node is scene.call.node]
    on_path = {id(statement) for _, statement in scene.trace}
    first += [found for found in plain if id(found[1].statement) in on_path and found not in first]
    for tree, call in first:
        for scaler in scene.scalers[:2]:
            if not scene.is_bound(tree, call.statement, scaler):
                continue
            scaled = _scaled(tree, call, scaler)
            if scaled is None:
                continue
            edit, message = scaled, f"scale the loss: `{scaled.content}`"
            # In an arm beside one that scales, or for when that fails, the plain backward may be meant, and the step be
            # what is wrong.
            other = call.statement.block.other
            beside = other is not None and any(
                found.receiver == scaler and member(other, found.statement) in other.statements
                for _, found in scene.all_of("scale")
                if _is_in(found.statement, other)
            )
            handled = any(isinstance(owner.node, cst.Try) for owner in call.statement.enclosing)
            kind = UNSAFE if beside or handled else SAFE
            for other_tree, dropped in scene.all_of("scale"):
                if dropped.is_statement and dropped.receiver == scaler:
                    gone = other_tree.remove(dropped.statement)
                    yield proposed(message, [edit, gone], kind)
            yield proposed(message, [edit], kind)


def _scaled(tree: Tree, call: Call, scaler: str) -> Edit | None:
    """Put the loss of a backward into `scaler.scale(...)`."""
    if call.receiver in ("torch.autograd", "autograd"):
        if not call.node.args or call.node.args[0].keyword is not None:
            return None
        start, end = tree.place(call.node.args[0].value)
        return tree.edit(start, end, f"{scaler}.scale({tree.code(call.node.args[0].value)})")
    if not isinstance(call.node.func, cst.Attribute):
        return None
    receiver = call.node.func.value
    if not receiver.lpar:
        start, end = tree.place(receiver)
        return tree.edit(start, end, f"{scaler}.scale({tree.code(receiver)})")
    loss = tree.code(receiver.with_changes(lpar=(), rpar=()))
    return tree.edit(call.start, tree.place(call.node.func.dot)[0], f"{scaler}.scale({loss})")


def _is_in(statement: Statement, block: Block) -> bool:
    return any(arm is block for arm in statement.arms)


def one_scaler(scene: Scene) -> Iterator[Candidate | None]:
    """Let the scaler that scaled also unscale and step; which of both was meant the text leaves open."""
    assert scene.statement is not None
    for wanted in scene.scalers:
        for wrong in scene.scalers:
            if wrong == wanted:
                continue
            wrongly = [(tree, call) for tree, call in scene.all_of("unscale_", "step") if call.receiver == wrong]
            named = [found for found in wrongly if found[1].args[:1] and found[1].args[0] in scene.named]
            alone = [found for found in wrongly if scene.call is not None and found[1].node is scene.call.node]
            for chosen in (alone, named, wrongly):
                usable = [found for found in chosen if scene.is_bound(found[0], found[1].statement, wanted)]
                if usable and len(usable) == len(chosen):
                    edits = [_receiver(tree, call, wanted) for tree, call in usable]
                    yield proposed(f"use `{wanted}`, which scaled these gradients", edits, UNSAFE)
    on_path = {id(statement) for _, statement in scene.trace}
    for wanted in scene.scalers:
        for tree, call in scene.all_of("scale"):
            bound = id(call.statement) in on_path and scene.is_bound(tree, call.statement, wanted)
            if bound and call.receiver != wanted:
                yield proposed(f"scale with `{wanted}`", [_receiver(tree, call, wanted)], UNSAFE)


def _receiver(tree: Tree, call: Call, name: str) -> Edit:
    assert isinstance(call.node.func, cst.Attribute)
    start, end = tree.place(call.node.func.value)
    return tree.edit(start, end, name)


# --- AMP305, 306, 308: which steps happen


def step_once(scene: Scene) -> Iterator[Candidate | None]:
    """Remove one of the two steps: which one decides what is applied, so a person has to look."""
    assert scene.statement is not None
    whole = scene.tree.lifted(scene.statement)
    if scene.call is not None:
        name = f"{scene.call.receiver}.{scene.call.name}({', '.join(scene.call.args)})"
        yield proposed(f"remove `{name}`", [scene.tree.remove(whole)], UNSAFE)
    for tree, call in scene.all_of("step"):
        if not call.args and call.receiver in scene.optimizers and call.is_statement:
            yield proposed(f"remove `{call.receiver}.step()`", [tree.remove(tree.lifted(call.statement))], UNSAFE)


def clear_later(scene: Scene) -> Iterator[Candidate | None]:
    """Move the `zero_grad()` that comes before the step: behind it, or before the backward."""
    assert scene.statement is not None
    on_path = [id(statement) for _, statement in scene.trace]
    for tree, call in scene.all_of("zero_grad"):
        if id(call.statement) not in on_path or not _throws_gradients_away(scene, call.statement):
            continue
        clear = tree.lifted(call.statement)
        code = tree.written(clear)
        if code is None:
            continue
        gone = tree.remove(clear)
        for other, backward in scene.all_of("backward"):
            for place in outward(backward.statement):
                if place.function is clear.function and clear not in (place, *place.enclosing):
                    message = f"move `{call.receiver}.zero_grad()` before the backward"
                    yield proposed(message, [gone, other.before(place, code)], UNSAFE)
        for other, step in steps_of(scene):
            if step.function is clear.function and clear not in step.enclosing:
                message = f"move `{call.receiver}.zero_grad()` behind the step"
                yield proposed(message, [gone, other.after(step, code)], UNSAFE)


def _throws_gradients_away(scene: Scene, clear: Statement) -> bool:
    """Whether a backward stands before the clearing; without one, what is missing is the backward."""
    assert scene.statement is not None
    if clear.function is scene.statement.function and clear.start > scene.statement.start:
        return False  # It belongs to the next round.
    made = [call for _, call in scene.all_of("backward") if call.statement.function is clear.function]
    if not made:
        return clear.function is scene.statement.function
    return any(call.statement.start < clear.start and scene.missing_guards(clear, call) == [] for call in made)


def clear_first(scene: Scene) -> Iterator[Candidate | None]:
    """Clear before the backward; that gradients should pile up over steps is the other reading."""
    assert scene.statement is not None
    for place in outward(scene.statement):
        for optimizer in scene.optimizers[:3]:
            if scene.is_bound(scene.tree, place, optimizer):
                code = f"{optimizer}.zero_grad()"
                insert = scene.tree.before(place, [code])
                yield proposed(f"insert `{code}` before the backward", [insert], UNSAFE)
