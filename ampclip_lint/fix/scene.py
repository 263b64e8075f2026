"""What stands around a finding: the functions on its path, their calls by role, and which names can be used where.

Reads the text as it is written and claims nothing: whether a fix made of it is right, the analysis decides afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import libcst as cst

from ampclip_lint.diagnostics import Diagnostic
from ampclip_lint.fix.candidate import place_of
from ampclip_lint.fix.tree import PURE, Block, Call, Statement, Tree
from ampclip_lint.records import dataclass

_QUOTED = re.compile(r"`([^`]+)`")
_ROOT = re.compile(r"[A-Za-z_]\w*")
_CALLED = re.compile(r"(\w+)\s*\(")
_STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
_GUARD = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Pair:
    """A scaler and an optimizer, as the source writes them."""

    scaler: str
    optimizer: str


class Scene:
    """The surroundings of one finding. `tree_of` gives the file of a name, None where it can't be parsed."""

    def __init__(self, diagnostic: Diagnostic, tree_of: Callable[[str], Tree | None]) -> None:
        self.diagnostic = diagnostic
        self._tree_of = tree_of
        span = diagnostic.span
        tree = tree_of(span.filename)
        assert tree is not None
        self.tree = tree
        self.call = tree.call_at(*place_of(tree.source, span))
        self.statement = tree.at(place_of(tree.source, span)[0])
        named = [name for quoted in _QUOTED.findall(diagnostic.message) for name in quoted.split(", ")]
        #: The objects that the message names; `o (2)` is the second of what `o` stands for.
        self.named = list(dict.fromkeys(re.sub(r" \(\d+\)$", "", name) for name in named))

    # -- functions --------------------------------------------------------------------------------------------------

    @cached_property
    def trace(self) -> list[tuple[Tree, Statement]]:
        """The statements on the path to the finding, in its order."""
        found = []
        for step in self.diagnostic.trace:
            tree = self._tree_of(step.span.filename)
            statement = tree.at(place_of(tree.source, step.span)[0]) if tree is not None else None
            if tree is not None and statement is not None:
                found.append((tree, statement))
        return found

    @cached_property
    def functions(self) -> list[tuple[Tree, Statement | None]]:
        """The function of the finding, those on its path, those that call them, those of their classes, and those that
        all these call.
        """
        assert self.statement is not None
        found: dict[tuple[int, int], tuple[Tree, Statement | None]] = {}

        def add(tree: Tree, function: Statement | None) -> None:
            found.setdefault((id(tree), id(function)), (tree, function))

        add(self.tree, self.statement.function)
        for tree, statement in self.trace:
            add(tree, statement.function)
        for tree, function in list(found.values()):
            for caller in self._callers(tree, function):
                add(tree, caller.function)
        for tree, function in list(found.values()):
            if function is not None and function.block.owner is not None:
                for sibling in function.block.statements:
                    if isinstance(sibling.node, cst.FunctionDef):
                        add(tree, sibling)
        for tree, function in list(found.values()):
            made = [call for statement in tree.within(function) for call in statement.calls]
            # Torch's own methods are no calls of a function that happens to be called like them.
            called = {call.name for call in made if call.receiver in ("", "self") or call.name not in _PROTOCOL}
            for statement in tree.definitions(called):
                add(tree, statement)
        return list(found.values())

    @staticmethod
    def _callers(tree: Tree, function: Statement | None) -> Iterator[Statement]:
        """The statements of the same file that call a function, by its name."""
        if function is not None and isinstance(function.node, cst.FunctionDef):
            name = function.node.name.value
            owner = function.block.owner
            if name == "__call__":
                return  # whatever calls the object: the path shows it, or nobody knows
            for statement in tree.mentioning(name):
                for call in statement.calls:
                    method = owner is not None and isinstance(owner.node, cst.ClassDef)
                    if call.name == name and bool(call.receiver) == method and statement.function is not function:
                        yield statement
                        break

    def entering(self, function: Statement | None) -> Iterator[tuple[Tree, Statement]]:
        """The statements in whose call a function runs, as far as the path and the names show."""
        yield from ((tree, statement) for tree in self._trees for statement in self._callers(tree, function))

    @cached_property
    def _trees(self) -> list[Tree]:
        return list({id(tree): tree for tree, _ in self.functions}.values())

    # -- calls by role ----------------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> list[tuple[Tree, Call]]:
        """Every call of these functions, in the order of the text."""
        return [
            (tree, call)
            for tree, function in self.functions
            for statement in tree.within(function)
            for call in statement.calls
        ]

    def all_of(self, *names: str, pair: Pair | None = None) -> list[tuple[Tree, Call]]:
        """The calls of these methods, of a scaler and an optimizer where they are given."""
        return [
            (tree, call)
            for tree, call in self.calls
            if call.name in names
            and (pair is None or (call.receiver == pair.scaler and call.args[:1] in ((pair.optimizer,), ())))
        ]

    @cached_property
    def scalers(self) -> list[str]:
        """What is used as a scaler, those first that the message names."""
        used = [call.receiver for _, call in self.all_of("scale", "unscale_") if call.receiver]
        used += [call.receiver for _, call in self.all_of("step") if call.receiver and call.args]
        # Meters and progress bars are updated, too.
        updated = [call.receiver for _, call in self.all_of("update")]
        used += [name for name in updated if name in self.named or "scaler" in name.lower()]
        return self._named_first(name for name in used if not name.endswith(")"))

    @cached_property
    def optimizers(self) -> list[str]:
        """What is used as an optimizer, those first that the message names."""
        used = [call.args[0] for _, call in self.all_of("unscale_", "step") if call.args]
        used += [call.receiver for _, call in self.all_of("zero_grad")]
        used += [call.receiver for _, call in self.all_of("step") if not call.args]
        return self._named_first(name for name in used if name not in self.scalers and re.fullmatch(_NAME, name))

    def _named_first(self, used: Iterable[str]) -> list[str]:
        known = list(dict.fromkeys(used))
        return [name for name in self.named if name in known] + [name for name in known if name not in self.named]

    def pairs(self, tree: Tree, place: Statement) -> list[Pair]:
        """Scalers with optimizers that can be written at a place, those first that the message names together."""
        scalers = [name for name in self.scalers if self.is_bound(tree, place, name)]
        optimizers = [name for name in self.optimizers if self.is_bound(tree, place, name)]
        pairs = [Pair(scaler, optimizer) for scaler in scalers for optimizer in optimizers]
        return sorted(pairs, key=lambda pair: (pair.scaler not in self.named) + (pair.optimizer not in self.named))

    # -- names ------------------------------------------------------------------------------------------------------

    def is_bound(self, tree: Tree, place: Statement, expression: str) -> bool:
        """Whether every name of an expression has a value at a place, as far as the text shows."""
        roots = set(_GUARD.findall(_STRING.sub("", expression)))
        return all(self._is_known(tree, place, root.partition(".")[0]) for root in roots - _KEYWORDS)

    @staticmethod
    def _is_known(tree: Tree, place: Statement, name: str) -> bool:
        function = place.function
        inside: Statement | None = place
        while True:
            if function is not None:
                assert isinstance(function.node, cst.FunctionDef)
                if name in _parameters(function.node.params):
                    return True
            for statement in tree.binding(function, name):
                if name in _bound_by(statement) and (inside is None or statement.start < inside.start):
                    loop = isinstance(statement.node, cst.For)
                    if not loop or (inside is not None and statement in inside.enclosing):
                        return True
            if function is None:
                return False
            # What an enclosing function or the module binds, it may bind below this definition.
            inside, function = None, function.function

    # -- guards -----------------------------------------------------------------------------------------------------

    def missing_guards(self, place: Statement, call: Call) -> list[str] | None:
        """
        The conditions under which a call runs and `place` need not, both in one function; None where they can't be
        written at `place`.
        """
        around = set(map(id, place.arms))
        guards = list(call.guards)
        for arm in reversed(call.statement.arms):
            if id(arm) in around or arm.guard == "":
                continue
            if arm.guard is None or not _is_pure(arm.guard):
                return None
            guards.append(arm.guard)
        return guards


