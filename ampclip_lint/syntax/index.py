"""The index of a program: modules, imports, classes, functions and who mentions what, from ``ast``, which is fast.

Names are resolved here, by import tables; the concrete syntax of a function is read only when it takes part.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import PurePath
from typing import Any, Protocol, TypeVar

from ampclip_lint.records import dataclass
from ampclip_lint.syntax.outside import is_outside
from ampclip_lint.syntax.source import SourceFile

#: A bare name that more functions have says nothing of what it does.
MAX_NAMESAKES = 40
#: A receiver of a call that is not reached from a name.
ANYTHING = "?"
#: Re-exports of re-exports are followed this far.
MAX_REEXPORTS = 8

T = TypeVar("T")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class FunctionInfo:
    """One function or method, or a module's body (``node`` is the module then)."""

    module: ModuleIndex
    name: str
    qualname: str
    node: FunctionNode | ast.Module
    owner: ClassInfo | None = None
    outer: FunctionInfo | None = None
    inner: dict[str, FunctionInfo] = field(default_factory=dict)
    inner_classes: dict[str, ClassInfo] = field(default_factory=dict)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every name and attribute that the function mentions, its nested functions included."""
        found: set[str] = set()
        for node in _own_nodes(self.node) if isinstance(self.node, ast.Module) else ast.walk(self.node):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
        return frozenset(found)

    @property
    def calls(self) -> Collection[str]:
        """The bare names of everything that the function calls."""
        return self.callers_of.keys()

    @cached_property
    def callers_of(self) -> Mapping[str, frozenset[str]]:
        """What each of `calls` is called on: the name that the expression begins with; empty for a bare name, for
        ``super()``, which is the object itself, that one's name, and `ANYTHING` for what is no such chain.
        """
        found: dict[str, set[str]] = {}
        for node in _own_nodes(self.node) if isinstance(self.node, ast.Module) else ast.walk(self.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found.setdefault(node.func.attr, set()).add(self._beginning(node.func.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.setdefault(node.func.id, set()).add("")
        return {name: frozenset(of) for name, of in found.items()}

    def _beginning(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
            return self.self_name or ANYTHING
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self.self_name:
            return ANYTHING  # something that the object holds
        while isinstance(node, ast.Attribute):
            node = node.value
        return node.id if isinstance(node, ast.Name) else ANYTHING

    @cached_property
    def is_generator(self) -> bool:
        return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _own_nodes(self.node))

    @cached_property
    def assignments(self) -> tuple[ast.Assign | ast.AnnAssign | ast.AugAssign, ...]:
        """The statements in it, also in functions in it, that assign something."""
        kinds = (ast.Assign, ast.AnnAssign, ast.AugAssign)
        return tuple(node for node in statements_in(self.node) if isinstance(node, kinds))

    @cached_property
    def is_small(self) -> bool:
        """A few statements without a loop that answer something or keep something: a test, a setter, a factory."""
        statements = statements_in(self.node)
        if len(statements) > 12 or any(isinstance(node, (ast.For, ast.While, ast.AsyncFor)) for node in statements):
            return False
        return any(
            (isinstance(node, ast.Return) and node.value is not None)
            or any(isinstance(target, ast.Attribute) for target in targets_of(node))
            or _appends(node)
            for node in statements
        )

    @cached_property
    def called_bare(self) -> frozenset[str]:
        """Those of `calls` that get no argument anywhere in the function."""
        given: set[str] = set()
        for node in _own_nodes(self.node) if isinstance(self.node, ast.Module) else ast.walk(self.node):
            if isinstance(node, ast.Call) and (node.args or node.keywords):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                given.add(name)
        return frozenset(self.calls) - given

    @property
    def arguments(self) -> frozenset[str]:
        """The names of its parameters."""
        if isinstance(self.node, ast.Module):
            return frozenset()
        spec = self.node.args
        return frozenset(a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs))

    @cached_property
    def calls_what_it_got(self) -> bool:
        """Whether it calls what its object was given: a step, a closure, a callback."""
        given = self.owner.given if self.owner is not None else frozenset()
        return any(name in given and self.self_name in receivers for name, receivers in self.callers_of.items())

    @cached_property
    def needs_arguments(self) -> bool:
        """Whether a call must give it something, beside the object that it is a method of."""
        if isinstance(self.node, ast.Module) or self.node.decorator_list:
            return False  # Decorators may give them.
        spec = self.node.args
        positional = [*spec.posonlyargs, *spec.args][1 if self.owner is not None else 0 :]
        return len(positional) > len(spec.defaults) or None in spec.kw_defaults

    @cached_property
    def updates_no_scaler(self) -> bool:
        """Whether everything that it calls `update` on is a dict or a set, by what it or its class does with it or by
        what `update` is given, or else something that it got from a call, as a progress bar: a function of the program
        that gives a scaler takes part by itself.
        """
        containers = {"__dict__"}
        if not isinstance(self.node, ast.Module) and self.node.args.kwarg is not None:
            containers.add(self.node.args.kwarg.arg)
        if self.owner is not None:
            containers |= self.owner.containers
        updated: list[ast.expr] = []
        told: list[ast.expr] = []
        for node in ast.walk(self.node):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and _is_text(node.slice):
                containers.add(node.value.id)
            elif isinstance(node, ast.Assign) and (_makes_container(node.value) or _calls_no_scaler(node.value)):
                containers.update(target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.withitem) and _calls_no_scaler(node.context_expr):
                containers.update({node.optional_vars.id} if isinstance(node.optional_vars, ast.Name) else ())
            elif isinstance(node, ast.Attribute) and node.attr == "update":
                updated.append(node)
            elif isinstance(node, ast.Call) and _is_given_a_dict(node):
                told.append(node.func)
            elif isinstance(node, ast.Name) and node.id == "update":
                return False

        def is_container(of: ast.expr) -> bool:
            return getattr(of, "id" if isinstance(of, ast.Name) else "attr", None) in containers

        return all(call in told or is_container(call.value) for call in updated if isinstance(call, ast.Attribute))

    def counted_in(self, name: str) -> frozenset[tuple[str, ...]]:
        """What a name holds, as attributes of attributes, that is divided with remainder, as the number of a batch is;
        the empty way is the name itself.
        """
        found: set[tuple[str, ...]] = set()
        made: dict[str, list[ast.expr]] = {}
        pending: list[tuple[ast.AST, tuple[str, ...]]] = []
        for node in ast.walk(self.node):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                pending.append((node.left, ()))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                made.setdefault(node.targets[0].id, []).append(node.value)
        while pending:
            current, way = pending.pop()
            if isinstance(current, ast.Attribute):
                pending.append((current.value, (current.attr, *way)))
            elif isinstance(current, ast.Name):
                found.update({way} if current.id == name else ())
                pending.extend((value, ()) for value in (() if way else made.pop(current.id, ())))
            else:
                pending.extend((child, ()) for child in ast.iter_child_nodes(current))
        return frozenset(found)

    def passes_by(self, name: str) -> bool:
        """Whether a name is compared with another one that it has passed or not, as the number of a step is."""
        for node in ast.walk(self.node):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Gt, ast.GtE, ast.Lt, ast.LtE)):
                sides = (node.left, *node.comparators)
                if len(sides) == 2 and all(isinstance(side, (ast.Name, ast.Attribute)) for side in sides):
                    if any(isinstance(side, ast.Name) and side.id == name for side in sides):
                        return True
        return False

    @cached_property
    def dispatches(self) -> frozenset[str]:
        """What it gets things from that it calls, a collection or an object that it asks by name: callbacks, handlers
        of an event. The names of these, and `ANYTHING` for others. What it got as keywords of any name does not count:
        these are metrics that a caller has chosen.
        """
        nodes = list(ast.walk(self.node))
        keywords = (
            None if isinstance(self.node, ast.Module) or self.node.args.kwarg is None else self.node.args.kwarg.arg
        )
        drawn = {
            leaf.id: ANYTHING
            for node in nodes
            if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and not _begins_with(node.iter, keywords)
            for leaf in ast.walk(node.target)
            if isinstance(leaf, ast.Name)
        }
        for node in nodes:
            for target in targets_of(node):
                if isinstance(target, ast.Name) and (of := _drawn_from(getattr(node, "value", None))):
                    drawn[target.id] = of if drawn.get(target.id, of) == of else ANYTHING
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        found = (drawn.get(node.id) if isinstance(node, ast.Name) else _drawn_from(node) for node in called)
        return frozenset(of for of in found if of is not None)

    @cached_property
    def called_or_passed(self) -> frozenset[str]:
        """The names and attributes by which something is called, or that stand where a value is handed on, so that it
        may be called elsewhere. A number that is counted, compared or shown is neither, nor is a variable of its own.
        """
        attributes: set[str] = set()
        names: set[str] = set()
        own: set[str] = set()
        for node in ast.walk(self.node):
            if isinstance(node, ast.arg):
                own.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            for value in _handed_on(node):
                if isinstance(value, ast.Attribute):
                    attributes.add(value.attr)
                elif isinstance(value, ast.Name):
                    names.add(value.id)
        return frozenset(attributes.union(names - own, self.calls))

    @property
    def decorators(self) -> tuple[str, ...]:
        if isinstance(self.node, ast.Module):
            return ()
        return tuple(dotted(d.func if isinstance(d, ast.Call) else d) or "" for d in self.node.decorator_list)

    @property
    def self_name(self) -> str | None:
        """The name of the first parameter of a method; ``None`` where there is no instance."""
        if self.owner is None or isinstance(self.node, ast.Module) or "staticmethod" in self.decorators:
            return None
        arguments = [*self.node.args.posonlyargs, *self.node.args.args]
        return arguments[0].arg if arguments else None

    def __repr__(self) -> str:
        return f"<{self.module.name}:{self.qualname}>"


@dataclass(eq=False)
class ClassInfo:
    """One class: its bases as written, its methods, and the attributes that its code gives to ``self``."""

    module: ModuleIndex
    name: str
    qualname: str
    node: ast.ClassDef
    bases: tuple[str, ...]
    methods: dict[str, FunctionInfo] = field(default_factory=dict)
    outer: FunctionInfo | None = None

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Methods, class variables, and everything assigned to ``self.x`` in a method."""
        found = set(self.methods)
        for statement in self.node.body:
            for target in targets_of(statement):
                if isinstance(target, ast.Name):
                    found.add(target.id)
        for method in self.methods.values():
            for node in method.assignments:
                for target in targets_of(node):
                    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                        if target.value.id == method.self_name:
                            found.add(target.attr)
        return frozenset(found)

    @cached_property
    def statements(self) -> int:
        """How many there are in it, those in its methods included."""
        return len(statements_in(self.node)) - 1

    @cached_property
    def containers(self) -> frozenset[str]:
        """The attributes that its methods, whenever they assign one, make a new dict or set."""
        made: set[str] = set()
        other: set[str] = set()
        for method in self.methods.values():
            for node in method.assignments:
                for target in targets_of(node):
                    if isinstance(target, ast.Attribute):
                        value = getattr(node, "value", None)
                        (made if value is not None and _makes_container(value) else other).add(target.attr)
        return frozenset(made - other)

    @cached_property
    def given(self) -> frozenset[str]:
        """The attributes that a method puts one of its arguments into, as it is."""
        found: set[str] = set()
        for method in self.methods.values():
            arguments = method.arguments
            for node in method.assignments:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in arguments:
                    found.update(target.attr for target in node.targets if isinstance(target, ast.Attribute))
        return frozenset(found)

    @property
    def entries(self) -> list[FunctionInfo]:
        """What runs where an instance is made, and where it is called."""
        return [self.methods[name] for name in ("__init__", "__call__") if name in self.methods]

    @cached_property
    def fields(self) -> dict[str, ast.expr | None]:
        """Class-level names with their values: class variables, dataclass fields."""
        found: dict[str, ast.expr | None] = {}
        for statement in self.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[statement.target.id] = statement.value
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        found[target.id] = statement.value
        return found

    def __repr__(self) -> str:
        return f"<class {self.module.name}:{self.qualname}>"


