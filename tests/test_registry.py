"""Rules: what makes one, how packs are found and checked, how selections are laid over each other."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from typing import Any

import pytest

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint import packs as installed_packs
from ampclip_lint.lint import registry
from ampclip_lint.lint.config import Selection, expand, selected_codes
from ampclip_lint.lint.errors import ToolError, nearest
from ampclip_lint.lint.registry import RegistryError, find_rule, load_rules, validate
from ampclip_lint.lint.rule import SECTIONS, Rule, Violation, rule
from ampclip_rules import RULES

ONE = RULES[0]
BY_CODE = {item.code: item for item in RULES}


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """The rule packs that appear to be installed."""
    listed: list[tuple[str, str]] = []
    monkeypatch.setattr(registry, "entry_points", lambda: listed)
    load_rules.cache_clear()
    yield listed
    load_rules.cache_clear()


def module(monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    found = types.ModuleType("some_pack")
    found.__dict__.update(names)
    monkeypatch.setitem(sys.modules, "some_pack", found)


def test_the_installed_rules_are_those_of_the_checkout() -> None:
    installed = metadata.entry_points(group=installed_packs.GROUP)
    if not installed:
        pytest.skip("the package is not installed")
    assert ("builtin", "ampclip_rules:RULES") in {(point.name, point.value) for point in installed}
    assert set(RULES) <= set(load_rules().values())


def test_rules_are_listed_in_the_order_of_their_codes() -> None:
    assert [item.code for item in RULES] == sorted(item.code for item in RULES)


def test_name_and_documentation_come_from_the_function() -> None:
    @rule("XYZ001", severity=Severity.INFO, since="0.1")
    def some_thing(fn: object) -> Iterator[Violation]:
        """
        ## What it does
        Flags a thing, of
        two lines. And more.

        ## Why is this bad?
        It is.

        ## Example
        None.
        """
        return iter(())

    assert (some_thing.name, some_thing.code, some_thing.scope) == ("some-thing", "XYZ001", "function")
    assert some_thing.summary == "Flags a thing, of two lines"
    assert some_thing.headings == SECTIONS[:3]
    assert some_thing.section("Why is this bad?") == "It is."
    assert some_thing.section("References") == ""
    assert some_thing.url == "docs/rules/some-thing.md"


def test_expectations_are_not_shown_to_readers() -> None:
    assert any("# expect: AMP101" in block for block in BY_CODE["AMP101"].examples)
    assert "expect:" not in BY_CODE["AMP101"].page()


# --- packs


def test_no_packs_is_an_error(packs: list[tuple[str, str]]) -> None:
    with pytest.raises(RegistryError, match=r"no rules are installed.*pip install -e \."):
        load_rules()


def test_a_pack_of_a_third_party_adds_rules(packs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    module(monkeypatch, RULES=[replace(ONE, code="ACME001", name="acme-thing")])
    packs += [("builtin", "ampclip_rules:RULES"), ("acme", "some_pack:RULES")]
    assert list(load_rules()) == ["ACME001", *BY_CODE]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("some_pack:RULES", "some_pack:RULES.* is empty"),
        ("some_pack:ABSENT", "can't be loaded: AttributeError"),
        ("some_pack:NUMBER", "is not a tuple of rules"),
        ("some_pack:STRINGS", "is not a tuple of rules"),
        ("no_such_module_anywhere:RULES", "can't be loaded: ModuleNotFoundError"),
    ],
)
def test_a_broken_pack_is_named(
    packs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    module(monkeypatch, RULES=(), NUMBER=3, STRINGS=("a",))
    packs += [("builtin", "ampclip_rules:RULES"), ("acme", value)]
    with pytest.raises(RegistryError, match=f"rule pack `acme` .*{message}"):
        load_rules()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (replace(ONE, name="other"), f"{ONE.code} is claimed by"),
        (replace(ONE, code="AMP999"), f"the name `{ONE.name}` is claimed by"),
        (replace(ONE, code="amp1", name="x"), "`amp1` is not a rule code"),
        (replace(ONE, code="AMP999", name="Not Good"), "is not a rule name"),
        (replace(ONE, code="AMP999", name="x", doc=""), "not documented: no section `What it does`"),
        (
            replace(ONE, code="AMP999", name="x", doc="## What it does\na\n## Example\nb\n## Why is this bad?\nc"),
            "out of order",
        ),
    ],
)
def test_validation(changed: Rule, message: str) -> None:
    with pytest.raises(RegistryError, match=message):
        validate((ONE, changed))


def test_rules_are_found_by_code_and_name() -> None:
    assert find_rule(" amp101 ", BY_CODE) is find_rule("Clip-Before-Unscale", BY_CODE) is BY_CODE["AMP101"]
    with pytest.raises(ToolError, match=r"no rule `AMP1O1`; did you mean `AMP101`\?"):
        find_rule("AMP1O1", BY_CODE)


# --- selections


def laid(*layers: Selection) -> list[str]:
    return sorted(selected_codes(BY_CODE, layers))


def test_everything_but_info_is_on() -> None:
    assert laid() == sorted(code for code, item in BY_CODE.items() if item.severity is not Severity.INFO)
    assert "AMP003" not in laid()


def test_select_starts_anew_and_the_others_add_and_take() -> None:
    assert laid(Selection(("AMP101",))) == ["AMP101"]
    assert "AMP003" in laid(Selection(None, ("AMP003",)))
    assert "AMP101" not in laid(Selection(ignore=("AMP101",)))
    assert laid(Selection(("ALL",))) == sorted(BY_CODE)


def test_a_later_layer_beats_an_earlier_one() -> None:
    assert "AMP101" in laid(Selection(ignore=("AMP101",)), Selection(None, ("AMP1",)))
    assert laid(Selection(("AMP101", "AMP201")), Selection(ignore=("AMP2",))) == ["AMP101"]


def test_the_more_specific_selector_wins_and_ties_ignore() -> None:
    assert laid(Selection(("AMP1",), ("AMP101",), ("AMP10",))) == ["AMP101"]
    assert laid(Selection(("AMP101",), (), ("AMP101",))) == []
    assert laid(Selection(("clip-before-unscale",), (), ("AMP1",))) == ["AMP101"]


def test_expand() -> None:
    first = {code for code in BY_CODE if code.startswith("AMP10")}
    assert len(first) > 1
    assert expand(["AMP10", "unscale-mid-accumulation"], BY_CODE) == {*first, "AMP201"}
    with pytest.raises(ToolError, match="no rule ``"):
        expand([""], BY_CODE)


def test_nearest() -> None:
    assert nearest("selekt", ["select", "ignore"]) == "; did you mean `select`?"
    assert nearest("fit", ["Trainer.fit"]) == "; did you mean `Trainer.fit`?"
    assert nearest("zzz", ["select"]) == ""
