"""Which files can matter at all, decided on their bytes. Errs towards keeping a file; a test holds it to that.

A finding needs a loss scale, so some file of the program must speak of one (a seed). Whatever imports from a seed what
takes part in scaling may hold the loop that calls it, and so may what imports that. What these use of other files
belongs to the program as soon as it handles gradients (a helper): half of all wrong orders are spread over functions,
and a helper that clips need not mention a scaler. So do the bases of classes, whatever they speak of.

Of a file of thousands of lines often one function counts. So what is used is followed, not what is imported: the text
is cut at the definitions that stand at its margin, and of a piece that counts the names are looked up.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import takewhile

from ampclip_lint.syntax.outside import is_outside

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
#: And so many between what counts and a helper that it calls in the end, those included that only pass a name on.
_LEVELS_BETWEEN = 3
_LONGEST_GLUE = 200_000
_HELPER_WORDS = (b"clip", b"backward", b".grad", b"_grad", b"optim", b".step(")

# Patterns are compiled where a file asks for them: most files do not, and a run over one file has no time for it.
#: In code no word but these follows a name: "backward compatible" is prose.
_NO_PROSE = rb"\b(?![ \t]+(?!(?:and|as|async|else|for|from|if|import|in|is|not|or)\b)\w)"
_IN_PLACE = rb"caler\.(?:scale|step|update)\b"
_PASSED_ON = rb"\bGradScaler\s*\(|\bunscale_\(|\.scale\b"
_IMPORT = (
    rb"(?m)^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]*(?P<names>\([^)]*\)|[^\n#;]*)"
    rb"|import[ \t]+(?P<plain>[^\n#;]*))"
)
_COMMENT = rb"#[^\n]*"
#: Whatever is no part of a name, as a blank.
_SPACED = bytes(c if c > 127 or chr(c).isalnum() or c == 95 else 32 for c in range(256))
_BOUND = rb"([.\w]+|\*)(?:[ \t\\]+as[ \t\\]+(\w+))?"
_MARGIN = rb"(?m)^(?:(?:async[ \t]+def|def|class)[ \t]+(\w+)|@|[^\s#)\]}\"'])"
_DEFINITION = rb"\n(?:async def|def|class)[ \t]+(\w+)"
_BASES = rb"(?m)^[ \t]*class[ \t]+\w+[ \t]*\(([^)]*)\)"
_HELP = (
    rb"clip\w*[ \t]*\(|clip_grad|\bbackward\b|\.grad\b|(?<!no)(?<!requires)_grad(?!_enabled|ient_check)"
    rb"|optim(?![iu](?!zer)|al)|\.step\("
)
_SMALL = 16
#: Lines of comment and strings, but for those with code in them. Each way begins with a character, for speed. A string
#: with more escapes than that is left in: one that never ends would be looked through from each of them.
_PROSE = (
    rb"\"(?<![fF]\")(?<![fF][rR]\")(?:\"\"[^\0]*?\"\"\"|[^\"\\\n]*(?:\\.[^\"\\\n]*){0,200}\")"
    rb"|'(?<![fF]')(?<![fF][rR]')(?:''[^\0]*?'''|[^'\\\n]*(?:\\.[^'\\\n]*){0,200}')|\n[ \t]*#[^\n]*"
)


def is_seed(data: bytes, wrappers: Collection[bytes] = ()) -> bool:
    """Whether the file itself speaks of a loss scaler, or of one of the `wrappers` that the user has described."""
    # Four letters are in all of the words that count, and not in most files.
    return (b"cale" in data and _speaks_of_scaling(data)) or _uses_wrapper(data, wrappers)


def _speaks_of_scaling(data: bytes) -> bool:
    if b"GradScaler" in data or _has(b"unscale_", data) or _has(b"get_scale", data):
        return True
    # A scaler that came as an argument under any name: `s.scale(loss).backward()`; or `self.scaler.step(opt)` alone.
    if b"backward" in data and _has(b"scale", data) and _has(b"backward", data):
        return True
    if b"caler" not in data:
        return False
    return (_has(b"scaler", data) and (_has(b"scale", data) or _has(b"step", data))) or (
        b"caler." in data and bool(re.search(_IN_PLACE, data))
    )


def _has(word: bytes, data: bytes) -> bool:
    """Whether `word` may stand in code, as a whole."""
    at = data.find(word)
    while at >= 0:
        end = at + len(word)
        if re.compile(_NO_PROSE).match(data, end) and not (at and re.match(rb"\w", data[at - 1 : at])):
            return True
        at = data.find(word, end)
    return False


def _uses_wrapper(data: bytes, wrappers: Collection[bytes]) -> bool:
    return any(all(word in data for word in row) for row in _MODELLED) or any(word in data for word in wrappers)


def is_helper(data: bytes) -> bool:
    """Whether the file can change, or order, what happens to gradients."""
    return any(word in data for word in _HELPER_WORDS)


def is_candidate(name: str, data: bytes) -> bool:
    """Whether an imported file is worth keeping. A long one that speaks of nothing is no glue between others."""
    if len(data) <= _LONGEST_GLUE and b"import" in data:
        return True
    return is_helper(data) or is_seed(data) or _is_package(name)


def mentions_scaler(text: str) -> bool:
    """`is_seed` for text that is decoded already."""
    return is_seed(text.encode("utf-8", "surrogatepass"))


def import_lines(data: bytes) -> bytes:
    """The lines of a file that may be import statements: what `imports_of` finds in them, it finds in the file."""
    lines = []
    at = data.find(b"import")
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        before = data[start:at].lstrip()
        if before and not before.startswith(b"from"):
            at = data.find(b"import", at + 6)
            continue
        end = data.find(b"\n", at)
        if end < 0:
            end = len(data)
        if b"(" in data[at:end]:
            close = data.find(b")", at)
            end = len(data) if close < 0 else close + 1
        lines.append(data[start:end])
        at = data.find(b"import", end)
    return b"\n".join(lines)


def _closed(data: bytes) -> bytes:
    """A text whose parentheses that nothing closes are others: for each of them, the rest would be searched in vain."""
    end = data.rfind(b")") + 1
    return data[:end] + data[end:].replace(b"(", b"[") if data.find(b"(", end) >= 0 else data


def imports_of(data: bytes) -> list[tuple[str, str, str]]:
    """(module, name, bound as) of each import; the name is empty for a plain import, ``*`` for all names."""
    found = []
    for match in re.finditer(_IMPORT, _closed(data)):
        text = re.sub(_COMMENT, b"", match["names"] if match["plain"] is None else match["plain"])
        for item in re.finditer(_BOUND, text):
            name, bound = item[1].decode("utf-8", "replace"), (item[2] or item[1]).decode("utf-8", "replace")
            if match["plain"] is None:
                found.append((match["module"].decode("utf-8", "replace"), name, bound))
            else:
                found.append((name, "", bound))
    return found


class Text:
    """A file for `choose`: what one look at it told, and its content, which is read again when that is not enough."""

    def __init__(self, name: str, is_seed: bool, lines: bytes | None, read: Callable[[], bytes]) -> None:
        self.name = name
        self.is_seed = is_seed
        self._lines = lines
        self._read = read
        self._members: dict[str, frozenset[str]] = {}

    @cached_property
    def data(self) -> bytes:
        return self._read()

    @property
    def lines(self) -> bytes:
        """The lines with its imports."""
        if self._lines is None:
            self._lines = import_lines(self.data)
        return self._lines

    @cached_property
    def imported(self) -> frozenset[bytes]:
        """The words of the lines with its imports."""
        return frozenset(self.lines.translate(_SPACED).split())

    @cached_property
    def imports(self) -> list[tuple[str, str, str]]:
        return imports_of(self.lines)

    @cached_property
    def folder(self) -> tuple[str, ...]:
        return _parts(posixpath.dirname(self.name))

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return self.folder if self.is_package else _parts(self.name.removesuffix(".py"))

    @property
    def is_package(self) -> bool:
        return _is_package(self.name)

    @cached_property
    def is_helper(self) -> bool:
        return is_helper(self.data)

    @cached_property
    def pieces(self) -> list[tuple[str, bytes]]:
        """The text cut at its margin: each definition with its name, and under no name what stands between."""
        return list(_pieces(self.data))

    @cached_property
    def definitions(self) -> dict[str, list[bytes]]:
        """The pieces by name; that of none is the body of the module."""
        found: dict[str, list[bytes]] = {"": []}
        for name, piece in self.pieces:
            found.setdefault(name, []).append(piece)
        return found

    @cached_property
    def codes(self) -> dict[str, bytes]:
        """The code of each definition, without comments and strings."""
        return {name: _code(b"\n".join(pieces)) for name, pieces in self.definitions.items()}

    @cached_property
    def words(self) -> dict[str, frozenset[str]]:
        """The words of each definition."""
        # To import a name is not to use it.
        return {
            name: _words(code if name else _code(re.sub(_IMPORT, b"", _closed(b"\n".join(self.definitions[""])))))
            for name, code in self.codes.items()
        }

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the definitions, without a look at anything else."""
        return frozenset(name.decode("utf-8", "replace") for name in re.findall(_DEFINITION, b"\n" + self.data))

    def members(self, name: str) -> frozenset[str]:
        """What is looked up in a name: of ``a.b.c`` in ``a`` both others."""
        found = self._members.get(name)
        if found is None:
            found = self._members[name] = self._looked_up_in(name)
        return found

    def _looked_up_in(self, name: str) -> frozenset[str]:
        chains = re.findall(re.escape(name.encode()) + rb"((?:\s*\.\s*\w+)+)", self.data)
        return frozenset(word.strip() for chain in set(chains) for word in chain.decode("utf-8", "replace").split("."))

    @cached_property
    def passed_on(self) -> dict[str, list[tuple[str, str]]]:
        """What comes from elsewhere: (module, name there) by its name here."""
        found: dict[str, list[tuple[str, str]]] = {}
        for module, name, bound in self.imports:
            if name not in ("", "*"):
                found.setdefault(bound, []).append((module, name))
        return found

    @cached_property
    def stars(self) -> tuple[str, ...]:
        """The modules of which all names are imported."""
        return tuple(dict.fromkeys(module for module, name, _ in self.imports if name == "*"))

    def speaking(self, wrappers: Collection[bytes]) -> frozenset[str]:
        """The definitions that take part in scaling by their own words: in one function, as the analysis wants it."""
        if _uses_wrapper(self.data, wrappers):
            words = {word.decode() for word in (*wrappers, *(row[0] for row in _MODELLED))}
            named = {name for name, found in self.words.items() if not words.isdisjoint(found)}
        else:
            named = set()
        return frozenset(
            name
            for name, pieces in self.definitions.items()
            if name in named or any(_speaks_of_scaling(part) for piece in pieces for part in _functions(_code(piece)))
        )

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that the body of the module gives to values, and some more."""
        return self.words[""] - self.definitions.keys() - self.passed_on.keys()

    @cached_property
    def bases(self) -> dict[str, frozenset[str]]:
        """The words of the bases of each class."""
        found = {}
        for name, pieces in self.definitions.items():
            lists = [bases for piece in pieces for bases in re.findall(_BASES, _closed(piece))]
            if lists:
                found[name] = _words(_code(b" ".join(lists)))
        return found

    @cached_property
    def _handling(self) -> frozenset[str]:
        own = {name for name, code in self.codes.items() if name and is_helper(code) and re.search(_HELP, code)}
        return self.leading(own) | own

    def handles_gradients(self, name: str) -> bool:
        """Whether a definition can change, or order, what happens to gradients."""
        return name in self._handling

    def is_small(self, name: str) -> bool:
        """Whether a definition is short enough to be an answer to something, or to make something."""
        return any(piece.count(b"\n") <= _SMALL for piece in self.definitions.get(name, ()))

    def leading(self, begin: Collection[str]) -> frozenset[str]:
        """The definitions that mention one of these names, or another such definition."""
        found: set[str] = set()
        pending = set(begin)
        while pending:
            pending = {name for name in self.words.keys() - found if not self.words[name].isdisjoint(pending)}
            found |= pending
            pending -= {""}
        return frozenset(found)


def _functions(piece: bytes) -> list[bytes]:
    """The methods of a class, each with what stands in it; anything else is whole."""
    if not piece.startswith(b"class"):
        return [piece]
    margins = [match[1] for match in re.finditer(rb"(?m)^([ \t]+)(?:async[ \t]+)?def[ \t]", piece)]
    if not margins:
        return [piece]
    return re.split(rb"\n(?=" + min(margins, key=len) + rb"(?:async[ \t]+)?def[ \t])", piece)


def _pieces(data: bytes) -> Iterator[tuple[str, bytes]]:
    if data.count(b'"""') % 2 or data.count(b"'''") % 2:
        # Where strings begin and end is not clear: all is one piece, under every name.
        for match in re.finditer(_MARGIN, data):
            if match[1]:
                yield match[1].decode("utf-8", "replace"), data
        yield "", data
        return
    start, name, counted, inside = 0, "", 0, [0, 0]
    for match in re.finditer(_MARGIN, data):
        at = match.start()
        for index, quotes in enumerate((b'"""', b"'''")):
            inside[index] += data.count(quotes, counted, at)
        counted = at
        if any(number % 2 for number in inside):
            continue
        if at > start:
            yield name, data[start:at]
        start, name = at, match[1].decode("utf-8", "replace") if match[1] else ""
    yield name, data[start:]


