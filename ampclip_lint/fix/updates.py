"""Fixes of `update` and of what makes a scaler."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ampclip_lint.fix.candidate import SAFE, UNSAFE, Candidate, proposed
from ampclip_lint.fix.places import outward, steps_of
from ampclip_lint.fix.scene import Scene
from ampclip_lint.fix.tree import Statement

# --- AMP401, 402, 403, 405: update at another place


def update_later(scene: Scene) -> Iterator[Candidate | None]:
    """Move `update()` behind the last step of its window; or leave it to the one that is there."""
    assert scene.statement is not None
    call = scene.call
    if call is None or call.name != "update":
        return
    tree, statement = scene.tree, scene.statement
    early = tree.lifted(statement)
    gone = tree.remove(early)
    # With a new scale it is another call, and where that one belongs nobody can tell.
    kind = UNSAFE if call.args else SAFE
    others = [found for _, found in scene.all_of("update") if found.node is not call.node]
    if any(found.receiver == call.receiver for found in others):
        yield proposed("remove this `update()`, as there is another one", [gone], kind)
    code = tree.written(statement)
    if code is None:
        return
    message = "move this `update()` behind the last step"
    for _, step in reversed(steps_of(scene)):
        for place in outward(step):
            if place.function is statement.function and place is not statement:
                yield proposed(message, tree.move_behind(early, place, code), kind)
    for place in statement.enclosing if scene.diagnostic.code != "AMP405" else ():
        yield proposed(message, tree.move_behind(early, place, code), kind)
    for _, step in reversed(steps_of(scene)):
        for entered, caller in scene.entering(step.function):
            if caller is not statement and scene.is_bound(entered, caller, call.receiver):
                here = kind if caller.function is statement.function else UNSAFE
                for place in outward(caller):
                    yield proposed(message, [gone, entered.after(place, code)], here)
    for entered, caller in scene.entering(statement.function):
        names = [scaler for scaler in scene.scalers if scene.is_bound(entered, caller, scaler)]
        for place in outward(caller):
            for name in names[:2]:
                last = [found for found in place.block.statements if _calls_same(found, caller)][-1:]
                for behind in (place, *last):
                    yield proposed(message, [gone, entered.after(behind, [f"{name}.update()"])], UNSAFE)


def _calls_same(statement: Statement, caller: Statement) -> bool:
    return bool({call.name for call in statement.calls} & {call.name for call in caller.calls})


def update_always(scene: Scene) -> Iterator[Candidate | None]:
    """Let every way through the round come past an `update()`."""
    assert scene.statement is not None
    updates = [(tree, call) for tree, call in scene.all_of("update") if not call.args]
    named = [scaler for scaler in scene.scalers if scaler in scene.named] or scene.scalers
    # One that only some rounds come to, taken out of its condition.
    for tree, call in updates:
        statement = call.statement
        code = tree.written(statement)
        for other, step in reversed(steps_of(scene)):
            if step.function is statement.function and code is not None:
                message = "move `update()` to where every step comes past it"
                for owner in statement.enclosing:
                    if isinstance(owner.node, cst.If) and step.start < statement.start:
                        yield proposed(message, tree.move_behind(statement, owner, code), SAFE)
                edits = [tree.remove(statement), other.after(step, code)]
                yield proposed(message, edits, SAFE)
    for tree, step in steps_of(scene):
        for scaler in named[:2]:
            if scene.is_bound(tree, step, scaler):
                message = f"insert `{scaler}.update()` behind the step"
                for place in outward(step):
                    yield proposed(message, [tree.after(place, [f"{scaler}.update()"])], SAFE)
    exits = [
        (tree, statement)
        for tree, function in scene.functions
        for statement in tree.within(function)
        if isinstance(statement.node, (cst.Continue, cst.Return, cst.Break))
    ]
    inserts = []
    for tree, leave in exits:
        for scaler in named[:1]:
            if scene.is_bound(tree, leave, scaler):
                insert = tree.before(leave, [f"{scaler}.update()"])
                inserts.append(insert)
                yield proposed(f"insert `{scaler}.update()` where the step is skipped", [insert], SAFE)
    if len(inserts) > 1:
        yield proposed(f"insert `{named[0]}.update()` where the step is skipped", inserts, SAFE)


# --- AMP404


def make_once(scene: Scene) -> Iterator[Candidate | None]:
    """Make the scaler before the loop; what else the loop should begin anew is not known."""
    assert scene.statement is not None
    code = scene.tree.written(scene.statement)
    for place in scene.statement.enclosing:
        if code is not None:
            edits = [scene.tree.remove(scene.statement), scene.tree.before(place, code)]
            yield proposed("make the scaler before the loop", edits, UNSAFE)
