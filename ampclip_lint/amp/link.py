"""When a whole function is lowered, its objects are settled: scalers, optimizers, and who owns which parameters.

Decided by evidence, never by a name alone: constructed, annotated, or used as one. Drafts of operations become
operations; those of other things called scale, step or update vanish.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from functools import cached_property, partial
from typing import Any

from ampclip_lint.amp.builder import UNBOUND, Draft
from ampclip_lint.amp.lower import Lowering
from ampclip_lint.amp.ops import (
    JUDGED,
    AtStage,
    Backward,
    Clip,
    ClipKind,
    CompareReturnedNorm,
    Edit,
    Escape,
    Freeze,
    GradientsExist,
    Hook,
    Multiply,
    NewOptimizer,
    NewScaler,
    OptimizerStep,
    RaiseOnNonfinite,
    Read,
    Reenter,
    Retire,
    Scale,
    ScalerStep,
    Store,
    Unscale,
    Update,
    ZeroGrad,
)
from ampclip_lint.amp.units import (
    PLAIN,
    TRUE_GRADIENT,
    Bounded,
    Inverse,
    Known,
    OfGradients,
    Product,
    Ref,
    Root,
    ScaleOf,
    Stored,
    Sum,
    UnitExpr,
    leaves,
    stored_in,
)
from ampclip_lint.amp.values import Key, Sym
from ampclip_lint.flow.facts import Atom, Facts, Forget, IsNone, Learn, Residue, SetConstant, Shift, Subject, Truthy
from ampclip_lint.flow.graph import Edge, Graph, Guard, simplify
from ampclip_lint.flow.solver import constants_of
from ampclip_lint.records import dataclass

#: Ways that ask more than this are taken to be all that there are.
MAX_ATOMS = 8


@dataclass(frozen=True)
class PresumeEnabled:
    """The flag of an autocast: scalers whose making is not seen are presumed to have the same one."""

    atoms: tuple[Atom, ...]
    holds: bool

    @property
    def asks(self) -> tuple[Subject, ...]:
        return tuple(atom.subject for atom in self.atoms)


@dataclass
class Linked:
    """A function's graph of operations, with the objects that take part."""

    graph: Graph
    scalers: tuple[Ref, ...]
    optimizers: tuple[Ref, ...]
    enabled: dict[Ref, Atom]
    inert: frozenset[Ref]
    constructed: frozenset[Ref]
    clears: frozenset[Ref]
    checks: frozenset[Ref]
    outside: frozenset[Ref] = field(default_factory=frozenset)
    optional: dict[Ref, tuple[Guard, ...]] = field(default_factory=dict)
    """Optimizers that are not there where one of these holds."""
    finite: tuple[Subject, ...] = ()


def link(lowering: Lowering) -> Linked | None:
    """Settle objects and build the graph that the solver runs on; ``None`` where nothing can be at fault."""
    return _Linker(lowering).link()


@dataclass
class _Holders:
    """Which optimizers, by number, hold some or all of a module, and which are not known to hold anything."""

    inside: dict[Key, set[int]] = field(default_factory=dict)
    exactly: dict[Key, set[int]] = field(default_factory=dict)
    vague: set[int] = field(default_factory=set)