def _code(piece: bytes) -> bytes:
    return re.sub(_PROSE, b"", piece)


def _words(code: bytes) -> frozenset[str]:
    """The words of a text without prose, numbers among them."""
    return frozenset(code.translate(_SPACED).decode("utf-8", "replace").split())


def select(files: Sequence[tuple[str, bytes]], wrappers: Collection[bytes] = ()) -> list[int]:
    """The indices of the files (name, content) that make up the program, in order."""
    return choose([Text(name, is_seed(data, wrappers), None, _same(data)) for name, data in files], wrappers)


def _same(data: bytes) -> Callable[[], bytes]:
    return lambda: data


def choose(files: Sequence[Text], wrappers: Collection[bytes] = ()) -> list[int]:
    """The indices of the files that make up the program, in order."""
    speaking: dict[int, frozenset[str]] = {}
    for index, file in enumerate(files):
        # A package that only passes GradScaler on would make a seed's friend of everything that imports it.
        if file.is_seed and not (file.is_package and not re.search(_PASSED_ON, file.data)):
            names = file.speaking(wrappers)
            if names:
                speaking[index] = names
    if not speaking or len(speaking) == len(files):
        return sorted(speaking)
    modules = _Modules(files)
    leading = {index: names | files[index].leading(names) for index, names in speaking.items()}
    targets = dict(leading)
    for _ in range(_LEVELS_ABOVE):
        targets = dict(_above(modules, leading, targets))
        leading.update(targets)
    use = _Use(modules, set(leading))
    for index, names in leading.items():
        for name in names:
            use.need(index, name)
    return sorted(use.chosen)


