"""Which files can matter at all, decided on their bytes. Errs towards keeping a file; a test holds it to that.

A finding needs a loss scale, so some file of the program must speak of one (a seed). What the seeds import belongs to
the program as soon as it handles gradients (a helper): half of all wrong orders are spread over functions, and a helper
that clips need not mention a scaler. So do the bases of classes there, whatever they speak of. Whatever imports a seed
may hold the loop that calls it, and so may what imports that.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

_SEED_WORDS = (b"GradScaler", b"unscale_", b"get_scale")
#: Wrappers of a scaler that the engine has models of: all words of a row say that a file may use one.
_MODELLED = (
    (b"NativeScaler",),
    (b"AmpOptimWrapper",),
    (b"AMPOptimizer",),
    (b"Accelerator", b"fp16"),
    (b"Fabric", b"16-mixed"),
)
#: So many files may stand between a seed and the loop that it is called in.
_LEVELS_ABOVE = 2
_LONGEST_GLUE = 200_000
_CLASS = re.compile(rb"^[ \t]*class[ \t]+\w+[ \t]*\(([^)]*)\)", re.MULTILINE)
_HELPER_WORDS = (b"clip", b"backward", b".grad", b"_grad", b"optim", b".step(")
_REEXPORT = re.compile(rb"\bGradScaler\s*\(|\bunscale_\(|\.scale\b")
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]*(?P<names>\([^)]*\)|[^\n#;]*)"
    rb"|import[ \t]+(?P<plain>[^\n#;]*))",
    re.MULTILINE,
)
_COMMENT = re.compile(rb"#[^\n]*")
_BOUND = re.compile(rb"([.\w]+|\*)(?:[ \t\\]+as[ \t\\]+(\w+))?")


def is_seed(data: bytes, wrappers: Collection[bytes] = ()) -> bool:
    """Whether the file itself speaks of a loss scaler, or of one of the `wrappers` that the user has described."""
    if any(word in data for word in (*_SEED_WORDS, *wrappers)):
        return True
    if any(all(word in data for word in row) for row in _MODELLED):
        return True
    # A scaler that came as an argument under any name: `s.scale(loss).backward()`; or `self.scaler.step(opt)` alone.
    if b".scale" in data and b"backward" in data:
        return True
    return (b"scaler" in data or b"Scaler" in data) and (b".step" in data or b".update" in data or b".scale" in data)


def is_helper(data: bytes) -> bool:
    """Whether the file can change, or order, what happens to gradients."""
    return any(word in data for word in _HELPER_WORDS)


def is_candidate(name: str, data: bytes, wrappers: Collection[bytes] = ()) -> bool:
    """Whether `select` has to see the file at all. A long file that speaks of nothing is no glue between others."""
    if len(data) <= _LONGEST_GLUE and b"import" in data:
        return True
    return is_seed(data, wrappers) or is_helper(data) or _is_package(name)


def mentions_scaler(text: str) -> bool:
    """`is_seed` for text that is decoded already."""
    return is_seed(text.encode("utf-8", "surrogatepass"))


def select(files: Sequence[tuple[str, bytes]], wrappers: Collection[bytes] = ()) -> list[int]:
    """The indices of the files (name, content) that make up the program, in order."""
    seeds = [
        index
        for index, (name, data) in enumerate(files)
        # A package that only passes GradScaler on would make a seed's friend of everything that imports it.
        if is_seed(data, wrappers) and not (_is_package(name) and not _REEXPORT.search(data))
    ]
    if not seeds or len(seeds) == len(files):
        return seeds
    modules = _Modules([_Module(name, data) for name, data in files])
    chosen = set(seeds)
    targets = set(seeds)
    for _ in range(_LEVELS_ABOVE):
        above = _importers(files, modules, targets)
        targets = {index for index in above if index not in chosen}
        chosen |= targets
    queue = sorted(chosen)
    while queue:
        start = queue.pop()
        for index in modules.bases_of(start) - chosen:
            chosen.add(index)
            queue.append(index)
        for index in modules.imported_by(start):
            # A package may only pass names on, but the way to them leads through it.
            if index not in chosen and (is_helper(files[index][1]) or _is_package(files[index][0])):
                chosen.add(index)
                if not _is_package(files[index][0]):
                    queue.append(index)
    return sorted(chosen)


def imports_of(data: bytes) -> list[tuple[str, str, str]]:
    """(module, name, bound as) of each import; the name is empty for a plain import, ``*`` for all names."""
    found = []
    for match in _IMPORT.finditer(data):
        text = _COMMENT.sub(b"", match["names"] if match["plain"] is None else match["plain"])
        for item in _BOUND.finditer(text):
            name, bound = item[1].decode("utf-8", "replace"), (item[2] or item[1]).decode("utf-8", "replace")
            if match["plain"] is None:
                found.append((match["module"].decode("utf-8", "replace"), name, bound))
            else:
                found.append((name, "", bound))
    return found


def _importers(files: Sequence[tuple[str, bytes]], modules: _Modules, targets: set[int]) -> Iterator[int]:
    """The files that import one of the targets."""
    stems = {name for index in targets for name in modules.names_of(index)}
    if not stems:
        return
    # Most files name none of them: that is seen faster than what they import is looked up.
    named = re.compile(rb"\b(?:" + b"|".join(re.escape(stem.encode()) for stem in sorted(stems)) + rb")\b")
    for index, (_, data) in enumerate(files):
        if b"import" in data and named.search(data) and not modules.imported_by(index).isdisjoint(targets):
            yield index


@dataclass
class _Module:
    name: str
    data: bytes

    @cached_property
    def folder(self) -> tuple[str, ...]:
        return _parts(posixpath.dirname(self.name))

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return self.folder if _is_package(self.name) else _parts(self.name.removesuffix(".py"))

    @cached_property
    def imports(self) -> list[tuple[str, str, str]]:
        return imports_of(self.data)


@dataclass
class _Modules:
    """Files as modules, without knowing where the import system looks: names match by their tail."""

    modules: list[_Module]
    _by_last: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _by_name: dict[tuple[tuple[str, ...], str], frozenset[int]] = field(default_factory=dict)
    _imported: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, module in enumerate(self.modules):
            if module.parts:
                self._by_last[module.parts[-1]].append(index)
        folders = [module.folder for module in self.modules]
        ends = zip(min(folders), max(folders))  # what these two share, all share
        self.top = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))

    def names_of(self, index: int) -> Iterator[str]:
        """The words of which an import of a module must hold one: its own name, and packages that pass it on."""
        parts = self.modules[index].parts
        while parts:
            yield parts[-1]
            packages = (
                (i for i in self._by_last.get(parts[-2], ()) if self.modules[i].parts == parts[:-1])
                if parts[1:]
                else ()
            )
            if not any(parts[-1].encode() in self.modules[i].data for i in packages):
                return
            parts = parts[:-1]

    def imported_by(self, index: int) -> frozenset[int]:
        """The modules that the names imported by a module come from, and the packages that they come through."""
        found = self._imported.get(index)
        if found is None:
            found = self._imported[index] = frozenset(self._origins(index))
        return found

    def bases_of(self, index: int) -> set[int]:
        """The modules that bases of the classes in a module come from, and the packages that they come through."""
        data = self.modules[index].data
        words = {word.decode() for bases in _CLASS.findall(data) for word in re.findall(rb"\w+", bases)}
        return self._origins(index, words) if words else set()

    def _origins(self, start: int, wanted: Collection[str] | None = None) -> set[int]:
        """Where what a module imports comes from; `wanted`: only what is bound to one of these names."""
        found: set[int] = set()
        pending = [
            (start, dotted, name)
            for dotted, name, bound in self.modules[start].imports
            if wanted is None or bound in wanted or bound.partition(".")[0] in wanted or name == "*"
        ]
        seen = set(pending)
        while pending:
            importer, dotted, name = pending.pop()
            folder = self.modules[importer].folder
            whole = dotted if not name else dotted + name if dotted.endswith(".") else f"{dotted}.{name}"
            inner = self._named(folder, whole) if name != "*" else frozenset()
            found |= inner
            for index in self._named(folder, dotted) if name and not inner else ():
                found.add(index)
                for source, original, bound in self.modules[index].imports:
                    if bound == name or original == "*" or name == "*":
                        # A name that a star brings may be any: look for it where the star points.
                        step = (index, source, name if original == "*" else original)
                        if step not in seen:
                            seen.add(step)
                            pending.append(step)
        return found

    def _named(self, folder: tuple[str, ...], dotted: str) -> frozenset[int]:
        """The modules that `dotted` may mean in a file of that folder."""
        found = self._by_name.get((folder, dotted))
        if found is None:
            found = self._by_name[folder, dotted] = frozenset(self._look_up(folder, dotted))
        return found

    def _look_up(self, folder: tuple[str, ...], dotted: str) -> Iterator[int]:
        bare = dotted.lstrip(".")
        level = len(dotted) - len(bare)
        parts = tuple(bare.split(".")) if bare else ()
        if level:
            parts = folder[: len(folder) - level + 1] + parts
        for index in self._by_last.get(parts[-1], ()) if parts else ():
            module = self.modules[index].parts
            root = module[: len(module) - len(parts)]
            # An absolute name is looked up from a folder above the importer, or from one near the top (`src`).
            if module[len(root) :] == parts and (
                not root if level else len(root) <= self.top + 1 or folder[: len(root)] == root
            ):
                yield index


def _is_package(name: str) -> bool:
    return posixpath.basename(name) == "__init__.py"


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", ".", ".."))