class _Linker:
    def __init__(self, lowering: Lowering) -> None:
        self.low = lowering
        self.graph = lowering.graph
        reachable = set(self.graph.reachable())
        self.drafts: list[tuple[int, Draft]] = [
            (node.index, node.op) for node in self.graph.nodes if node.index in reachable and isinstance(node.op, Draft)
        ]
        self.drafts = self._unified()
        self.stores: dict[Ref, list[UnitExpr]] = {}
        for _, draft in self.drafts:
            if draft.name == "store":
                self.stores.setdefault(draft.args[0], []).append(draft.args[1])
            elif draft.name == "clip" and len(draft.args) > 4 and draft.args[4] is not None:
                self.stores.setdefault(draft.args[4], []).append(OfGradients((draft.args[0],)))
        self.carrying = self._carrying_variables()
        self.scalers = self._find_scalers()
        every = self._find_optimizers()
        self.inner = self._find_wrappers(every)
        # A wrapper has an identity of its own at the scaler, but the gradients are those of the optimizer inside.
        self.optimizers = [optimizer for optimizer in every if optimizer not in self.inner]
        self.owned = self._find_owners()
        self._targets: dict[Ref, tuple[Ref, ...]] = {}

    def _unified(self) -> list[tuple[int, Draft]]:
        """Drafts with one reference for objects that are the same."""
        low = self.low
        canon = {low.refs[other]: low.refs[made] for other, made in low.same if other in low.refs and made in low.refs}
        if not canon:
            return self.drafts

        def one(arg: Any) -> Any:
            if isinstance(arg, Ref):
                return canon.get(arg, arg)
            if isinstance(arg, tuple) and all(isinstance(part, Ref) for part in arg):
                return tuple(canon.get(part, part) for part in arg)
            if isinstance(arg, ScaleOf):
                return ScaleOf(canon.get(arg.scaler, arg.scaler))
            if isinstance(arg, Product):
                return Product(one(arg.left), one(arg.right))
            if isinstance(arg, (Inverse, Root, Bounded)):
                return type(arg)(one(arg.of))
            if isinstance(arg, Sum):
                return Sum(tuple(map(one, arg.parts)))
            return arg

        fresh = [(index, Draft(draft.name, tuple(map(one, draft.args)))) for index, draft in self.drafts]
        for index, draft in fresh:
            self.graph.nodes[index].op = draft
        return fresh

    def _carrying_variables(self) -> frozenset[Ref]:
        """The variables that may ever hold something other than a plain number."""
        found: set[Ref] = set()
        grown = True
        while grown:
            grown = False
            for variable, values in self.stores.items():
                if variable not in found and any(_may_carry(value, found) for value in values):
                    found.add(variable)
                    grown = True
        return frozenset(found)

    # -- evidence ---------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> list[tuple[Any, ...]]:
        return [draft.args for _, draft in self.drafts if draft.name == name]

    def _find_scalers(self) -> list[Ref]:
        sure = set(self.low.scaler_evidence)
        backwards: set[Ref] = set()
        for args in self._named("backward"):
            backwards |= self.scales_in(args[0])
        scales = {args[0] for args in self._named("scale")}
        steps = {args[0] for args in self._named("scaler_step")}
        updates = {args[0] for args in self._named("maybe_update")}
        sure |= scales & backwards
        sure |= steps & updates
        sure |= scales & steps
        sure |= updates & self.low.asked_for_scale
        if self._named("backward"):
            sure |= scales & updates
        present = (
            scales
            | steps
            | updates
            | {args[0] for args in self._named("unscale")}
            | {a[0] for a in self._named("new_scaler")}
        )
        return sorted(sure & present, key=lambda ref: ref.index)

    def scales_in(self, expr: UnitExpr, seen: frozenset[Ref] = frozenset()) -> set[Ref]:
        """The scalers whose scale may be in a value."""
        found: set[Ref] = set()
        for leaf in leaves(expr):
            if isinstance(leaf, ScaleOf):
                found.add(leaf.scaler)
            elif isinstance(leaf, Stored) and leaf.variable not in seen:
                for stored in self.stores.get(leaf.variable, ()):
                    found |= self.scales_in(stored, seen | {leaf.variable})
        return found

    def _find_optimizers(self) -> list[Ref]:
        scalers = set(self.scalers)
        found = set(self.low.optimizer_evidence)
        given = {args[1] for name in ("unscale", "scaler_step") for args in self._named(name) if args[0] in scalers}
        in_question = set(self.low.in_question.values())
        found |= given - in_question
        cleared = {args[0] for args in self._named("zero")}
        modules = {self.low.refs[key] for key in self.low.module_evidence if key in self.low.refs}
        stepped = {args[0] for args in self._named("plain_step")} | (given & in_question)
        found |= (stepped & cleared) - modules
        found -= self.low.no_optimizers
        if not found and len(given & in_question) == 1:
            found = given & in_question  # What else would a trainer step?
        touched = {args[0] for name in ("zero", "plain_step") for args in self._named(name)}
        touched |= {args[1] for name in ("unscale", "scaler_step") for args in self._named(name)}
        found = {ref for ref in found if ref in touched}
        return sorted(found - scalers, key=lambda ref: ref.index)

    def _is_optimizer(self, ref: Ref) -> bool:
        return ref in self.optimizers or ref in self.inner

    def _find_wrappers(self, optimizers: list[Ref]) -> dict[Ref, Ref]:
        """Optimizers that hold another one: an attribute of the wrapper is the optimizer inside."""
        inside: dict[Ref, Ref] = {}
        keys = {self.low.keys[optimizer]: optimizer for optimizer in optimizers}
        holds: dict[Key, list[Ref]] = {}
        for key, ref in keys.items():
            if isinstance(key, tuple) and key[0] == "attr":
                holds.setdefault(key[1], []).append(ref)
        for owner, key in self.low.holds:
            if key in keys:
                holds.setdefault(owner, []).append(keys[key])
        for wrapper in optimizers:
            held = holds.get(self.low.keys[wrapper], [])
            if len(set(held)) == 1 and held[0] != wrapper:
                inside[wrapper] = held[0]
        first: dict[frozenset[Key], Ref] = {}
        for optimizer in optimizers:
            owned = self.low.owned.get(self.low.keys[optimizer])
            if owned and optimizer not in inside:
                # Two optimizers over the same parameters: two identities, one set of gradients.
                owner = first.setdefault(owned, optimizer)
                if owner != optimizer:
                    inside[optimizer] = owner
        return {wrapper: inner for wrapper, inner in inside.items() if inner not in inside}

    # -- ownership --------------------------------------------------------------------------------------------------

    def _find_owners(self) -> dict[Ref, frozenset[Key] | None]:
        owned: dict[Ref, frozenset[Key] | None] = {}
        for optimizer in self.optimizers:
            owned[optimizer] = self.low.owned.get(self.low.keys[optimizer])
        vague = [optimizer for optimizer in self.optimizers if owned[optimizer] is None]
        if len(self.optimizers) < 2 or not vague:
            return owned
        modules = self.modules
        taken: set[Key] = set()
        for optimizer in vague:
            index = _element_of(self.low.keys[optimizer])
            if index is not None:
                same = [key for key in modules if _element_of(key) == index]
                if len(same) == 1:
                    owned[optimizer] = frozenset(same)
                    taken.add(same[0])
        vague = [optimizer for optimizer in vague if owned[optimizer] is None]
        called = {key for args in self._named("backward") for key in args[1] or ()} | self.low.called
        pairs = self._by_stem(vague, [key for key in modules if key not in taken])
        # What is only called says less than what somebody treats as a module.
        vague = [optimizer for optimizer in vague if optimizer not in pairs]
        taken.update(pairs.values())
        free = [key for key in dict.fromkeys([*modules, *sorted(called, key=repr)]) if key not in taken]
        pairs.update(self._by_stem(vague, free))
        rest = [optimizer for optimizer in vague if optimizer not in pairs]
        free = [key for key in modules if key not in {*taken, *pairs.values()}]
        pairs.update(self._by_neighbour(rest, free))
        rest = [optimizer for optimizer in rest if optimizer not in pairs]
        free = [key for key in free if key not in pairs.values()]
        if len(rest) == len(free) == 1 and pairs:
            # All others have found theirs.
            pairs[rest[0]] = free[0]
        for optimizer, key in pairs.items():
            owned[optimizer] = frozenset((key,))
        return owned

    @cached_property
    def modules(self) -> list[Key]:
        """Everything whose parameters somebody names."""
        found: dict[Key, None] = {}
        for _, draft in self.drafts:
            if draft.name in ("clip", "multiply", "edit", "clear"):
                for key in self._owners_of(draft.args[0]) or ():
                    if not (isinstance(key, tuple) and key[0] == "optimizer" and len(key) == 2):
                        found[key] = None
            elif draft.name == "zero" and draft.args[0] not in self.optimizers:
                found[self.low.keys[draft.args[0]]] = None
        for key in self.low.module_evidence:
            found.setdefault(key, None)
        return [key for key in found if not any(outer in found for outer in _outwards(key) if outer != key)]

    def _by_stem(self, optimizers: list[Ref], modules: list[Key]) -> dict[Ref, Key]:
        """Pairs of an optimizer and a module whose names share a stem, where that is one to one."""
        # In `state.d_optimizer` and `state.g_optimizer` the words of both tell neither from the other.
        stems = {optimizer: _stems(self._name(optimizer)) for optimizer in self.optimizers}
        common = frozenset.intersection(*stems.values())
        fitting = {
            optimizer: [key for key in modules if _alike(stems[optimizer] - common, _stems(self._text(key)) - common)]
            for optimizer in optimizers
        }
        pairs = {optimizer: keys[0] for optimizer, keys in fitting.items() if len(keys) == 1}
        taken = Counter(pairs.values())
        return {o: key for o, key in pairs.items() if taken[key] == 1}

    def _name(self, optimizer: Ref) -> str:
        """The name that the program gave an optimizer, rather than a loop's name for whichever it is at."""
        key = self.low.keys[optimizer]
        given = isinstance(key, tuple) and key[0] in ("param", "global", "attr") and isinstance(key[-1], str)
        return key[-1] if given else optimizer.text  # type: ignore[index]

    def _text(self, key: Key) -> str:
        ref = self.low.refs.get(key)
        if ref is not None and ref.text != "?":
            return ref.text
        if isinstance(key, tuple) and key and isinstance(key[-1], str):
            return key[-1]
        if isinstance(key, tuple) and len(key) > 2 and isinstance(key[2], tuple):
            return str(key[2][-1])
        return ""

    def _by_neighbour(self, optimizers: list[Ref], modules: list[Key]) -> dict[Ref, Key]:
        """Pairs that the text shows: unscale_ of one directly before the clip of the other."""
        pairs: dict[Ref, Key] = {}
        last: Ref | None = None
        for _, draft in self.drafts:
            if draft.name == "unscale":
                last = draft.args[1]
            elif draft.name == "clip" and last is not None:
                owners = self._owners_of(draft.args[0])
                if owners is not None and len(owners) == 1 and last in optimizers:
                    (key,) = owners
                    if key in modules and pairs.setdefault(last, key) != key:
                        return {}
                last = None
            elif draft.name in ("backward", "scaler_step", "plain_step"):
                last = None
        return pairs if len(set(pairs.values())) == len(pairs) else {}

    def _owners_of(self, target: Ref) -> frozenset[Key] | None:
        key = self.low.keys[target]
        assert isinstance(key, tuple) and key[0] == "targets"
        owners: frozenset[Key] | None = key[1]
        return owners

    def owned_by(self, owners: frozenset[Key] | None, *, known: bool = False) -> tuple[Ref, ...]:
        """
        The optimizers whose parameters a set of parameters holds, as far as the program shows it: with `known` only
        those whose parameters are known, else all where the set has everything that anybody names.
        """
        if len(self.optimizers) == 1:
            return (self.optimizers[0],)
        if owners is None:
            return ()
        named, holders = self._named_modules, self._holders
        covers = bool(named) and not known and all(not owners.isdisjoint(_outwards(key)) for key in named)
        found = set(holders.vague if covers else ())
        for key in owners:
            found |= holders.inside.get(key, set())
            found.update(*(holders.exactly.get(outer, ()) for outer in _outwards(key)))
        return tuple(self.optimizers[index] for index in sorted(found))

    @cached_property
    def _named_modules(self) -> set[Key]:
        return set(self.modules) | {key for keys in self.owned.values() for key in keys or ()}

    @cached_property
    def _holders(self) -> _Holders:
        holders = _Holders()
        for index, optimizer in enumerate(self.optimizers):
            holders.inside.setdefault(("optimizer", self.low.keys[optimizer]), set()).add(index)
            mine = self.owned.get(optimizer)
            if mine is None:
                holders.vague.add(index)
            for key in mine or ():
                holders.exactly.setdefault(key, set()).add(index)
                for outer in _outwards(key):
                    holders.inside.setdefault(outer, set()).add(index)
        return holders

    def targets(self, target: Ref) -> tuple[Ref, ...]:
        if target not in self._targets:
            self._targets[target] = self.owned_by(self._owners_of(target))
        return self._targets[target]

    def _wholly_in(self, owners: frozenset[Key] | None) -> tuple[Ref, ...]:
        """Of several optimizers those all of whose parameters are in a set."""
        if owners is None or len(self.optimizers) < 2:
            return ()
        owned = {optimizer: self.owned.get(optimizer) for optimizer in self.optimizers}
        return tuple(o for o, mine in owned.items() if mine and all(not owners.isdisjoint(_outwards(m)) for m in mine))

    # -- operations -------------------------------------------------------------------------------------------------

    def settle(self, expr: UnitExpr) -> UnitExpr:
        """A unit expression over optimizers instead of sets of parameters."""
        match expr:
            case OfGradients(refs):
                resolved: list[Ref] = []
                for ref in refs:
                    resolved += self.targets(self._target_ref(ref))
                return OfGradients(tuple(resolved))
            case Stored(variable) if variable not in self.carrying:
                return PLAIN
            case ScaleOf(scaler) if scaler not in self.scalers:
                return PLAIN
            case Product(left, right):
                left, right = self.settle(left), self.settle(right)
                return right if left == PLAIN else left if right == PLAIN else Product(left, right)
            case Inverse(of):
                inner = self.settle(of)
                return PLAIN if inner == PLAIN else Inverse(inner)
            case Root(of):
                return Root(self.settle(of))
            case Bounded(of):
                return Bounded(self.settle(of))
            case Sum(parts):
                return Sum(tuple(map(self.settle, parts)))
        return expr

    def _target_ref(self, ref: object) -> Ref:
        if isinstance(ref, Ref):
            return ref
        return self.low.targets(ref)  # type: ignore[arg-type]

    def op(self, draft: Draft) -> Any:
        """The operation that a draft turns out to be; ``None`` where it is none of ours."""
        args = draft.args
        match draft.name:
            case "new_scaler":
                return NewScaler(args[0])
            case "new_optimizer":
                inner = self.inner.get(args[0], args[0])
                return NewOptimizer(inner) if inner in self.optimizers else None
            case "new_instance":
                return NewOptimizer(args[0]) if args[0] in self.optimizers else None
            case "retire":
                return Retire(args[0]) if args[0] in self.optimizers else None
            case "scale":
                return Scale(args[0], self.asks) if args[0] in self.scalers else None
            case "unscale":
                inner = self.inner.get(args[1])
                return Unscale(args[0], args[1], self.asks, inner) if args[0] in self.scalers else None
            case "scaler_step":
                if args[0] in self.scalers and (args[1] in self.optimizers or args[1] in self.inner):
                    return ScalerStep(args[0], args[1], args[2], self.asks, self.inner.get(args[1]))
                return None
            case "plain_step":
                return (
                    OptimizerStep(self.inner.get(args[0], args[0]), (*self.asks, *self.finite))
                    if self._is_optimizer(args[0])
                    else None
                )
            case "maybe_update":
                return Update(args[0], args[1], asks=self.asks) if args[0] in self.scalers else None
            case "restore":
                return Update(args[0], True, True, self.asks) if args[0] in self.scalers else None
            case "zero":
                if self._is_optimizer(args[0]):
                    return ZeroGrad((self.inner.get(args[0], args[0]),))
                return ZeroGrad(self.owned_by(args[1]) or self._elements_beside(args[0]))
            case "clear":
                return ZeroGrad(self.targets(args[0]))
            case "backward":
                return self._backward(args)
            case "clip":
                return self._clip(args)
            case "multiply":
                return self._multiply(args[0], self.settle(args[1]))
            case "edit":
                added = self.settle(args[1]) if len(args) > 1 and args[1] is not None else None
                return Edit(self.targets(args[0]), added, self.asks)
            case "read":
                value = self.settle(args[0])
                return Read(value, self.asks) if value != PLAIN else None
            case "compare":
                # Where the function clips by hand, its comparison is part of that clip.
                by_hand = any(args[2] in ("hand", "adaptive") for args in self._named("clip"))
                value = self.settle(args[0])
                return None if by_hand or value == PLAIN else Read(value, self.asks)
            case "reenter":
                return Reenter()
            case "outside_backward":
                return Escape((), tuple(self.optimizers), False) if self.optimizers else None
            case "freeze":
                return Freeze(self._wholly_in(self._owners_of(args[0])), args[1])
            case "hook":
                return Hook(self.targets(args[0]))
            case "raise_nonfinite":
                return RaiseOnNonfinite(self.asks)
            case "at_stage":
                known = args[0] in self.scalers and self._is_optimizer(args[1])
                return AtStage(args[0], args[1], args[2], args[3]) if known else None
            case "gradients_exist":
                return GradientsExist(self.targets(args[0]), args[1])
            case "misread":
                return CompareReturnedNorm(self.asks)
            case "store":
                return Store(args[0], self.settle(args[1]), self.asks) if args[0] in self.carrying else None
            case "presume_enabled":
                atoms = tuple(
                    atom for scaler, atom in self.enabled.items() if scaler not in self.low.constructed_scalers
                )
                return PresumeEnabled(atoms, args[0]) if atoms else None
            case "escape":
                scalers = tuple(ref for ref in args[0] if ref in self.scalers)
                optimizers = tuple(ref for ref in args[0] if ref in self.optimizers)
                return Escape(scalers, optimizers) if scalers or optimizers else None
            case "touch":
                return Escape((), (self.inner.get(args[0], args[0]),), False) if self._is_optimizer(args[0]) else None
        return None

    def _elements_beside(self, ref: Ref) -> tuple[Ref, ...]:
        """The optimizers that a collection has by name, for one that a loop over all of its keys or values meets."""
        key = self.low.keys[ref]
        if not (isinstance(key, tuple) and key[0] == "attr" and isinstance(key[2], tuple)):
            return ()
        collection, (kind, which) = key[1], key[2][:2]
        keys = ("attr", ("attr", collection, "keys()"))
        if not (kind == "element" or (kind == "item" and isinstance(which, tuple) and which[:2] == keys)):
            return ()
        return tuple(
            other
            for other in self.optimizers
            if isinstance(mine := self.low.keys[other], tuple)
            and mine[:2] == ("attr", collection)
            and isinstance(mine[2], tuple)
            and mine[2][0] == "item"
        )

    def _multiply(self, target: Ref, factor: UnitExpr) -> Any:
        optimizers = self.targets(target)
        vague = tuple(optimizer for optimizer in self.optimizers if self.owned.get(optimizer) is None)
        if not optimizers and vague:
            # Whose gradients these are is not known: any of theirs may have been multiplied.
            return Escape((), vague, False)
        return Multiply(optimizers, factor, self.asks, True)

    def _backward(self, args: tuple[Any, ...]) -> Any:
        expr, reach = self.settle(args[0]), args[1]
        receiver = args[2]
        if receiver is not None and (receiver in self.optimizers or receiver in self.scalers):
            return None
        if len(self.optimizers) == 1:
            return Backward(expr, (self.optimizers[0],), (), self.asks)
        must = self.owned_by(reach, known=any(self.owned.values())) if reach else ()
        if must and all(self.owned.get(optimizer) is not None for optimizer in self.optimizers):
            vague = tuple(o for o in self.optimizers if o not in must and not self._is_made_from_known(o))
            return Backward(expr, must, (), self.asks, vague)
        if self._only_backward():
            return Backward(expr, tuple(self.optimizers), (), self.asks)
        if reach:
            unknown = tuple(o for o in self.optimizers if o not in must and self.owned.get(o) is None)
            if must:
                return Backward(expr, must, unknown, self.asks)
            # That the parameters of the others are not among them is sure only of what they are made from.
            vague = tuple(o for o in self.optimizers if o not in unknown and not self._is_made_from_modules(o))
            if unknown:
                return Backward(expr, (), unknown, self.asks, vague)
        return Backward(expr, (), tuple(self.optimizers), self.asks)

    def _is_made_from_modules(self, optimizer: Ref) -> bool:
        """Whether the constructor got parameters of modules that have a name, rather than a list that came about."""
        made = self.low.owned.get(self.low.keys[optimizer])
        return bool(made) and all(map(_is_named, made or ()))

    def _is_made_from_known(self, optimizer: Ref) -> bool:
        """Whether an optimizer has the parameters of things that have a name, or that are used as modules; a list
        that came about may hold any.
        """
        modules = self.low.module_evidence
        return all(_is_named(key) or not modules.isdisjoint(_outwards(key)) for key in self.owned.get(optimizer) or ())

    def _only_backward(self) -> bool:
        """Whether one backward must have made all gradients of the function: a scaled one, with at most a plain one
        in the other arm of the same branch.
        """
        places: dict[bool, dict[Hashable, int]] = {True: {}, False: {}}
        for index, draft in self.drafts:
            if draft.name == "backward":
                place = self.graph.nodes[index].place
                places[bool(self.scales_in(draft.args[0]))][(id(place.twin), id(place.call))] = index
        if len(places[True]) > 1 or len(places[False]) > 1:
            return False
        if not places[True] or not places[False]:
            return True
        (scaled,), (plain,) = places[True].values(), places[False].values()
        return any(
            (scaled in yes and plain in no) or (plain in yes and scaled in no) for _, yes, no in self.low.switches
        )

    def _clip(self, args: tuple[Any, ...]) -> Any:
        target, bound, kind = args[:3]
        framework = args[3] if len(args) > 3 else None
        if framework is not None and framework in self.low.framework_evidence:
            return None
        kinds = {"norm": ClipKind.NORM, "value": ClipKind.VALUE, "hand": ClipKind.HAND, "adaptive": ClipKind.ADAPTIVE}
        limit = None if bound is None else self.settle(bound)
        optimizers = self.targets(target)
        result, each = (args[4], args[5]) if len(args) > 4 else (None, False)
        return Clip(optimizers, limit, kinds[kind], self.asks, result, each) if optimizers else None

    # -- the graph --------------------------------------------------------------------------------------------------

    def link(self) -> Linked | None:
        low = self.low
        if not self.scalers:
            return None
        self._answer_questions()
        self.enabled = {scaler: Atom(low.enabled(low.keys[scaler], scaler.text), Truthy()) for scaler in self.scalers}
        learned = {node.op.atom.subject for node in self.graph.nodes if isinstance(node.op, Learn)}
        tested = {guard.atom.subject for out in self.graph.edges for edge in out for guard in edge.guards}
        presumed = bool(self._named("presume_enabled"))
        self.asks: tuple[Subject, ...] = tuple(
            atom.subject
            for scaler, atom in self.enabled.items()
            if atom.subject in learned or atom.subject in tested or presumed
        )
        self._objects_are_true()
        tests = {guard.atom for out in self.graph.edges for edge in out for guard in edge.guards}
        self.optional = {o: guards for o in self.optimizers if (guards := tuple(self._missing(low.keys[o], tests)))}
        self.asks += tuple(guard.atom.subject for guards in self.optional.values() for guard in guards)
        self.finite = tuple(subject for subject in map(low.subject, low.finite_symbols) if subject in tested)
        self._relate_switches()
        given = set(self._insert_given())
        ops = [self.op(node.op) if isinstance(node.op, Draft) else node.op for node in self.graph.nodes]
        if not any(isinstance(ops[index], JUDGED) for index, _ in self.drafts):
            return None  # As most functions are that only seem to train: the rest is what takes the time.
        result = Graph()
        for node, op in zip(self.graph.nodes, ops):
            result.add(op, node.place)
        result.edges = [
            # What turned out to be no operation of ours raises no exception that matters.
            [edge for edge in out if not (edge.doubt == "exception" and isinstance(node.op, Draft) and op is None)]
            for node, op, out in zip(self.graph.nodes, ops, self.graph.edges)
        ]
        result = _reduce(result, low.flags)
        if not any(isinstance(node.op, JUDGED) for node in result.nodes):
            return None
        updated = {node.op.scaler for node in result.nodes if isinstance(node.op, Update)}
        clears = {o for node in result.nodes if isinstance(node.op, ZeroGrad) for o in node.op.optimizers}
        made = {args[0] for name in ("new_optimizer", "new_instance") for args in self._named(name)}
        return Linked(
            result,
            tuple(self.scalers),
            tuple(self.optimizers),
            self.enabled,
            frozenset(ref for ref in low.inert_scalers if ref not in updated),
            frozenset(low.constructed_scalers),
            frozenset(clears),
            frozenset(node.op.scaler for node in result.nodes if isinstance(node.op, (Unscale, ScalerStep))),
            frozenset(set(self.optimizers) - made - given),
            self.optional,
            self.finite,
        )

    def _insert_given(self) -> Iterator[Ref]:
        """Optimizers that a call outside the program gives come into being where it is called.

        Where that is behind a backward, the call may well give what had been there before it; what is made for a module
        is more likely a new one.
        """
        definitions: dict[Key, list[tuple[int, Key]]] = {}
        for node in self.graph.nodes:
            if isinstance(node.op, Forget):
                definitions.setdefault(node.op.symbol, []).append((node.index, None))
            elif isinstance(node.op, Shift):
                target, source = map(_symbol, (node.op.target, node.op.source))
                definitions.setdefault(target, []).append((node.index, source))
        given = {symbol for symbol, places in definitions.items() if all(source is None for _, source in places)}
        grown = True
        while grown:
            fresh = {s for s, places in definitions.items() if all(x is None or x in given for _, x in places)}
            grown, given = fresh != given, fresh
        behind: set[int] = set()
        pending = [index for index, draft in self.drafts if draft.name == "backward"]
        while pending:
            behind.update(fresh_ones := {edge.target for edge in self.graph.edges[pending.pop()]} - behind)
            pending += fresh_ones
        for optimizer in self.optimizers:
            symbol = self.low.keys[optimizer]
            if symbol not in given:
                continue
            again = any(index in behind for index, _ in definitions[symbol])
            if again and self.low.given_to.get(symbol, frozenset()).isdisjoint(self.modules):
                continue
            for index, _ in definitions[symbol]:
                added = self.graph.add(NewOptimizer(optimizer, made=again), self.graph.nodes[index].place)
                self.graph.edges[added], self.graph.edges[index] = self.graph.edges[index], []
                self.graph.connect(index, Edge(added))
                if again:
                    for edge in list(self.graph.edges[added]):
                        self.graph.connect(index, Edge(edge.target, edge.guards, edge.doubt or "given again"))
                else:
                    yield optimizer

    def _missing(self, optimizer: Key, tests: set[Atom]) -> Iterator[Guard]:
        """What says that an optimizer is not there: a test for None, or another value in its place."""
        symbols = [symbol for symbol, made in self.low.same if made == optimizer]
        for symbol in (optimizer, *sorted(symbols, key=repr)):
            none = Atom(self.low.subject(Sym(symbol)), IsNone())
            if none in tests:
                yield Guard(none, True)
        holder: Any = optimizer
        while isinstance(holder, tuple):
            if holder in self.low.instead:
                yield self.low.instead[holder]
            if holder[0] != "attr":
                return
            holder = holder[1]

    def _objects_are_true(self) -> None:
        """``if scaler`` and ``if scaler is not None`` ask the same."""
        low = self.low
        objects = {low.subject(Sym(low.keys[ref])) for ref in (*self.scalers, *self.optimizers)}

        def same(guard: Guard) -> Guard:
            if guard.atom.subject in objects and guard.atom.predicate == Truthy():
                return Guard(Atom(guard.atom.subject, IsNone()), not guard.holds)
            return guard

        for out in self.graph.edges:
            out[:] = [Edge(edge.target, tuple(map(same, edge.guards)), edge.doubt) for edge in out]

    def _answer_questions(self) -> None:
        """Where a model asks whether something is an optimizer, only the way of the answer goes on."""
        if not self.low.in_question:
            return
        for out in self.graph.edges:
            kept = []
            for edge in out:
                asked = [guard for guard in edge.guards if guard.atom.subject in self.low.in_question]
                if all(guard.holds == self._is_optimizer(self.low.in_question[guard.atom.subject]) for guard in asked):
                    rest = tuple(guard for guard in edge.guards if guard not in asked)
                    kept.append(Edge(edge.target, rest, edge.doubt) if asked else edge)
            out[:] = kept

    def _relate_switches(self) -> None:
        """Two-armed branches of scaled and plain backward, and of scaled and plain step: presumed the same switch."""
        backwards: list[tuple[str, range, range, bool]] = []
        steps: list[tuple[str, range, range, bool]] = []
        by_node = dict(self.drafts)
        ways: dict[int, list[int]] = {}
        """The nodes before each node."""
        for source, out in enumerate(self.graph.edges):
            for target in {edge.target for edge in out}:
                ways.setdefault(target, []).append(source)
        asked = {
            (yes, no): {
                guard.atom.subject for arm in (yes, no) for _, edge in self._entries(arm, ways) for guard in edge.guards
            }
            for _, yes, no in self.low.switches
        }
        for text, yes, no in self.low.switches:
            kinds = [self._arm(arm, by_node) for arm in (yes, no)]
            for index in (0, 1):
                mine, other = kinds[index], kinds[1 - index]
                if "scaled" in mine and "plain" in other and "scaled" not in other:
                    backwards.append((text, yes, no, index == 0))
                if "scaler_step" in mine and "plain_step" in other and "scaler_step" not in other:
                    steps.append((text, yes, no, index == 0))
        related: set[int] = set()
        for b_text, b_yes, b_no, b_on in backwards:
            for s_text, s_yes, s_no, s_on in steps:
                if (b_yes, b_no) == (s_yes, s_no):
                    continue
                if b_text == s_text or not asked[b_yes, b_no].isdisjoint(asked[s_yes, s_no]):
                    continue
                atom = Atom(Subject("amp-switch", frozenset(("amp-switch",)), "the mixed precision switch"), Truthy())
                for yes, no, on in ((b_yes, b_no, b_on), (s_yes, s_no, s_on)):
                    if yes.start not in related:
                        related.add(yes.start)
                        for arm, holds in ((yes, on), (no, not on)):
                            for source, edge in self._entries(arm, ways):
                                self.graph.edges[source].remove(edge)
                                guards = (*edge.guards, Guard(atom, holds))
                                self.graph.connect(source, Edge(edge.target, guards, edge.doubt))

    def _arm(self, arm: range, by_node: dict[int, Draft]) -> set[str]:
        kinds: set[str] = set()
        for index in arm:
            draft = by_node.get(index)
            if draft is None:
                continue
            if draft.name == "backward":
                kinds.add("scaled" if self.scales_in(draft.args[0]) & set(self.scalers) else "plain")
            elif draft.name == "scaler_step" and draft.args[0] in self.scalers:
                kinds.add("scaler_step")
            elif draft.name == "plain_step" and draft.args[0] in self.optimizers:
                kinds.add("plain_step")
        return kinds

    def _entries(self, arm: range, ways: Mapping[int, Sequence[int]]) -> list[tuple[int, Edge]]:
        """The edges into an arm, with the nodes that they come from."""
        return [
            (source, edge)
            for source in ways.get(arm.start, ())
            if source not in arm
            for edge in self.graph.edges[source]
            if edge.target == arm.start
        ]