def _above(
    modules: _Modules, leading: dict[int, frozenset[str]], targets: dict[int, frozenset[str]]
) -> Iterator[tuple[int, frozenset[str]]]:
    """The files that import what leads in one of the targets, with what leads in them for that."""
    stems = {name for index in targets for name in modules.names_of(index)}
    if not stems:
        return
    tokens = {stem.encode() for stem in stems}
    wanted = frozenset().union(*targets.values()) - {""}
    giving: dict[int, frozenset[str]] = {}

    def given_by(module: int) -> frozenset[str]:
        found = giving.get(module)
        if found is None:
            found = giving[module] = frozenset(name for name in wanted if leads(modules.exported(module, name)))
        return found

    def leads(exports: Iterable[_Export]) -> bool:
        return any(name in targets.get(index, ()) for index, name, _ in exports)

    for index, file in enumerate(modules.files):
        # Most files name none of them: that is seen faster than what they import is looked up.
        if index in leading or tokens.isdisjoint(file.imported):
            continue
        begin: set[str] = set()
        for dotted, name, bound in file.imports:
            if stems.isdisjoint((name, *dotted.split("."))):
                continue
            for module in (whole := modules.whole(file, dotted, name)):
                if given := given_by(module):
                    begin |= given & (
                        _words(_code(file.data)) if name == "*" else file.members(bound.partition(".")[0])
                    )
            if not whole and leads(modules.named_in(file, dotted, name)):
                begin.add(bound)
        names = file.leading(begin)
        if names:
            yield index, names


