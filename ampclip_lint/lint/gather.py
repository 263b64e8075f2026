"""From paths to the files of one program: found, read, sifted by the prefilter, and what they import from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from ampclip_lint.amp.models import names_of
from ampclip_lint.lint.config import Configs
from ampclip_lint.syntax import prefilter
from ampclip_lint.syntax.discover import Discovery, Found, discover
from ampclip_lint.syntax.neighbours import follow
from ampclip_lint.syntax.notebook import is_notebook, read_source
from ampclip_lint.syntax.source import FileProblem, SourceFile, decode, read_bytes


@dataclass
class Gathered:
    """The files of a run, by name."""

    found: Discovery
    sources: dict[str, SourceFile] = field(default_factory=dict)
    """Those that are analysed, those that are only imported included."""
    commented: dict[str, SourceFile] = field(default_factory=dict)
    """Those that are read for their suppression comments alone."""
    places: dict[str, Path] = field(default_factory=dict)
    """Where the file of a name stands."""
    problems: list[FileProblem] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    """The models of wrappers that the configurations describe."""

    @property
    def given(self) -> frozenset[str]:
        """The names of the files that the paths stand for."""
        return frozenset(file.name for file in self.found.files)


def find_files(paths: Iterable[str | PathLike[str]], configs: Configs) -> Discovery:
    """The files that `paths` stand for under these configurations."""
    found = discover(
        paths,
        excludes=configs.excludes,
        respect_gitignore=configs.settings.respect_gitignore,
        stdin_filename=configs.settings.stdin_filename,
    )
    if not configs.settings.force_exclude:
        return found
    return replace(found, files=tuple(file for file in found.files if not configs.is_excluded(place_of(file))))


def gather(
    paths: Sequence[str | PathLike[str]],
    configs: Configs,
    *,
    stdin: bytes | None = None,
    may_suppress: Callable[[bytes], bool] = lambda _data: False,
    judges: Callable[[Path], bool] = lambda _place: False,
) -> Gathered:
    """
    Read what `paths` stand for.

    `may_suppress` tells from its bytes whether a file may hold suppression comments, `judges` from its place whether
    those are of interest where the file itself is not.
    """
    reader = _Reader(Gathered(find_files(paths, configs)))
    remarks: list[tuple[Found, bytes]] = []
    for file in reader.result.found.files:
        # A broken configuration ends the run, also where the file does not matter.
        reader.result.models.update(configs.of_file(place_of(file)).models)
    reader.wrappers = frozenset(name.encode() for name in names_of(reader.result.models.values()))
    for file in reader.result.found.files:
        data = reader.bytes_of(file, stdin or b"")
        if data is None:
            continue
        if prefilter.is_candidate(file.name, data, reader.wrappers):
            reader.candidates.append((file, data))
        if may_suppress(data):
            remarks.append((file, data))
    folders_only = stdin is None and all(os.path.isdir(path) for path in paths)
    chosen = reader.with_imports(folders_only)
    reader.result.sources = {source.name: source for source in reader.read(chosen)}
    taken = {file.name for file, _ in chosen}
    rest = (item for item in remarks if item[0].name not in taken and judges(place_of(item[0])))
    reader.result.commented = {source.name: source for source in reader.read(rest)}
    return reader.result


def place_of(file: Found) -> Path:
    """Where a file stands for the purposes of configuration; standard input where its given name says."""
    return Path(file.name) if file.path is None else file.path


@dataclass
class _Reader:
    result: Gathered
    candidates: list[tuple[Found, bytes]] = field(default_factory=list)
    wrappers: frozenset[bytes] = frozenset()
    _notebooks: dict[str, SourceFile | FileProblem] = field(default_factory=dict)

    def bytes_of(self, file: Found, stdin: bytes) -> bytes | None:
        """The content of a file, None where it can't be had or is no text."""
        data = stdin if file.path is None else read_bytes(file.name, file.path)
        if isinstance(data, FileProblem):
            self.result.problems.append(data)
            return None
        if not data.isascii() or b"\0" in data:
            decoded = decode(file.name, file.path, data)
            if isinstance(decoded, FileProblem):
                self.result.problems.append(decoded)
                return None
        return data

    def with_imports(self, folders_only: bool) -> list[tuple[Found, bytes]]:
        """The files that make up the program, with those that they import."""
        chosen = self._select(self.candidates)
        # A file that is named alone may owe all that it has to do with scaling to what it imports; in a folder that
        # would have been found.
        origins = chosen if folders_only else self.candidates
        followed = follow(
            [(place_of(file), self._python(file, data)) for file, data in origins],
            [place_of(file) for file in self.result.found.files],
            self.wrappers,
        )
        self.result.problems += followed.problems
        return self._select([*self.candidates, *followed.files]) if followed.files else chosen

    def _select(self, files: Sequence[tuple[Found, bytes]]) -> list[tuple[Found, bytes]]:
        if not any(prefilter.is_seed(data, self.wrappers) for _, data in files):
            return []  # ... and no notebook need be opened.
        contents = [(file.name, self._python(file, data)) for file, data in files]
        return [files[index] for index in prefilter.select(contents, self.wrappers)]

    def read(self, files: Iterable[tuple[Found, bytes]]) -> Iterator[SourceFile]:
        """The texts of files, those left out that turn out to have none."""
        for file, data in files:
            source = self._open(file, data)
            if isinstance(source, SourceFile):
                self.result.places[file.name] = place_of(file)
                yield source
            elif file.name not in self._notebooks:  # ascii bytes under an unknown coding comment
                self.result.problems.append(source)

    def _open(self, file: Found, data: bytes) -> SourceFile | FileProblem:
        if not is_notebook(file.name):
            return read_source(file.name, file.path, data)
        if file.name not in self._notebooks:
            opened = self._notebooks[file.name] = read_source(file.name, file.path, data)
            if isinstance(opened, FileProblem):
                self.result.problems.append(opened)
        return self._notebooks[file.name]

    def _python(self, file: Found, data: bytes) -> bytes:
        """What the prefilter looks at: of a notebook the code, and nothing of one that is broken."""
        if not is_notebook(file.name):
            return data
        source = self._open(file, data)
        return source.text.encode() if isinstance(source, SourceFile) else b""