def _reduce(graph: Graph, flags: set[Subject]) -> Graph:
    """The slice of a graph that matters: operations, the branches that decide between them, and what decides those.

    Grown from below: a test that only steers what feeds itself (a best metric so far) never gets in.
    """
    used = _variables_used(graph)
    flags = flags | _counters(graph)
    values = _constants_of(graph)
    graph = simplify(graph, lambda op: op is not None and not (isinstance(op, Store) and op.variable not in used))
    asked: set[Subject] = set()
    for node in graph.nodes:
        asked |= set(getattr(node.op, "asks", ()) or ())
    while True:
        symbols = frozenset().union(*(subject.mentions for subject in asked)) if asked else frozenset()

        def keep(op: Any, asked: set[Subject] = asked, symbols: frozenset[Hashable] = symbols) -> bool:
            match op:
                case Forget(symbol):
                    return symbol in symbols
                case SetConstant(target, _) | Shift(target, _, _):
                    return target in asked or bool(target.mentions & symbols)
                case Learn():
                    return op.atom.subject in asked
                case Store(variable):
                    return variable in used
                case (
                    ZeroGrad(optimizers)
                    | Edit(optimizers)
                    | Multiply(optimizers)
                    | Hook(optimizers)
                    | Freeze(optimizers)
                    | GradientsExist(optimizers)
                ):
                    return bool(optimizers)
            return op is not None

        wanted = asked | flags
        result = _committed(simplify(graph, keep, partial(_asks_of, wanted)), wanted, values)
        grown = set(asked)
        for atom in _decisions(result, flags):
            grown.add(atom.subject)
            if isinstance(atom.predicate, Residue) and isinstance(atom.predicate.modulus, Subject):
                grown.add(atom.predicate.modulus)
        for node in result.nodes:
            if isinstance(node.op, Shift) and node.op.target in grown:
                grown.add(node.op.source)
        if grown == asked:
            return result
        asked = grown