def common_block(left: Statement, right: Statement) -> Block | None:
    """The innermost block that holds both."""
    arms = {id(arm) for arm in left.arms}
    return next((arm for arm in right.arms if id(arm) in arms), None)


def member(block: Block, statement: Statement) -> Statement:
    """The statement of a block that another one is, or lies in."""
    while statement.block is not block:
        assert statement.block.owner is not None
        statement = statement.block.owner
    return statement


_NAME = r"""[A-Za-z_][\w.]*(?:\[(?:"[^"]*"|'[^']*'|\w+)\])*"""
_PROTOCOL = frozenset({"backward", "scale", "state_dict", "step", "unscale_", "update", "zero_grad"})
_KEYWORDS = frozenset(
    {"and", "False", "getattr", "hasattr", "in", "is", "isinstance", "len", "None", "not", "or", "True"}
)


def _is_pure(guard: str) -> bool:
    return all(name in PURE or name in _KEYWORDS for name in _CALLED.findall(guard)) and ":=" not in guard


def _parameters(parameters: cst.Parameters) -> set[str]:
    every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
    every += [star for star in (parameters.star_arg, parameters.star_kwarg) if isinstance(star, cst.Param)]
    return {parameter.name.value for parameter in every}


def _bound_by(statement: Statement) -> set[str]:
    """The names that a statement gives a value to."""
    node = statement.node
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return {node.name.value}
    targets: list[cst.CSTNode] = []
    if isinstance(node, cst.Assign):
        targets = [target.target for target in node.targets]
    elif isinstance(node, (cst.AnnAssign, cst.AugAssign, cst.For)):
        targets = [node.target]
    elif isinstance(node, cst.With):
        targets = [item.asname.name for item in node.items if item.asname is not None]
    elif isinstance(node, (cst.Import, cst.ImportFrom)) and not isinstance(node.names, cst.ImportStar):
        targets = [alias.asname.name if alias.asname else alias.name for alias in node.names]
    return {name for target in targets for name in _names_in(target)}


def _names_in(target: cst.CSTNode) -> Iterator[str]:
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _names_in(element.value)