class _Use:
    """What the definitions that count use of other files."""

    def __init__(self, modules: _Modules, chosen: set[int]) -> None:
        self.modules = modules
        self.chosen = chosen
        #: A file and a name in it, and the files before it that only lead there.
        self._pending: list[tuple[int, str, tuple[int, ...]]] = []
        self._seen: set[tuple[int, str, tuple[int, ...]]] = set()

    def need(self, index: int, name: str) -> None:
        """A definition counts, and all that it uses."""
        self._pending.append((index, name, ()))
        while self._pending:
            todo = self._pending.pop()
            if todo not in self._seen and (todo[0], todo[1], ()) not in self._seen:
                self._seen.add(todo)
                self._look_at(*todo)

    def _look_at(self, index: int, name: str, glue: tuple[int, ...]) -> None:
        file = self.modules.files[index]
        words = file.words.get(name, frozenset())
        self._pending += [(index, other, glue) for other in file.definitions.keys() & words]
        if name and not words.isdisjoint(file.variables):
            self._pending.append((index, "", glue))
        bases = file.bases.get(name, frozenset())
        for dotted, original, bound in file.imports:
            head = bound.partition(".")[0]
            if head not in words and original != "*":
                continue
            whole = self.modules.whole(file, dotted, original)
            asked = words if original == "*" else words & file.members(head) if whole else ()
            for module in whole:
                for word in asked:
                    is_base = not bases.isdisjoint((head, word))
                    self._follow(self.modules.exported(module, word), is_base, glue)
            if not whole:
                self._follow(self.modules.named_in(file, dotted, original), head in bases, glue)

    def _follow(self, exports: Iterable[_Export], is_base: bool, glue: tuple[int, ...]) -> None:
        for index, name, through in exports:
            file = self.modules.files[index]
            there = name if name in file.names else ""
            helps = file.is_helper and (not there or file.handles_gradients(there))
            if helps or (not glue and (is_base or (file.is_helper and file.is_small(there)))):
                self.chosen.update((index, *through, *glue))
                self._pending.append((index, there, ()))
            elif there and len(glue) < _LEVELS_BETWEEN and index not in glue:
                self._pending.append((index, there, (*glue, index, *through)))