def _committed(graph: Graph, wanted: set[Subject], values: dict[Subject, frozenset[Hashable]]) -> Graph:
    """A graph without the branches whose ways, loops among them, all come to one and the same operation next."""
    graph = _merged(graph)
    marks = {node.index for node in graph.nodes if node.op is not None}
    marks |= {i for i, out in enumerate(graph.edges) if _may_end(out, wanted, values)}
    before: list[list[int]] = [[] for _ in graph.nodes]
    for index, out in enumerate(graph.edges):
        for edge in out:
            before[edge.target].append(index)
    while True:
        # The one that all ways from a node come to next; -1 where there are several.
        following: dict[int, int] = {mark: mark for mark in marks}
        pending = list(marks)
        while pending:
            index = pending.pop()
            for previous in before[index]:
                known = following.get(previous)
                if previous in marks or known == -1:
                    continue
                if known != following[index]:
                    following[previous] = following[index] if known is None else -1
                    pending.append(previous)
        choosing = {
            index
            for index, known in following.items()
            if known == -1 and any(following.get(edge.target, -1) != -1 for edge in graph.edges[index])
        }
        if not choosing:
            break
        marks |= choosing
    doubts = _doubts_on_the_way(graph, before, marks)
    result = Graph()
    for node in graph.nodes:
        result.add(node.op, node.place)
    for index in {0, *marks}:
        out = [edge for edge in graph.edges[index] if edge.target in following]
        one = len({following[edge.target] for edge in out}) == 1 and not _may_end(out, wanted, values)
        for edge in out:
            doubt = edge.doubt or doubts[edge.target]
            result.connect(index, Edge(following[edge.target], () if one else edge.guards, doubt))
    return simplify(result, lambda op: op is not None, partial(_asks_of, wanted))