@dataclass(frozen=True)
class Variable:
    """A name that a module gives to a value."""

    module: ModuleIndex
    name: str


Definition = FunctionInfo | ClassInfo
Meaning = FunctionInfo | ClassInfo | Variable | str


def parse(file: SourceFile) -> ast.Module:
    """The tree of a file. In a notebook, a `SyntaxError` speaks of the first cell that is none by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is no error: `1if x else 2`, "\d"
        return _parsed(file)


def _parsed(file: SourceFile) -> ast.Module:
    try:
        return ast.parse(file.text)
    except SyntaxError:
        rows = file.text.split("\n")
        for cell in file.cells:
            before = cell.first - 1
            try:
                ast.parse("\n".join([*rows[before : before + len(cell.lines)], ""]))
            except SyntaxError as error:
                error.lineno = before + (error.lineno or 1)
                raise error from None
        raise


class ModuleIndex:
    """One parsed file: what it defines and imports."""

    def __init__(self, file: SourceFile, tree: ast.Module, *, is_model: bool = False) -> None:
        self.file = file
        self.is_model = is_model
        """Whether it stands in for source that is not part of the program: nothing is shown in it."""
        self.tree = tree
        self.parts = _module_parts(file.name)
        self.name = ".".join(self.parts)
        self.functions: dict[str, FunctionInfo] = {}
        self.classes: dict[str, ClassInfo] = {}
        self.imports: dict[str, str] = {}
        self.imported: set[str] = set()
        """The dotted names of all that it imports."""
        self.stars: list[str] = []
        self.assigned: dict[str, list[ast.stmt]] = {}
        self.everything: list[FunctionInfo] = []
        self._holding: dict[str, frozenset[FunctionInfo]] = {}
        self.body = FunctionInfo(self, "<module>", "<module>", tree)
        self._collect(tree.body, None, None, "")
        for node in _own_nodes(tree):
            for target in targets_of(node):
                if isinstance(target, ast.Name):
                    self.assigned.setdefault(target.id, []).append(node)  # type: ignore[arg-type]

    def is_rebound(self, name: str) -> bool:
        """Whether a name that is imported also gets a value, other than a stand-in for where the import fails."""
        places = self.assigned.get(name, ())
        return any(not isinstance(getattr(place, "value", None), ast.Constant) for place in places)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every name and attribute in the code, and what is imported."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
        return frozenset(found.union(*(dotted.split(".") for dotted in self.imports.values())))

    @cached_property
    def lines(self) -> list[str]:
        # As the parser counts: form feeds and other separators inside a line do not end it.
        return [f"{line}\n" for line in self.file.text.split("\n")]

    def mentioning(self, word: str) -> list[FunctionInfo]:
        """The functions in whose text a word stands, the body of the module among them, in order."""
        return self._around(self._rows_with(word)) if word in self._vocabulary else []

    def holding(self, letters: str) -> frozenset[FunctionInfo]:
        """The functions in whose text some letters stand, be it within a word, and the body of the module."""
        found = self._holding.get(letters)
        if found is None:
            found = self._holding[letters] = frozenset(self._around(self._rows_with(letters, whole=False)))
        return found

    def _around(self, rows: list[int]) -> list[FunctionInfo]:
        """The functions that have one of these lines."""
        if not rows:
            return []
        found = [self.body]
        for info, first, last in self._extents:
            at = bisect_left(rows, first)
            if at < len(rows) and rows[at] <= last:
                found.append(info)
        return found

    @cached_property
    def _vocabulary(self) -> frozenset[str]:
        """Every word of the text, comments and strings included."""
        return frozenset(re.findall(r"\w+", self.file.text))

    def _rows_with(self, letters: str, whole: bool = True) -> list[int]:
        """The numbers of the lines with some letters; as a `whole` word, where they are no part of another one."""
        text, starts = self.file.text, self._starts
        found = []
        at = text.find(letters)
        while at >= 0:
            end = at + len(letters)
            around = text[max(at - 1, 0) : at] + text[end : end + 1] if whole else ""
            if not any(character.isalnum() or character == "_" for character in around):
                found.append(bisect_right(starts, at))
            at = text.find(letters, end)
        return found

    @cached_property
    def _extents(self) -> list[tuple[FunctionInfo, int, int]]:
        """Each function with its first line, decorators included, and its last one."""
        found = []
        for info in self.everything:
            assert not isinstance(info.node, ast.Module)
            first = min((info.node.lineno, *(decorator.lineno for decorator in info.node.decorator_list)))
            found.append((info, first, info.node.end_lineno or first))
        return found

    @cached_property
    def _starts(self) -> list[int]:
        """Where the lines begin, as the parser counts them."""
        return [0, *(match.end() for match in re.finditer("\n", self.file.text))]

    def _collect(
        self, body: Sequence[ast.stmt], owner: ClassInfo | None, outer: FunctionInfo | None, prefix: str
    ) -> None:
        direct = set(map(id, body))
        for node in _statements(body):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                info = FunctionInfo(self, node.name, prefix + node.name, node, owner, outer)
                self.everything.append(info)
                if owner is not None:
                    owner.methods[node.name] = info
                elif outer is not None:
                    outer.inner[node.name] = info
                elif id(node) in direct:
                    self.functions[node.name] = info
                else:
                    # In an arm of an if or try: the first is rather the real one, others stand in for it.
                    self.functions.setdefault(node.name, info)
                self._collect(node.body, None, info, f"{prefix}{node.name}.<locals>.")
            elif isinstance(node, ast.ClassDef):
                bases = tuple(filter(None, map(dotted, node.bases)))
                cls = ClassInfo(self, node.name, prefix + node.name, node, bases, {}, outer)
                if outer is not None:
                    outer.inner_classes[node.name] = cls
                elif id(node) in direct:
                    self.classes[node.name] = cls
                else:
                    self.classes.setdefault(node.name, cls)
                self._collect(node.body, cls, outer, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.imported.add(alias.name)
                    if alias.asname:
                        self.imports[alias.asname] = alias.name
                    else:
                        self.imports[alias.name.split(".")[0]] = alias.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                self.imported.update(f"{base}.{alias.name}" for alias in node.names)
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(base)
                        continue
                    self.imports.setdefault(alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.parts if self.file.name.endswith("__init__.py") else self.parts[:-1]
        package = package[: len(package) - (node.level - 1)] if node.level > 1 else package
        return ".".join((*package, *((node.module,) if node.module else ())))


class Stands(Protocol):
    """Modules that stand in for source, by the dotted name that a program imports."""

    def overriding(self, name: str) -> ModuleIndex | None: ...

    def standing_in(self, name: str) -> ModuleIndex | None: ...

    def in_place_of(self, cls: ClassInfo) -> ClassInfo | None: ...


class ProgramIndex:
    """All modules of a program, with the look-ups that cross files."""

    def __init__(self, modules: Iterable[ModuleIndex], models: Stands | None = None) -> None:
        self.modules = list(modules)
        self.models = models
        self._orders: dict[ClassInfo, list[ClassInfo]] = {}
        self._shared_by_kind: dict[Any, Any] = {}
        # Nothing of a program changes any more, and the analysis asks the same over and over.
        self._bases: dict[ClassInfo, list[ClassInfo | str]] = {}
        self._outside: dict[ClassInfo, list[str]] = {}
        self._models_of: dict[ClassInfo, ClassInfo | None] = {}
        self._attributes: dict[ClassInfo, frozenset[str]] = {}
        self._found: dict[tuple[str, ModuleIndex | None], ModuleIndex | None] = {}
        self._meanings: dict[tuple[str, ModuleIndex | None], Meaning] = {}
        self._by_tail: dict[str, list[ModuleIndex]] = {}
        for module in self.modules:
            for start in range(len(module.parts)):
                self._by_tail.setdefault(".".join(module.parts[start:]), []).append(module)

    def functions(self) -> Iterator[FunctionInfo]:
        for module in self.modules:
            yield from module.everything

    @cached_property
    def _by_name(self) -> dict[str, list[FunctionInfo]]:
        table: dict[str, list[FunctionInfo]] = {}
        for info in self.functions():
            table.setdefault(info.name, []).append(info)
        for cls in self.classes():
            # Whoever makes an instance may call it, too.
            table.setdefault(cls.name, []).extend(cls.entries)
        return table

    def named(self, name: str) -> list[FunctionInfo]:
        """What a call of this bare name may run; too many mean nothing."""
        found = self._by_name.get(name, [])
        return found if len(found) <= MAX_NAMESAKES else []

    @cached_property
    def _parts(self) -> frozenset[str]:
        return frozenset(part for module in self.modules for part in module.parts)

    def shared(self, kind: Callable[[ProgramIndex], T]) -> T:
        """What is worked out of this program once for all who ask, by the class that does it."""
        if kind not in self._shared_by_kind:
            self._shared_by_kind[kind] = kind(self)
        found: T = self._shared_by_kind[kind]
        return found

    def is_foreign(self, name: str, module: ModuleIndex) -> bool:
        """Whether a name in a module is that of one that is not part of the program, or of something in one."""
        dotted = module.imports.get(name, ".")
        return not dotted.startswith(".") and not self.knows(dotted.partition(".")[0])

    def knows(self, name: str) -> bool:
        """Whether a folder or file of the program has this name, so that an import that begins with it may mean it."""
        return name in self._parts and not is_outside(name)

    @cached_property
    def _places(self) -> dict[ModuleIndex, int]:
        """Each module with the number of the place that it lies in: a file or folder where the paths of all part."""
        numbers: dict[str, int] = {}
        return {m: numbers.setdefault(m.parts[self._shared], len(numbers)) for m in self.modules}

    @cached_property
    def _shared(self) -> int:
        """So many folders have all paths in common."""
        shared = 0
        while all(len(module.parts) > shared + 1 for module in self.modules):
            if len({module.parts[shared] for module in self.modules}) > 1:
                break
            shared += 1
        return shared

    @cached_property
    def _importers(self) -> list[int]:
        """For each place the places that import it, itself and by way of others included, as bits."""
        names: dict[int, set[str]] = {}
        tops: dict[int, set[str]] = {}
        for module, place in self._places.items():
            names.setdefault(place, set()).update(map(self._top_of, module.imported))
            # What can be imported by a name of its own lies at the top, or in the one folder that is there.
            inside = [part for part in module.parts[self._shared :] if part not in ("src", "lib", "python")]
            tops.setdefault(place, set()).update(part for part in inside[:2] if not is_outside(part))
        importers = [1 << place for place in range(len(names))]
        imported = {one: [other for other in tops if names[one] & tops[other]] for one in names}
        grown = True
        while grown:
            grown = False
            for one, others in imported.items():
                for other in others:
                    if importers[one] & ~importers[other]:
                        importers[other] |= importers[one]
                        grown = True
        return importers

    def _top_of(self, dotted: str) -> str:
        """The first part of a dotted name that tells one place from another."""
        shared = self.modules[0].parts[: self._shared]
        return "" if is_outside(dotted) else next((part for part in dotted.split(".") if part not in shared), "")

    def may_meet(self, one: ModuleIndex, other: ModuleIndex) -> bool:
        """Whether some module imports both, by way of others or not, so that one may get objects of the other."""
        places = self._places
        if one not in places or other not in places:
            return True  # Models may meet anything.
        return bool(self._importers[places[one]] & self._importers[places[other]])

    @cached_property
    def _families(self) -> dict[ClassInfo, ClassInfo]:
        """Each class with the one that stands for all that are related to it, as far as names of bases tell."""
        heads = {cls: cls for cls in self.classes()}

        def head(cls: ClassInfo) -> ClassInfo:
            while heads[cls] is not cls:
                heads[cls] = cls = heads[heads[cls]]
            return cls

        by_name: dict[str, list[ClassInfo]] = {}
        for cls in heads:
            by_name.setdefault(cls.name, []).append(cls)
        for cls in list(heads):
            for base in cls.bases:
                for other in by_name.get(base.rpartition(".")[2], ()):
                    heads[head(cls)] = head(other)
        return {cls: head(cls) for cls in heads}

    @cached_property
    def _family_names(self) -> dict[ClassInfo, frozenset[str]]:
        names: dict[ClassInfo, set[str]] = {}
        for cls, head in self._families.items():
            names.setdefault(head, set()).add(cls.name)
        return {head: frozenset(found) for head, found in names.items()}

    def mentions_family(self, module: ModuleIndex, cls: ClassInfo) -> bool:
        """Whether a module names a class, or one that is related to it, and so may well have an object of it."""
        family = self._families.get(cls)
        return family is None or module is cls.module or not self._family_names[family].isdisjoint(module.words)

    def are_related(self, one: ClassInfo, other: ClassInfo) -> bool:
        """Whether two classes may be parts of one object: they have a base in common, or a class that has both."""
        families = self._families
        return one not in families or other not in families or families[one] is families[other]

    def classes(self) -> Iterator[ClassInfo]:
        for module in self.modules:
            yield from module.classes.values()

    def module(self, name: str, importer: ModuleIndex | None = None) -> ModuleIndex | None:
        """
        The module whose dotted name ends like this. Of several the one that `importer` would find first, looking from
        its own folder upwards; none where that does not tell.
        """
        key = (name, importer)
        if key not in self._found:
            self._found[key] = self._find(name, importer)
        return self._found[key]

    def _find(self, name: str, importer: ModuleIndex | None) -> ModuleIndex | None:
        if is_outside(name):
            return None
        models = self.models
        if models is not None and (model := models.overriding(name)) is not None:
            return model
        found = self._by_tail.get(name, [])
        if not found and models is not None:
            return models.standing_in(name)
        if len(found) < 2 or importer is None:
            return found[0] if len(found) == 1 else None
        length = name.count(".") + 1
        above = {module: module.parts[: len(module.parts) - length] for module in found}
        near = [module for module in found if importer.parts[: len(above[module])] == above[module]]
        near.sort(key=lambda module: len(above[module]), reverse=True)
        return near[0] if near and near[0] is not importer else near[1] if len(near) > 1 else None

    def resolve(self, name: str, importer: ModuleIndex | None = None, depth: int = 0) -> Meaning:
        """
        What a dotted name means in a module, re-exports followed: a function, a class or a variable of the program, or
        else the qualified name of something outside it.
        """
        if depth:
            return self._resolved(name, importer, depth)
        known = self._meanings.get((name, importer))
        if known is None:
            known = self._meanings[name, importer] = self._resolved(name, importer, 0)
        return known

    def _resolved(self, name: str, importer: ModuleIndex | None, depth: int) -> Meaning:
        head, _, tail = name.rpartition(".")
        if not head or depth > MAX_REEXPORTS:
            return name
        module = self.module(head, importer)
        if module is None:
            around = self.resolve(head, importer, depth + 1)
            return self.resolve(f"{around}.{tail}", importer, depth + 1) if around not in (head, name) else name
        return self._from_outside(self.meaning(tail, module, depth), importer) or name

    def _from_outside(self, found: Meaning | None, importer: ModuleIndex | None) -> Meaning | None:
        """What a name of a module means elsewhere: of a class perhaps its model."""
        return (isinstance(found, ClassInfo) and found.module is not importer and self.model_of(found)) or found

    def model_of(self, cls: ClassInfo) -> ClassInfo | None:
        """The model that other modules mean instead of a class of the program."""
        if cls not in self._models_of:
            models = None if cls.module.is_model else self.models
            self._models_of[cls] = None if models is None else models.in_place_of(cls)
        return self._models_of[cls]

    def meaning(self, name: str, module: ModuleIndex, depth: int = 0) -> Meaning | None:
        """What a bare name means at the top level of a module; None where nothing there binds it."""
        if name in module.functions:
            return module.functions[name]
        if name in module.classes:
            return module.classes[name]
        if name in module.imports and not module.is_rebound(name):
            return self.resolve(module.imports[name], module, depth + 1)
        if name in module.assigned:
            return Variable(module, name)
        for source in module.stars if depth < MAX_REEXPORTS else ():
            inside = self.module(source, module)
            if inside is not None and (found := self.meaning(name, inside, depth + 1)) is not None:
                return self._from_outside(found, module)
        return None

    def definition(self, name: str, importer: ModuleIndex | None = None) -> Definition | None:
        """The function or class of the program that a dotted name means."""
        found = self.resolve(name, importer)
        return found if isinstance(found, (FunctionInfo, ClassInfo)) else None

    def bases(self, cls: ClassInfo) -> list[ClassInfo | str]:
        """The bases of a class: classes of the program, or the qualified names of others."""
        found = self._bases.get(cls)
        if found is None:
            found = self._bases[cls] = [
                self.resolve_class(base, cls.module, cls.outer) or qualified(base, cls.module) for base in cls.bases
            ]
        return found

    def resolve_class(self, name: str, module: ModuleIndex, outer: FunctionInfo | None = None) -> ClassInfo | None:
        while outer is not None:
            if name in outer.inner_classes:
                return outer.inner_classes[name]
            outer = outer.outer
        if name in module.classes:
            return module.classes[name]
        found = self.resolve(qualified(name, module), module) if "." in qualified(name, module) else None
        found = found or self.meaning(name, module)
        return found if isinstance(found, ClassInfo) else None

    def mro(self, cls: ClassInfo) -> list[ClassInfo]:
        """The class and its bases inside the program, in the order in which Python looks a method up."""
        return self._linearized(cls, ())

    def _linearized(self, cls: ClassInfo, below: tuple[ClassInfo, ...]) -> list[ClassInfo]:
        known = self._orders.get(cls)
        if known is not None:
            return known
        bases = [base for base in self.bases(cls) if isinstance(base, ClassInfo) and base not in (cls, *below)]
        rest = [self._linearized(base, (*below, cls)) for base in bases] + [bases]
        order = [cls]
        while rest := [each for each in rest if each]:
            heads = [each[0] for each in rest]
            # Python refuses bases in an order that contradicts itself; the first is as good as any.
            best = next((head for head in heads if not any(head in each[1:] for each in rest)), heads[0])
            if best not in order:
                order.append(best)
            rest = [[other for other in each if other is not best] for each in rest]
        if not below:
            self._orders[cls] = order
        return order

    def outside_bases(self, cls: ClassInfo) -> list[str]:
        """Qualified names of the bases that are not part of the program."""
        found = self._outside.get(cls)
        if found is None:
            found = [base for c in self.mro(cls) for base in self.bases(c) if isinstance(base, str)]
            self._outside[cls] = found
        return found

    def method(self, cls: ClassInfo, name: str) -> FunctionInfo | None:
        for current in self.mro(cls):
            if name in current.methods:
                return current.methods[name]
        return None

    def attributes(self, cls: ClassInfo) -> frozenset[str]:
        found = self._attributes.get(cls)
        if found is None:
            found = self._attributes[cls] = frozenset().union(*(current.attributes for current in self.mro(cls)))
        return found

    @cached_property
    def _holders(self) -> dict[str, list[ClassInfo]]:
        table: dict[str, list[ClassInfo]] = {}
        for cls in self.classes():
            for name in self.attributes(cls):
                table.setdefault(name, []).append(cls)
        return table

    def classes_with(self, names: Collection[str]) -> list[ClassInfo]:
        """The classes that have all of these attributes, at least one, in the order of the program."""
        rarest = min((self._holders.get(name, []) for name in names), key=len)
        return [cls for cls in rarest if all(name in self.attributes(cls) for name in names)]


def top_level_names(tree: ast.Module) -> frozenset[str]:
    """The classes and functions that a module defines."""
    return frozenset(n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)))


def qualified(name: str, module: ModuleIndex) -> str:
    """A dotted name with its first part replaced by what the module imported under it."""
    head, _, rest = name.partition(".")
    head = module.imports.get(head, head)
    return f"{head}.{rest}" if rest else head


def dotted(node: ast.expr) -> str | None:
    """``a.b.c`` as text, ``None`` for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Subscript):
        return dotted(node.value)
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _makes_container(node: ast.expr) -> bool:
    """Whether an expression is a new dict or set."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in (
            "dict",
            "set",
            "defaultdict",
            "OrderedDict",
            "Counter",
        )
    return isinstance(node, (ast.Dict, ast.DictComp, ast.Set, ast.SetComp))


def _calls_no_scaler(node: ast.expr) -> bool:
    """Whether an expression calls something that is not called after a scaler."""
    return isinstance(node, ast.Call) and "caler" not in (dotted(node.func) or "caler")


def _is_given_a_dict(call: ast.Call) -> bool:
    """Whether the arguments are those of a dict's `update`, and not of a scaler's."""
    keywords = [keyword.arg for keyword in call.keywords if keyword.arg != "new_scale"]
    return bool(keywords) or len(call.args) > 1 or any(map(_makes_container, call.args))


def _appends(node: ast.stmt) -> bool:
    """``self.callbacks.append(callback)``."""
    call = node.value if isinstance(node, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("append", "extend", "add")
        and isinstance(call.func.value, ast.Attribute)
    )


def _begins_with(node: ast.expr, name: str | None) -> bool:
    """Whether an expression is a name, or something of what the name stands for."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return isinstance(node, ast.Name) and node.id == name


