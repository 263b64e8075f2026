"""The JSON schema of the configuration, for editors: made of the table that the parser reads, so that they agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ampclip_lint.lint.config import FAIL_ON, OPTIONS, TABLE, Kind
from ampclip_lint.lint.rule import Rule

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The latest dialect that editors for TOML and SchemaStore read alike."""


def schema(rules: Mapping[str, Rule]) -> dict[str, Any]:
    """
    What may stand in ``ampclip-lint.toml``, and what SchemaStore's schema of ``pyproject.toml`` refers to for a tool.

    The codes of `rules` are offered and not demanded: a schema does not know which rule packs are installed elsewhere.
    """
    words = ["ALL", *sorted(_prefixes(rules)), *rules, *(rule.name for rule in rules.values())]
    code = {"anyOf": [{"enum": words}, {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9-]*$"}]}
    shapes: dict[Kind, dict[str, Any]] = {
        "codes": {"type": "array", "items": {"$ref": "#/definitions/code"}},
        "codes by pattern": {
            "type": "object",
            "additionalProperties": {"type": "array", "items": {"$ref": "#/definitions/code"}},
        },
        "patterns": {"type": "array", "items": {"type": "string"}},
        "threshold": {"type": "string", "enum": list(FAIL_ON)},
        "path": {"type": "string", "minLength": 1},
        "models": {
            "type": "object",
            "propertyNames": {"pattern": r"^\w+(\.\w+)*$"},
            "additionalProperties": {"type": "string"},
        },
    }
    properties = {}
    for option in OPTIONS:
        shape = {"description": f"{option.doc}.", **shapes[option.kind]}
        if option.default is not None:
            shape["default"] = option.default
        properties[option.key] = shape
    return {
        "$schema": DIALECT,
        "title": f"The configuration of {TABLE}",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "definitions": {"code": {"description": "A rule: its code, a prefix of codes, its name, or ALL.", **code}},
    }


def pyproject_schema(rules: Mapping[str, Rule]) -> dict[str, Any]:
    """The same as a schema of ``pyproject.toml``, of which it knows nothing but that table."""
    ours = schema(rules)
    return {
        "$schema": ours.pop("$schema"),
        "definitions": ours.pop("definitions"),  # references count from the root of a document
        "type": "object",
        "properties": {"tool": {"type": "object", "properties": {TABLE: ours}}},
    }


def _prefixes(rules: Mapping[str, Rule]) -> set[str]:
    """Letters alone and with the digit of the group: ``AMP``, ``AMP1``."""
    return {code.rstrip("0123456789") for code in rules} | {code[:-2] for code in rules}