def _merged(graph: Graph) -> Graph:
    """A graph with one node for those that do the same to the facts, if anything, and go on in the same ways."""
    result = Graph()
    for node, out in zip(graph.nodes, graph.edges):
        result.edges[result.add(node.op, node.place)] = out
    while True:
        first: dict[Hashable, int] = {}
        instead: dict[int, int] = {}
        for index in result.reachable():
            node = result.nodes[index]
            if index and (node.op is None or isinstance(node.op, (Forget, SetConstant, Shift, Learn))):
                one = first.setdefault((node.op, frozenset(result.edges[index])), index)
                if one != index:
                    instead[index] = one
        if not instead:
            return result
        for index, out in enumerate(result.edges):
            moved = (Edge(instead.get(edge.target, edge.target), edge.guards, edge.doubt) for edge in out)
            result.edges[index] = list(dict.fromkeys(moved))


def _doubts_on_the_way(graph: Graph, before: list[list[int]], marks: set[int]) -> dict[int, str]:
    """For each node that leads to a mark, the doubt that the least doubtful way there has."""
    found = dict.fromkeys(marks, "")
    pending = deque(marks)
    doubtful: list[tuple[int, str]] = []
    while pending or doubtful:
        if not pending:
            index, doubt = doubtful.pop()
            if index in found:
                continue
            found[index] = doubt
            pending.append(index)
        index = pending.popleft()
        for previous in before[index]:
            if previous in found:
                continue
            doubt = min(edge.doubt for edge in graph.edges[previous] if edge.target == index) or found[index]
            if doubt:
                doubtful.append((previous, doubt))
            else:
                found[previous] = ""
                pending.append(previous)
    return found


