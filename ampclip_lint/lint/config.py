"""Settings: the configuration file nearest to each source file, and the command line above it."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.errors import ToolError, nearest
from ampclip_lint.lint.rule import Rule
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.discover import DEFAULT_EXCLUDES, Excludes, gitignore_spec
from ampclip_lint.syntax.source import FileProblem, decode, display_name, read_bytes

OWN_FILE = "ampclip-lint.toml"
TABLE = "ampclip-lint"
FAIL_ON = ("error", "warning", "info", "never")
Kind = Literal["codes", "codes by pattern", "patterns", "threshold", "path", "models"]


@dataclass(frozen=True)
class Option:
    """One key of a configuration: the parser, the JSON schema and the documentation read this table."""

    key: str
    kind: Kind
    doc: str
    """What it does, in a sentence without its period."""
    default: object = None
    """As TOML has it; None where the absence of the key says something that no value does."""


OPTIONS = (
    Option("select", "codes", "The rules that are on, instead of all but those of severity info"),
    Option("extend-select", "codes", "Rules that are on as well", []),
    Option("ignore", "codes", "Rules that are off", []),
    Option("per-file-ignores", "codes by pattern", "Rules that are off in the files that a pattern fits", {}),
    Option("exclude", "patterns", "What is not read, instead of the defaults", list(DEFAULT_EXCLUDES)),
    Option("extend-exclude", "patterns", "What else is not read", []),
    Option("fail-on", "threshold", "The least severity that makes the exit code 1", "warning"),
    Option("baseline", "path", "The file of findings that are accepted for now"),
    Option("models", "models", "Stand-ins for modules that lie outside the program", {}),
)
KEYS = tuple(option.key for option in OPTIONS)


class ConfigError(ToolError):
    """A configuration that can't be used, with the file that it stands in."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{display_name(path)}: {reason}")


@dataclass(frozen=True)
class Selection:
    """One layer of ``select``, ``extend-select`` and ``ignore``; `select` None keeps what the layer below selected."""

    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True)
class Config:
    """One configuration file; the defaults where there is none."""

    base: Path
    path: Path | None = None
    selection: Selection = Selection()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = DEFAULT_EXCLUDES
    extend_exclude: tuple[str, ...] = ()
    fail_on: str = "warning"
    baseline: Path | None = None
    models: tuple[tuple[str, str], ...] = ()
    """Dotted names of modules, with the Python text that stands for each."""
    given: frozenset[str] = frozenset()
    """The keys that stand in the file."""

    @cached_property
    def excludes(self) -> Excludes:
        return Excludes(self.base, (*self.exclude, *self.extend_exclude))


@dataclass(frozen=True)
class Settings:
    """What the command line (or a caller) asks for, over whatever the configuration files say."""

    selection: Selection = Selection()
    fail_on: str | None = None
    pedantic: bool = False
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    respect_gitignore: bool = True
    force_exclude: bool = False
    """What is excluded is not read where it is named itself, either: for callers that name every file."""
    config_file: Path | None = None
    isolated: bool = False
    stdin_filename: str | None = None
    baseline: Path | None = None
    no_baseline: bool = False
    """Hold nothing against any baseline, whatever the configuration says."""
    renew_baseline: bool = False
    """`baseline` is about to be written: it may be missing yet."""


@dataclass(frozen=True)
class Effective:
    """A value that counts, and where it comes from: ``default``, ``command line`` or a file."""

    key: str
    value: object
    origin: str