def _drawn_from(node: ast.expr | None) -> str | None:
    """What `getattr(x, name)` and `table[key]` get something from."""
    if isinstance(node, ast.Subscript):
        return node.value.id if isinstance(node.value, ast.Name) else ANYTHING
    is_asked = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
    return ANYTHING if is_asked else None


def _handed_on(node: ast.AST) -> Iterator[ast.expr | None]:
    """The values that a node gives to something else as they are."""
    match node:
        case ast.Call():
            yield from node.args
            yield from (keyword.value for keyword in node.keywords)
        case ast.Tuple() | ast.List() | ast.Set():
            yield from node.elts
        case ast.Dict():
            yield from node.values
        case ast.BoolOp():
            yield from node.values
        case ast.IfExp() | ast.Lambda():
            yield node.body
            yield getattr(node, "orelse", None)
        case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() | ast.Return() | ast.Yield():
            yield node.value
        case ast.arguments():
            yield from (*node.defaults, *node.kw_defaults)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield from node.decorator_list


def _module_parts(filename: str) -> tuple[str, ...]:
    path = PurePath(filename.replace("\\", "/"))
    if path.suffix != ".ipynb":  # no import means a notebook: it keeps a name that is not that of the module beside it
        path = path.with_suffix("")
    parts = [part for part in path.parts if part not in ("/", "..", ".")]
    if parts and parts[-1] == "__init__":
        parts.pop()
    return tuple(parts) or ("__main__",)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements with those inside if, try, with, for and while, but not inside functions or classes."""
    for node in body:
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, name, ()))
        for handler in getattr(node, "handlers", ()):
            yield from _statements(handler.body)
        for case in getattr(node, "cases", ()):
            yield from _statements(case.body)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, but for those of nested functions and classes."""
    pending = list(ast.iter_child_nodes(node))
    while pending:
        current = pending.pop()
        yield current
        if not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(current))


def statements_in(node: ast.AST) -> list[ast.stmt]:
    """A statement and those in it at any depth, in the order of `ast.walk`, without a look into expressions."""
    found: list[Any] = [node]
    for current in found:
        for suite in ("body", "handlers", "orelse", "finalbody", "cases"):
            found += getattr(current, suite, ())
    return [statement for statement in found if isinstance(statement, ast.stmt)]


def targets_of(node: ast.AST) -> list[ast.expr]:
    """What an assignment assigns to, tuples taken apart."""
    if isinstance(node, ast.Assign):
        found = list(node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        found = [node.target]
    else:
        return []
    return [
        leaf for target in found for leaf in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
    ]