def _may_end(out: Sequence[Edge], wanted: set[Subject], values: dict[Subject, frozenset[Hashable]]) -> bool:
    """Whether something that matters decides if any of these ways is taken."""
    if not any(guard.atom.subject in wanted for edge in out for guard in edge.guards):
        return False
    ways = {frozenset(edge.guards) for edge in out}
    return len({guard.atom for way in ways for guard in way}) <= MAX_ATOMS and not _always(ways, values)


def _always(ways: Set[frozenset[Guard]], values: dict[Subject, frozenset[Hashable]]) -> bool:
    """Whether the guards of some way hold, whatever the answers; of a name with known values, whatever its value."""
    if frozenset() in ways:
        return True
    atom = next((guard.atom for way in ways for guard in way), None)
    if atom is None:
        return False
    known = values.get(atom.subject)
    if known is None:
        cases = [Facts().assume(atom, True), Facts().assume(atom, False)]
    else:
        cases = [Facts().set_constant(atom.subject, value) for value in known]
    return all(_always(_where(case, ways), values) for case in cases if case is not None)


def _where(facts: Facts, ways: Set[frozenset[Guard]]) -> set[frozenset[Guard]]:
    """The ways that are open where the facts hold, with the guards that they leave open."""
    found = set()
    for way in ways:
        answers = {guard: facts.value(guard.atom) for guard in way}
        if all(answer in (None, guard.holds) for guard, answer in answers.items()):
            found.add(frozenset(guard for guard, answer in answers.items() if answer is None))
    return found