@dataclass
class Configs:
    """Finds and remembers the configuration of each folder."""

    settings: Settings
    rules: Mapping[str, Rule]
    _by_folder: dict[Path, Config] = field(default_factory=dict)
    _excludes: dict[int, Excludes] = field(default_factory=dict)
    _codes: dict[int, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def _given(self) -> Config | None:
        if self.settings.config_file is not None:
            return read_config(self.settings.config_file, self.rules)
        return Config(Path.cwd()) if self.settings.isolated else None

    @property
    def watched(self) -> Iterator[str]:
        """The files that were looked for, there or not: where these are as they were, the configurations are."""
        if self.settings.config_file is not None:
            yield os.path.abspath(self.settings.config_file)
        for folder in self._by_folder:
            yield os.path.join(folder, OWN_FILE)
            yield os.path.join(folder, "pyproject.toml")

    def of_folder(self, folder: Path) -> Config:
        """The nearest configuration at or above `folder` (absolute)."""
        if self._given is not None:
            return self._given
        found = self._by_folder.get(folder)
        if found is None:
            own = read_folder(folder, self.rules)
            if own is not None:
                found = own
            else:
                found = Config(Path.cwd()) if folder.parent == folder else self.of_folder(folder.parent)
            self._by_folder[folder] = found
        return found

    def of_file(self, path: Path) -> Config:
        return self.of_folder(Path(os.path.abspath(path)).parent)

    def excludes(self, folder: Path) -> Excludes:
        """What is not entered or read below `folder`."""
        config = self.of_folder(folder)
        found = self._excludes.get(id(config))
        if found is None:
            settings = self.settings
            if settings.exclude is None and not settings.extend_exclude:
                found = config.excludes
            else:
                # Patterns of the command line are relative to where the command runs.
                base = Path.cwd() if settings.exclude is not None else config.base
                own = config.exclude if settings.exclude is None else settings.exclude
                found = Excludes(base, (*own, *config.extend_exclude, *settings.extend_exclude))
            self._excludes[id(config)] = found
        return found

    def is_excluded(self, path: Path) -> bool:
        """Whether a walk from the folder of the configuration would not come to the file at `path`."""
        whole = Path(os.path.abspath(path))
        excludes = self.excludes(whole.parent)
        inside = [folder for folder in whole.parents if folder != excludes.base and excludes.base in folder.parents]
        return excludes.match(str(whole), False) or any(excludes.match(str(folder), True) for folder in inside)

    def codes(self, path: Path) -> frozenset[str]:
        """The codes that are reported for the file at `path`."""
        config = self.of_file(path)
        selected = self.selected(config)
        for pattern, ignored in config.per_file_ignores:
            relative = os.path.relpath(os.path.abspath(path), config.base).replace(os.sep, "/")
            if gitignore_spec([pattern]).match_file(relative):
                selected -= expand(ignored, self.rules)
        return selected

    def selected(self, config: Config) -> frozenset[str]:
        """The codes that are on under that configuration, before the patterns for single files."""
        selected = self._codes.get(id(config))
        if selected is None:
            selected = selected_codes(self.rules, (config.selection, self.settings.selection))
            self._codes[id(config)] = selected
        return selected

    @property
    def any_baseline(self) -> bool:
        """Whether there is a baseline for any file that was asked about."""
        if self.settings.baseline is not None or self.settings.no_baseline:
            return not self.settings.no_baseline
        met = self._by_folder.values() if self._given is None else (self._given,)
        return any(config.baseline is not None for config in met)

    def baseline(self, path: Path) -> Path | None:
        """The baseline that findings in the file at `path` are held against."""
        if self.settings.no_baseline:
            return None
        return self.settings.baseline or self.of_file(path).baseline

    def effective(self, path: Path) -> list[Effective]:
        """The settings for the file or folder at `path`: of every key each value that counts, with where it is from."""
        whole = Path(os.path.abspath(path))
        config = self.of_folder(whole) if whole.is_dir() else self.of_file(whole)
        asked = self.settings
        file = "default" if config.path is None else display_name(config.path)
        by_file: dict[str, object] = {
            "select": config.selection.select,
            "extend-select": config.selection.extend_select,
            "ignore": config.selection.ignore,
            "per-file-ignores": dict(config.per_file_ignores),
            "exclude": config.exclude,
            "extend-exclude": config.extend_exclude,
            "fail-on": config.fail_on,
            "baseline": config.baseline and display_name(config.baseline),
            "models": dict(config.models),
        }
        by_command: dict[str, object] = {
            "select": asked.selection.select,
            "extend-select": asked.selection.extend_select,
            "ignore": asked.selection.ignore,
            "exclude": asked.exclude,
            "extend-exclude": asked.extend_exclude,
            "fail-on": asked.fail_on,
            "baseline": asked.baseline and display_name(asked.baseline),
        }
        overridden = {key for key, value in by_command.items() if value not in (None, ())}
        overridden |= {"baseline"} if asked.no_baseline else set()
        given = config.given
        if asked.selection.select is not None:  # starts anew: whatever the file selects and ignores is gone
            by_file |= dict.fromkeys(("extend-select", "ignore"), ())
            given -= {"extend-select", "ignore"}
        found = []
        for key in KEYS:
            if key not in overridden or (by_file[key] and key in ("extend-select", "ignore", "extend-exclude")):
                found.append(Effective(key, by_file[key], file if key in given else "default"))
            if key in overridden:
                found.append(Effective(key, by_command[key], "command line"))
        return found

    def fails(self, path: Path, severity: Severity) -> bool:
        """Whether a finding of that severity in that file makes the run fail."""
        threshold = self.settings.fail_on or self.of_file(path).fail_on
        return threshold != "never" and FAIL_ON.index(severity.value) <= FAIL_ON.index(threshold)


def selected_codes(rules: Mapping[str, Rule], layers: Iterable[Selection]) -> frozenset[str]:
    """The codes left when each layer is laid over the one before. Without a word, all but ``info`` rules are on.

    Inside a layer the more specific selector wins (``ignore = ["AMP1"]`` with ``extend-select = ["AMP101"]`` keeps
    AMP101); of two equally specific ones, ``ignore``.
    """
    codes = frozenset(code for code, rule in rules.items() if rule.severity is not Severity.INFO)
    for layer in layers:
        if layer.select is not None:
            codes = frozenset()
        wanted = (*(layer.select or ()), *layer.extend_select)
        verdicts: dict[str, tuple[int, bool]] = {}
        for selectors, verdict in ((wanted, True), (layer.ignore, False)):
            for selector in selectors:
                for code, weight in _matches(selector, rules).items():
                    if weight > verdicts.get(code, (-1, False))[0] or (
                        not verdict and weight == verdicts.get(code, (-1, False))[0]
                    ):
                        verdicts[code] = (weight, verdict)
        codes |= {code for code, (_, on) in verdicts.items() if on}
        codes -= {code for code, (_, on) in verdicts.items() if not on}
    return codes


def expand(selectors: Iterable[str], rules: Mapping[str, Rule]) -> frozenset[str]:
    """The codes that the selectors (codes, prefixes of codes, names, ``ALL``) stand for."""
    return frozenset(code for selector in selectors for code in _matches(selector, rules))


def _matches(selector: str, rules: Mapping[str, Rule]) -> dict[str, int]:
    """Code to specificity, for the rules that `selector` stands for."""
    word = selector.strip()
    if word.upper() == "ALL":
        return dict.fromkeys(rules, 0)
    found = {code: len(word) for code in rules if word and code.startswith(word.upper())}
    found.update({code: len(code) for code, rule in rules.items() if rule.name == word.lower()})
    if not found:
        known = [*rules, *(rule.name for rule in rules.values())]
        raise ToolError(f"no rule `{selector}` to select or ignore{nearest(word, known)}")
    return found


def read_folder(folder: Path, rules: Mapping[str, Rule]) -> Config | None:
    """The configuration that stands in `folder` itself."""
    own = folder / OWN_FILE
    if own.is_file():
        return read_config(own, rules)
    project = folder / "pyproject.toml"
    if project.is_file():
        if not _names_this(project):
            return None
        table = _load(project).get("tool", {})
        if isinstance(table, dict) and TABLE in table:
            return parse_config(project, table[TABLE], rules)
        for name in table if isinstance(table, dict) else ():
            if name.lower().replace("_", "-") == TABLE:  # would be passed over without a word
                raise ConfigError(project, f"unknown table `tool.{name}`; did you mean `tool.{TABLE}`?")
    return None


def read_config(path: Path, rules: Mapping[str, Rule]) -> Config:
    """The configuration in the file that was named: its ``[tool.ampclip-lint]`` table, or else all of it."""
    data = _load(path)
    tool = data.get("tool")
    if isinstance(tool, dict) and TABLE in tool:
        return parse_config(path, tool[TABLE], rules)
    return parse_config(path, {} if path.name == "pyproject.toml" else data, rules)


def _names_this(path: Path) -> bool:
    """Whether a file that others configure in speaks of this tool at all; whether it is right is theirs to say else."""
    try:
        return b"ampclip" in path.read_bytes().lower()
    except OSError:
        return True  # which is to be told


def _load(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data: dict[str, Any] = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(path, f"can't be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(path, f"not valid utf-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, f"not valid TOML: {error}") from error
    except (RecursionError, ValueError) as error:  # a value that Python refuses to make
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(path, f"can't be read: {reason}") from error
    return data


def parse_config(path: Path, table: object, rules: Mapping[str, Rule]) -> Config:
    """
    Check a table and make a `Config` of it; what it names is relative to the folder of `path`.

    Raises:
        ConfigError: for an unknown key, a value of another type, or a rule that does not exist.
    """
    if not isinstance(table, dict):
        raise ConfigError(path, f"`tool.{TABLE}` is not a table")
    for key in table:
        if key not in KEYS:
            raise ConfigError(path, f"unknown key `{key}`{nearest(key, KEYS)}")
    read = {
        option.key: _PARSERS[option.kind](path, option.key, table[option.key], rules)
        for option in OPTIONS
        if option.key in table
    }
    selection = Selection(read.pop("select", None), read.pop("extend-select", ()), read.pop("ignore", ()))
    fields = {key.replace("-", "_"): value for key, value in read.items()}
    base = Path(os.path.abspath(path)).parent
    return Config(base=base, path=path, selection=selection, given=frozenset(table), **fields)


def _words(path: Path, key: str, value: object, _rules: Mapping[str, Rule]) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(path, f"`{key}` is not a list of strings")
    return tuple(value)


def _selectors(path: Path, key: str, value: object, rules: Mapping[str, Rule]) -> tuple[str, ...]:
    found = _words(path, key, value, rules)
    try:
        expand(found, rules)
    except ToolError as error:
        raise ConfigError(path, f"`{key}`: {error}") from error
    return found


def _selectors_by_pattern(
    path: Path, key: str, value: object, rules: Mapping[str, Rule]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict):
        raise ConfigError(path, f"`{key}` is not a table of patterns to lists of codes")
    return tuple((pattern, _selectors(path, f"{key}.{pattern}", codes, rules)) for pattern, codes in value.items())


def _threshold(path: Path, key: str, value: object, _rules: Mapping[str, Rule]) -> str:
    if not isinstance(value, str) or value not in FAIL_ON:
        raise ConfigError(path, f"`{key}` is none of {', '.join(FAIL_ON)}: {value!r}")
    return value


def _file(path: Path, key: str, value: object, _rules: Mapping[str, Rule]) -> Path:
    if not isinstance(value, str) or not value:
        raise ConfigError(path, f"`{key}` is not the path of a file")
    return Path(os.path.abspath(path)).parent / value


def _models(path: Path, key: str, table: object, _rules: Mapping[str, Rule]) -> tuple[tuple[str, str], ...]:
    """Check the models of wrappers: module name to Python text, or to the file that has it."""
    if not isinstance(table, dict):
        raise ConfigError(path, f"`{key}` is not a table of module names to Python text")
    found = []
    for name, value in table.items():
        where = f"`{key}.{name}`"
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(path, f'{where} is not the name of a module: write it in quotes, as in {key}."acme.amp"')
        if not isinstance(value, str):
            raise ConfigError(path, f"{where} is neither Python text nor the path of a Python file")
        text = value
        if value.endswith(".py") and "\n" not in value:
            file = Path(os.path.abspath(path)).parent / value
            read = read_bytes(str(file), file)
            source = read if isinstance(read, FileProblem) else decode(str(file), file, read)
            if isinstance(source, FileProblem):
                raise ConfigError(path, f"{where}: {value}: {source.reason}")
            text, where = source.text, f"{where} ({value})"
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise ConfigError(path, f"{where}, line {error.lineno}: not valid Python: {error.msg}") from error
        except (ValueError, RecursionError, MemoryError) as error:
            reason = error if isinstance(error, ValueError) else "nested too deeply"
            raise ConfigError(path, f"{where}: not valid Python: {reason}") from error
        if not any(isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.Import, ast.ImportFrom)) for node in tree.body):
            raise ConfigError(path, f"{where} defines no class and no function")
        found.append((name, text))
    return tuple(found)


_PARSERS: Mapping[Kind, Callable[[Path, str, object, Mapping[str, Rule]], Any]] = {
    "codes": _selectors,
    "codes by pattern": _selectors_by_pattern,
    "patterns": _words,
    "threshold": _threshold,
    "path": _file,
    "models": _models,
}