#: The file that defines a name, the name there, and the files that only pass it on.
_Export = tuple[int, str, tuple[int, ...]]


class _Modules:
    """Files as modules, without knowing where the import system looks: names match by their tail."""

    def __init__(self, files: Sequence[Text]) -> None:
        self.files = files
        self._by_last: dict[str, list[int]] = defaultdict(list)
        self._by_tail: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
        self._by_name: dict[tuple[tuple[str, ...], str], frozenset[int]] = {}
        self._exports: dict[tuple[int, str], list[_Export]] = {}
        self._stars: dict[int, dict[str, list[_Export]]] = {}
        for index, file in enumerate(files):
            if file.parts:
                self._by_last[file.parts[-1]].append(index)
        folders = [file.folder for file in files]
        ends = zip(min(folders), max(folders))  # what these two share, all share
        self.top = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))

    def names_of(self, index: int) -> Iterator[str]:
        """The words of which an import of a module must hold one: its own name, and packages that pass it on."""
        parts = self.files[index].parts
        while parts:
            yield parts[-1]
            packages = (
                (i for i in self._by_last.get(parts[-2], ()) if self.files[i].parts == parts[:-1]) if parts[1:] else ()
            )
            if not any(parts[-1].encode() in self.files[i].lines for i in packages):
                return
            parts = parts[:-1]

    def whole(self, importer: Text, dotted: str, name: str) -> frozenset[int]:
        """The modules that an import brings as a whole, or all names of."""
        return self._named(importer.folder, dotted if name in ("", "*") else _joined(dotted, name))

    def named_in(self, importer: Text, dotted: str, name: str) -> Iterator[_Export]:
        """Where a name that an import brings comes from."""
        for index in self._named(importer.folder, dotted):
            found = self.exported(index, name)
            yield from found
            if not found and name in self.files[index].variables:
                yield index, name, ()

    def exported(self, index: int, name: str) -> list[_Export]:
        """The files that define what is called `name` in a module, the name there, and the files on the way."""
        file = self.files[index]
        if name in file.names:
            return [(index, name, ())]
        if name in file.passed_on:
            found = self._exports.get((index, name))
            if found is None:
                self._exports[index, name] = []  # imports may go round in circles
                found = self._exports[index, name] = list(self._passed_on(index, name))
            return found
        return self._starred(index).get(name, []) if file.stars else []

    def _passed_on(self, index: int, name: str) -> Iterator[_Export]:
        folder = self.files[index].folder
        for dotted, original in self.files[index].passed_on[name]:
            if not self._named(folder, _joined(dotted, original)):
                for inner in self._named(folder, dotted):
                    for found, there, through in self.exported(inner, original):
                        yield found, there, (index, *through)

    def _starred(self, index: int) -> dict[str, list[_Export]]:
        """What comes into a module by stars, directly or through others; of namesakes the first, as for the index."""
        found = self._stars.get(index)
        if found is None:
            found = self._stars[index] = {}
            seen = {index}
            pending: list[tuple[int, tuple[int, ...]]] = [(index, ())]
            while pending:
                current, way = pending.pop()
                file = self.files[current]
                if way:
                    for name in file.names:
                        found.setdefault(name, [(current, name, way)])
                    for name in file.passed_on:
                        if name not in found:
                            found[name] = [(i, there, (*way, *via)) for i, there, via in self.exported(current, name)]
                inner = [i for star in file.stars for i in sorted(self._named(file.folder, star)) if i not in seen]
                seen.update(inner)
                pending += [(i, (*way, current)) for i in reversed(inner)]
        return found

    def _named(self, folder: tuple[str, ...], dotted: str) -> frozenset[int]:
        """The modules that `dotted` may mean in a file of that folder."""
        if not dotted.startswith(".") and (is_outside(dotted) or not self._ending_in(dotted)):
            return frozenset()
        found = self._by_name.get((folder, dotted))
        if found is None:
            found = self._by_name[folder, dotted] = frozenset(self._look_up(folder, dotted))
        return found

    def _look_up(self, folder: tuple[str, ...], dotted: str) -> Iterator[int]:
        bare = dotted.lstrip(".")
        level = len(dotted) - len(bare)
        if level:
            parts = folder[: len(folder) - level + 1] + (tuple(bare.split(".")) if bare else ())
            for index in self._by_last.get(parts[-1], ()) if parts else ():
                if self.files[index].parts == parts:
                    yield index
            return
        # An absolute name is looked up from a folder above the importer, or from one near the top (`src`).
        for index, root in self._ending_in(bare):
            if len(root) <= self.top + 1 or folder[: len(root)] == root:
                yield index

    def _ending_in(self, dotted: str) -> list[tuple[int, tuple[str, ...]]]:
        """The modules whose names end like this, with what stands before."""
        found = self._by_tail.get(dotted)
        if found is None:
            parts = tuple(dotted.split("."))
            found = self._by_tail[dotted] = [
                (index, self.files[index].parts[: -len(parts)])
                for index in self._by_last.get(parts[-1], ())
                if self.files[index].parts[-len(parts) :] == parts
            ]
        return found


def _joined(dotted: str, name: str) -> str:
    return dotted + name if dotted.endswith(".") else f"{dotted}.{name}"


def _is_package(name: str) -> bool:
    return posixpath.basename(name) == "__init__.py"


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", ".", ".."))