def _constants_of(graph: Graph) -> dict[Subject, frozenset[Hashable]]:
    """The values of the subjects that are only ever set to constants. A tag is one of them even where it is not known
    which; where the name that it is about is not bound, whoever asks for it does not go on.
    """
    found, moved = constants_of(graph)
    return {
        subject: frozenset(those) - {UNBOUND}
        for subject, those in found.items()
        if _is_tag(subject) or not subject.mentions & moved
    }


def _is_tag(subject: Subject) -> bool:
    return isinstance(subject.key, tuple) and subject.key[0] == "tag"


def _symbol(subject: Subject) -> Key:
    """The symbol whose value a subject is."""
    match subject.key:
        case ("value", ("sym", key, _)):
            return key
    return subject.key


def _asks_of(wanted: set[Subject], atom: Atom) -> bool:
    return atom.subject in wanted


def _counters(graph: Graph) -> set[Subject]:
    """Subjects that start at a constant and only ever advance or are set to another one."""
    given = {node.op.target for node in graph.nodes if isinstance(node.op, SetConstant)}
    moves = [node.op for node in graph.nodes if isinstance(node.op, Shift)]
    vague = frozenset(node.op.symbol for node in graph.nodes if isinstance(node.op, Forget))
    found = {s for s in given | {move.target for move in moves} if s.key[0] == "value" and not s.mentions & vague}  # type: ignore[index]
    shrunk = True
    while shrunk:
        lost = {move.target for move in moves if move.target in found and move.source not in found}
        found -= lost
        shrunk = bool(lost)
    return found


