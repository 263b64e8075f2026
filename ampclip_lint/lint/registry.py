"""Which rules there are: the packs installed under the entry point group, validated. Never an empty set."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache

from ampclip_lint.lint.errors import ToolError
from ampclip_lint.lint.packs import entry_points as entry_points
from ampclip_lint.lint.rule import REQUIRED_SECTIONS, SECTIONS, Rule

_CODE = re.compile(r"[A-Z]+[0-9]{3}")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class RegistryError(ToolError):
    """The rules can't be had. A linter without rules would call every program clean."""


@lru_cache(maxsize=1)
def load_rules() -> Mapping[str, Rule]:
    """The installed rules by code, in the order of their codes."""
    packs = entry_points()
    rules: list[Rule] = []
    for origin, value in packs:
        rules.extend(_load_pack(origin, value))
    if not rules:
        raise RegistryError("no rules are installed: the package is not; run `pip install -e .` in its repository")
    return validate(rules)


def _load_pack(origin: str, value: str) -> tuple[Rule, ...]:
    from importlib import import_module

    where = f"rule pack `{origin}` ({value})"
    module_name, _, attribute = value.partition(":")
    try:
        pack = getattr(import_module(module_name.strip()), attribute.strip())
    except Exception as error:  # whatever a third party's module raises: the run must name it, not die of it
        raise RegistryError(f"{where} can't be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(pack, (tuple, list)) or not all(isinstance(item, Rule) for item in pack):
        raise RegistryError(f"{where} is not a tuple of rules")
    if not pack:
        raise RegistryError(f"{where} is empty")
    return tuple(pack)


def only_ask_for_faults(rules: Iterable[Rule]) -> bool:
    """Whether rules look into nothing but faults, as those of the built-in pack do; of others nobody knows."""
    package = dict(entry_points()).get("builtin", "").partition(":")[0]
    return bool(package) and all(rule.check.__module__.partition(".")[0] == package for rule in rules)


def rule_folders(rules: Mapping[str, Rule]) -> list[str]:
    """The folders that the source of the rules lies in."""
    modules = {sys.modules.get(rule.check.__module__) for rule in rules.values()}
    files = {getattr(module, "__file__", None) for module in modules}
    return sorted({os.path.dirname(os.path.abspath(file)) for file in files if file})


def validate(rules: Iterable[Rule]) -> Mapping[str, Rule]:
    """The rules by code, or an error that names what is wrong with one."""
    by_code: dict[str, Rule] = {}
    names: dict[str, str] = {}
    for rule in sorted(rules, key=lambda rule: rule.code):
        if not _CODE.fullmatch(rule.code):
            raise RegistryError(f"`{rule.code}` is not a rule code (letters, then three digits)")
        if not _NAME.fullmatch(rule.name):
            raise RegistryError(f"{rule.code}: `{rule.name}` is not a rule name (lower case words joined by `-`)")
        if rule.code in by_code:
            raise RegistryError(f"{rule.code} is claimed by `{by_code[rule.code].name}` and `{rule.name}`")
        if rule.name in names:
            raise RegistryError(f"the name `{rule.name}` is claimed by {names[rule.name]} and {rule.code}")
        lacking = [heading for heading in REQUIRED_SECTIONS if not rule.section(heading)]
        if lacking:
            raise RegistryError(f"{rule.code} {rule.name} is not documented: no section `{lacking[0]}`")
        known = [heading for heading in rule.headings if heading in SECTIONS]
        if known != sorted(known, key=SECTIONS.index):
            raise RegistryError(f"{rule.code} {rule.name}: the sections of its documentation are out of order")
        by_code[rule.code] = rule
        names[rule.name] = rule.code
    return by_code


def find_rule(word: str, rules: Mapping[str, Rule]) -> Rule:
    """The rule with that code or name, in any case."""
    from ampclip_lint.lint.errors import nearest

    folded = word.strip().casefold()
    for rule in rules.values():
        if folded in (rule.code.casefold(), rule.name):
            return rule
    known = [*rules, *(rule.name for rule in rules.values())]
    raise ToolError(f"no rule `{word}`{nearest(word, known)}")
