"""From paths to the files of one program: found, read, sifted by the prefilter, and what they import from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from os import PathLike
from pathlib import Path

from ampclip_lint.amp.models import names_of
from ampclip_lint.lint.config import Configs
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.discover import Discovery, discover
from ampclip_lint.syntax.neighbours import follow
from ampclip_lint.syntax.notebook import is_notebook, read_source
from ampclip_lint.syntax.prefilter import Text, choose, is_helper, is_seed
from ampclip_lint.syntax.reading import FileProblem, Found, read_bytes
from ampclip_lint.syntax.scan import Look, look, scan
from ampclip_lint.syntax.source import SourceFile


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
    watched: list[str] = field(default_factory=list)
    """All files and folders that decided what the others are, there or not."""

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
    jobs: int = 0,
    prefiltered: bool = True,
) -> Gathered:
    """
    Read what `paths` stand for.

    `may_suppress` tells from its bytes whether a file may hold suppression comments, `judges` from its place whether
    those are of interest where the file itself is not. `jobs`: how many processes read, 0 for one on each processor.
    Not `prefiltered`, every file is taken for one that can matter: for the test that nothing is lost otherwise.
    """
    result = Gathered(find_files(paths, configs))
    files = result.found.files
    for folder in dict.fromkeys(os.path.dirname(os.path.abspath(place_of(file))) for file in files):
        # A broken configuration ends the run, also where the file does not matter.
        result.models.update(configs.of_folder(Path(folder)).models)
    wrappers = frozenset(name.encode() for name in names_of(result.models.values()))
    reader = _Reader(result, wrappers)
    result.watched += result.found.watched
    result.watched += (os.path.abspath(file.path) for file in files if file.path is not None)
    looks = scan(files, stdin=stdin or b"", wrappers=wrappers, may_suppress=may_suppress, jobs=jobs)
    reader.take(zip(files, looks))
    folders_only = stdin is None and all(os.path.isdir(path) for path in paths)
    chosen = reader.with_imports(folders_only) if prefiltered else reader.texts
    result.sources = {source.name: source for source in reader.read(chosen)}
    taken = {text.name for text in chosen}
    rest = [
        text
        for text, told in zip(reader.texts, reader.looks)
        if told.may_suppress and text.name not in taken and judges(place_of(reader.found[text.name]))
    ]
    result.commented = {source.name: source for source in reader.read(rest)}
    return result


def place_of(file: Found) -> Path:
    """Where a file stands for the purposes of configuration; standard input where its given name says."""
    return Path(file.name) if file.path is None else file.path


@dataclass
class _Reader:
    result: Gathered
    wrappers: frozenset[bytes] = frozenset()
    texts: list[Text] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    found: dict[str, Found] = field(default_factory=dict)
    _notebooks: dict[str, SourceFile | FileProblem] = field(default_factory=dict)

    def take(self, files: Iterable[tuple[Found, Look]]) -> None:
        """Note the files that can be read, and why the others can't."""
        for file, told in files:
            if told.problem is not None:
                self.result.problems.append(told.problem)
                continue
            self.found[file.name] = file
            self.looks.append(told)
            self.texts.append(Text(file.name, told.is_seed, told.lines, partial(self._python, file, told.data)))

    def with_imports(self, folders_only: bool) -> list[Text]:
        """The files that make up the program, with those that they import."""
        chosen = self._chosen()
        # A file that is named alone may owe all that it has to do with scaling to what it imports; in a folder that
        # would have been found.
        origins = chosen if folders_only else self.texts
        followed = follow(
            [(place_of(self.found[text.name]), text.imports) for text in origins],
            (file.identity for file in self.result.found.files),
        )
        self.result.problems += followed.problems
        self.result.watched += followed.watched
        if not any(is_helper(data) or is_seed(data, self.wrappers) for _, data in followed.files):
            return chosen
        self.take((file, look(file, data, self.wrappers)) for file, data in followed.files)
        return self._chosen()

    def _chosen(self) -> list[Text]:
        return [self.texts[index] for index in choose(self.texts, self.wrappers)]

    def read(self, texts: Iterable[Text]) -> Iterator[SourceFile]:
        """The texts of files, those left out that turn out to have none."""
        for text in texts:
            file = self.found[text.name]
            source = self._open(file, text.data)  # a notebook is open by then
            if isinstance(source, SourceFile):
                self.result.places[file.name] = place_of(file)
                yield source
            elif file.name not in self._notebooks:  # ascii bytes under an unknown coding comment, or gone meanwhile
                self.result.problems.append(source)

    def _open(self, file: Found, data: bytes) -> SourceFile | FileProblem:
        if not is_notebook(file.name):
            return read_source(file.name, file.path, data)
        if file.name not in self._notebooks:
            opened = self._notebooks[file.name] = read_source(file.name, file.path, data)
            if isinstance(opened, FileProblem):
                self.result.problems.append(opened)
        return self._notebooks[file.name]

    def _python(self, file: Found, data: bytes | None) -> bytes:
        """What the prefilter looks at: of a notebook the code, and nothing of one that is broken, or gone since."""
        if data is None and file.path is not None:
            again = read_bytes(file.name, file.path)
            if isinstance(again, FileProblem):
                self.result.problems.append(again)
                return b""
            data = again
        if not is_notebook(file.name):
            return data or b""
        source = self._open(file, data or b"")
        return source.text.encode() if isinstance(source, SourceFile) else b""