def _decisions(graph: Graph, flags: set[Subject]) -> set[Atom]:
    """The atoms that decide between different ways on. A guard on the only way on decides whether there is one, which
    counts where it is a flag that the function itself sets.
    """
    found: set[Atom] = set()
    for out in graph.edges:
        branching = len({edge.target for edge in out}) > 1
        for edge in out:
            told = [guard.atom for guard in edge.guards if branching or guard.atom.predicate != IsNone()]
            if branching or all(atom.subject in flags for atom in told):
                found.update(told)
    return found


def _variables_used(graph: Graph) -> set[Ref]:
    used: set[Ref] = set()
    stores: dict[Ref, set[Ref]] = {}
    for node in graph.nodes:
        for expr in _expressions(node.op):
            if isinstance(node.op, Store):
                stores.setdefault(node.op.variable, set()).update(stored_in(expr))
            else:
                used |= stored_in(expr)
    pending = list(used)
    while pending:
        for other in stores.get(pending.pop(), ()):
            if other not in used:
                used.add(other)
                pending.append(other)
    return used


def live_variables(graph: Graph) -> dict[int, frozenset[Ref]]:
    """For each node the variables that some operation behind it may read before they are stored again."""
    before: dict[int, frozenset[Ref]] = {index: frozenset() for index in graph.reachable()}
    after = dict(before)
    changed = True
    while changed:
        changed = False
        for index in reversed(list(before)):
            behind = frozenset().union(*(before[edge.target] for edge in graph.edges[index]))
            op = graph.nodes[index].op
            stored = op.variable if isinstance(op, Store) else op.result if isinstance(op, Clip) else None
            here = behind - {stored} if stored is not None else behind
            for expr in _expressions(op):
                here |= stored_in(expr)
            if behind != after[index] or here != before[index]:
                after[index], before[index] = behind, here
                changed = True
    return after


def _expressions(op: Any) -> Iterable[UnitExpr]:
    match op:
        case Backward(loss):
            yield loss
        case Clip(_, bound) if bound is not None:
            yield bound
        case Multiply(_, factor):
            yield factor
        case Store(_, value) | Read(value):
            yield value
        case Edit(_, added) if added is not None:
            yield added


def _may_carry(expr: UnitExpr, carrying: set[Ref]) -> bool:
    return any(
        isinstance(leaf, (ScaleOf, OfGradients))
        or (isinstance(leaf, Known) and not leaf.units <= TRUE_GRADIENT)
        or (isinstance(leaf, Stored) and leaf.variable in carrying)
        for leaf in leaves(expr)
    )


def _outwards(key: Key) -> Iterator[Key]:
    """An access path and those that it lies in: ``net.encoder`` and ``net``."""
    yield key
    while isinstance(key, tuple) and key and key[0] == "attr":
        key = key[1]
        yield key


def _is_named(key: Key) -> bool:
    """Whether a key is that of a parameter, an attribute or a variable of a module, rather than of some value."""
    return isinstance(key, tuple) and key[0] in ("param", "attr", "global")


def _element_of(key: Key) -> int | None:
    while isinstance(key, tuple) and key and key[0] == "attr":
        if isinstance(key[2], tuple) and key[2][0] in ("element", "item") and isinstance(key[2][1], int):
            return key[2][1]
        key = key[1]
    return None


_GENERIC_STEMS = frozenset(
    {
        "self",
        "opt",
        "optim",
        "optimizer",
        "optimizers",
        "opts",
        "optims",
        "net",
        "nets",
        "model",
        "models",
        "module",
        "network",
        "the",
        "params",
        "parameters",
    }
)


def _stems(text: str) -> frozenset[str]:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)
    return frozenset(word.lower() for word in words) - _GENERIC_STEMS


def _alike(left: frozenset[str], right: frozenset[str]) -> bool:
    return any(a.startswith(b) or b.startswith(a) for a in left for b in right)


__all__ = ["Known", "Linked", "PresumeEnabled", "link"]
