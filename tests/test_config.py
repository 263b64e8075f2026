"""Configuration: the table of keys, the command that shows what counts, the JSON schema for editors."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import Result

from ampclip_lint.lint.config import KEYS, OPTIONS, Config, ConfigError, parse_config
from ampclip_lint.lint.registry import validate
from ampclip_lint.lint.schema import schema
from ampclip_rules import RULES
from console import run

ROOT = Path(__file__).resolve().parent.parent
KNOWN = validate(RULES)
MODEL = "class Scaler:\n    pass\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def config(*arguments: str) -> Result:
    return run("config", *arguments)


def shown(*arguments: str) -> dict[str, list[tuple[str, str]]]:
    """Key to its values, each with its origin; arrays over several lines are joined."""
    result = config(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    found: dict[str, list[tuple[str, str]]] = {}
    text = result.stdout.replace("[\n    ", "[").replace("\n    ", " ").replace("\n]", "]")
    for line in text.splitlines():
        if not line.startswith("#"):
            key, _, rest = line.partition(" = ")
            value, _, origin = rest.rpartition("  # ")
            found.setdefault(key, []).append((value, origin))
    return found


# --- the table


def test_the_defaults_of_the_table_are_those_that_hold() -> None:
    nothing = Config(Path())
    for option in OPTIONS:
        if option.key in ("select", "extend-select", "ignore"):
            held = getattr(nothing.selection, option.key.replace("-", "_"))
        else:
            held = getattr(nothing, option.key.replace("-", "_"))
        if isinstance(option.default, dict):
            assert dict(held) == option.default
        else:
            assert (list(held) if isinstance(held, tuple) else held) == option.default, option.key


def test_every_key_sets_its_field() -> None:
    table: dict[str, Any] = {
        "select": ["AMP1"],
        "extend-select": ["AMP003"],
        "ignore": ["AMP102"],
        "per-file-ignores": {"a/*": ["AMP2"]},
        "exclude": ["x"],
        "extend-exclude": ["y"],
        "fail-on": "error",
        "baseline": "b.json",
        "models": {"acme.amp": MODEL},
    }
    assert set(table) == set(KEYS)
    found = parse_config(Path("conf/pyproject.toml"), table, KNOWN)
    base = Path("conf").absolute()
    assert found.base == base
    assert found.selection == type(found.selection)(("AMP1",), ("AMP003",), ("AMP102",))
    assert found.per_file_ignores == (("a/*", ("AMP2",)),)
    assert (found.exclude, found.extend_exclude, found.fail_on) == (("x",), ("y",), "error")
    assert found.baseline == base / "b.json"
    assert found.models == (("acme.amp", MODEL),)
    assert found.given == set(KEYS)
    default = Config(base)
    unset = [field.name for field in fields(Config) if getattr(found, field.name) == getattr(default, field.name)]
    assert unset == ["base"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [3, True, "", [3], {"a": 3}, "no such thing"])
def test_no_key_takes_just_anything(key: str, value: object) -> None:
    if key == "baseline" and value == "no such thing":
        return
    with pytest.raises(ConfigError, match=rf"^c\.toml: `{key}"):
        parse_config(Path("c.toml"), {key: value}, KNOWN)


@pytest.mark.parametrize("name", ["ampclip_lint", "Ampclip-Lint"])
def test_a_table_that_is_almost_ours_is_not_passed_over(name: str) -> None:
    write("pyproject.toml", f'[tool.{name}]\nignore = ["AMP1"]\n[tool.ruff]\n')
    result = run("check", ".")
    assert result.exit_code == 2
    assert f"pyproject.toml: unknown table `tool.{name}`; did you mean `tool.ampclip-lint`?" in result.stderr


# --- the command


def test_without_a_file_all_is_default() -> None:
    write("a.py", "")
    found = shown("a.py")
    assert list(found) == list(KEYS)
    assert {origin for values in found.values() for _, origin in values} == {"default"}
    assert found["select"] == [("(all rules but those of severity info)", "default")]
    assert found["baseline"] == [("(none)", "default")]
    assert found["fail-on"] == [('"warning"', "default")]
    assert found["exclude"][0][0].startswith('[".ampclip_lint_cache", ".bzr"')


def test_each_value_has_its_origin() -> None:
    write(
        "pyproject.toml",
        '[tool.ampclip-lint]\nignore = ["AMP102"]\nexclude = ["third_party"]\nfail-on = "error"\nbaseline = "b.json"\n'
        "[tool.ampclip-lint.per-file-ignores]\n"
        '"experiments/*" = ["AMP2", "AMP3"]\n[tool.ampclip-lint.models]\n"acme.amp" = """\nclass A:\n    pass\n"""\n',
    )
    write("src/a.py", "")
    found = shown("--ignore", "AMP5,AMP4", "--fail-on", "info", "--extend-exclude", "gen", "src/a.py")
    assert found == {
        "select": [("(all rules but those of severity info)", "default")],
        "extend-select": [("[]", "default")],
        "ignore": [('["AMP102"]', "pyproject.toml"), ('["AMP5", "AMP4"]', "command line")],
        'per-file-ignores."experiments/*"': [('["AMP2", "AMP3"]', "pyproject.toml")],
        "exclude": [('["third_party"]', "pyproject.toml")],
        "extend-exclude": [('["gen"]', "command line")],
        "fail-on": [('"info"', "command line")],
        "baseline": [('"b.json"', "pyproject.toml")],
        'models."acme.amp"': [("(2 lines of Python)", "pyproject.toml")],
    }


def test_select_on_the_command_line_starts_anew() -> None:
    write("ampclip-lint.toml", 'select = ["AMP1"]\nignore = ["AMP102"]\nextend-select = ["AMP003"]\n')
    found = shown("--select", "AMP2", "--extend-select", "AMP301")
    assert found["select"] == [('["AMP2"]', "command line")]
    assert found["extend-select"] == [('["AMP301"]', "command line")]
    assert found["ignore"] == [("[]", "default")]


def test_the_nearest_file_counts_and_is_named() -> None:
    write("ampclip-lint.toml", 'fail-on = "error"\n')
    write("sub/pyproject.toml", '[tool.ampclip-lint]\nfail-on = "info"\n')
    write("sub/a.py", "")
    write("other.toml", 'fail-on = "never"\n')
    assert shown()["fail-on"] == [('"error"', "ampclip-lint.toml")]
    assert shown("sub")["fail-on"] == [('"info"', "sub/pyproject.toml")]
    assert shown("sub/a.py")["fail-on"] == [('"info"', "sub/pyproject.toml")]
    assert shown("--config", "other.toml", "sub")["fail-on"] == [('"never"', "other.toml")]
    assert shown("--isolated", "sub")["fail-on"] == [('"warning"', "default")]


def test_a_baseline_of_the_command_line_is_said_to_come_from_there() -> None:
    write("ampclip-lint.toml", 'baseline = "b.json"\n')
    assert shown("--baseline", "c.json")["baseline"] == [('"c.json"', "command line")]
    assert shown("--no-baseline")["baseline"] == [("(none)", "command line")]


def test_the_rules_that_are_on_are_listed() -> None:
    write("ampclip-lint.toml", 'select = ["AMP10"]\nignore = ["AMP102"]\n[per-file-ignores]\n"a.py" = ["AMP103"]\n')
    write("a.py", "")
    of_folder, of_file = (
        {word for line in config(*path).stdout.splitlines() if line.startswith("# ") for word in line.split()}
        for path in ((), ("a.py",))
    )
    assert "AMP101" in of_folder & of_file
    assert "AMP102" not in of_folder | of_file
    assert of_folder - of_file >= {"AMP103"}


def test_an_excluded_file_is_called_so() -> None:
    write("build/a.py", "")
    write("a.py", "")
    assert "# excluded: only read where it is named" in config("build/a.py").stdout
    assert "excluded:" not in config("a.py").stdout


def test_what_cannot_be_shown_is_exit_code_2() -> None:
    missing = config("gone.py")
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "gone.py: no such file or directory" in missing.stderr
    write("ampclip-lint.toml", 'selct = ["AMP101"]\n')
    broken = config()
    assert (broken.exit_code, broken.stdout) == (2, "")
    assert "unknown key `selct`; did you mean `select`?" in broken.stderr
    assert config("--select", "AMP11").exit_code == 2


def test_values_act_on_no_terminal() -> None:
    write("ampclip-lint.toml", 'exclude = ["\\u001b[31m", "a\\u202eb"]\n')
    assert all(line.isprintable() for line in config().stdout.splitlines())


# --- the schema


def errors(table: object) -> list[str]:
    made = schema(KNOWN)
    jsonschema.Draft7Validator.check_schema(made)
    return [error.message for error in jsonschema.Draft7Validator(made).iter_errors(table)]


def test_the_schema_knows_the_parser_s_keys() -> None:
    assert list(schema(KNOWN)["properties"]) == list(KEYS)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"select": ["AMP", "AMP1", "AMP101", "ALL", "clip-before-unscale"]},
        {"ignore": [], "extend-select": ["AMP003"], "fail-on": "never"},
        {"per-file-ignores": {"a/*": ["AMP2"]}, "exclude": ["*.py"], "extend-exclude": ["!x"]},
        {"baseline": "base.json", "models": {"acme.amp": MODEL}},
    ],
)
def test_the_schema_takes_what_the_parser_takes(table: dict[str, Any]) -> None:
    parse_config(Path("c.toml"), table, KNOWN)
    assert errors(table) == []


@pytest.mark.parametrize(
    "table",
    [
        {"selct": ["AMP101"]},
        {"select": "AMP101"},
        {"select": ["AMP101", 3]},
        {"select": ["AMP 101"]},
        {"fail-on": "errors"},
        {"per-file-ignores": {"a": "AMP101"}},
        {"per-file-ignores": ["AMP101"]},
        {"baseline": ""},
        {"baseline": ["a"]},
        {"models": {"acme amp": MODEL}},
        {"models": {"acme.amp": 3}},
    ],
)
def test_the_schema_refuses_what_the_parser_refuses(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        parse_config(Path("c.toml"), table, KNOWN)
    assert errors(table)


def test_the_schema_offers_codes_and_does_not_demand_them() -> None:
    offered = schema(KNOWN)["definitions"]["code"]["anyOf"][0]["enum"]
    assert {"ALL", "AMP", "AMP1", "AMP101", "clip-before-unscale"} <= set(offered)
    assert errors({"select": ["ACME001"]}) == [], "a rule pack may have it"


def test_the_schema_serves_the_table_of_pyproject() -> None:
    # As SchemaStore has it: the table of a tool refers to the schema of that tool.
    referring = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "tool": {"type": "object", "properties": {"ampclip-lint": {"$ref": "https://example.invalid/ours.json"}}}
        },
    }
    from referencing import Registry, Resource

    registry: Any = Registry().with_resource("https://example.invalid/ours.json", Resource.from_contents(schema(KNOWN)))
    validator = jsonschema.Draft7Validator(referring, registry=registry)
    assert validator.is_valid({"tool": {"ampclip-lint": {"select": ["AMP"]}, "ruff": {"select": 3}}})
    assert not validator.is_valid({"tool": {"ampclip-lint": {"selct": ["AMP"]}}})


def test_the_command_prints_the_schema_of_the_rules_that_are_installed() -> None:
    result = config("--schema", "ampclip-lint.toml")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert list(printed["properties"]) == list(KEYS)
    assert "AMP101" in printed["definitions"]["code"]["anyOf"][0]["enum"]


def test_the_command_prints_a_schema_of_pyproject_that_knows_our_table_alone() -> None:
    made = json.loads(config("--schema", "pyproject.toml").stdout)
    jsonschema.Draft7Validator.check_schema(made)
    validator = jsonschema.Draft7Validator(made)
    assert validator.is_valid({"project": {"name": "x"}, "tool": {"ruff": {}, "ampclip-lint": {"select": ["AMP1"]}}})
    assert not validator.is_valid({"tool": {"ampclip-lint": {"selct": []}}})
    assert not validator.is_valid({"tool": {"ampclip-lint": {"select": ["AMP 1"]}}})


def test_the_schema_is_shipped() -> None:
    for name in ("ampclip_lint/ampclip-lint.schema.json", "docs/ampclip-lint.schema.json"):
        assert json.loads((ROOT / name).read_text(encoding="utf-8")) == schema(KNOWN), (
            "run `python docs/build_pages.py`"
        )
