"""SARIF 2.1.0: rules with their documentation, findings with the path that leads to them, fixes, fingerprints.

Paths are relative to the folder that the run began in, `%SRCROOT%`, so that a report means the same on another machine.
Nothing is left out that SARIF has a place for; what the tool does not have (a home page, say) is not made up.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from ampclip_lint import __version__
from ampclip_lint.diagnostics import Diagnostic, Edit, Severity, Span, TraceStep
from ampclip_lint.lint.rule import Rule
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.place import happening, lines_of, message_of, numbered, unit_text, where
from ampclip_lint.report.text import Line, clean, plain

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
BASE = "%SRCROOT%"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEM = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}
"""The words of GitHub's code scanning."""

_TAGS = ["correctness", "mixed-precision", "pytorch"]

Object = dict[str, Any]


def render(result: RunResult) -> Iterator[Line]:
    """One log with one run. Only ASCII leaves here, so that nothing can act on a terminal."""
    for line in json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(result)]}, indent=2).split("\n"):
        yield plain(line)


def _run(result: RunResult) -> Object:
    rules = {rule.code: _rule(rule) for rule in result.rules}
    for diagnostic in result.diagnostics:
        level = {"level": _LEVELS[diagnostic.severity]}
        rules.setdefault(
            diagnostic.code, {"id": diagnostic.code, "name": diagnostic.name, "defaultConfiguration": level}
        )
    codes = sorted(rules)
    return {
        "tool": {
            "driver": {
                "name": "ampclip-lint",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [rules[code] for code in codes],
            }
        },
        "invocations": [_invocation(result)],
        "originalUriBaseIds": {BASE: {"description": {"text": "The folder that ampclip-lint was started in."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(found, number, codes) for found, number in numbered(result.diagnostics)],
    }


def _rule(rule: Rule) -> Object:
    about, page = rule.section("What it does"), rule.page()
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": f"{rule.summary}."},
        "fullDescription": {"text": " ".join(about.split()), "markdown": about},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"enabled": rule.severity is not Severity.INFO, "level": _LEVELS[rule.severity]},
        "properties": {
            "precision": "high",
            "problem.severity": _PROBLEM[rule.severity],
            "tags": ["maintainability"] if rule.advisory or rule.scope == "suppression" else _TAGS,
        },
    }


def _invocation(result: RunResult) -> Object:
    notes = [_notification("error", f"{clean(name)}: no such file or directory") for name in result.missing]
    for problem in result.problems:
        level = "error" if problem.internal else "warning"
        notes.append(_notification(level, f"{clean(problem.filename)}: {clean(problem.reason)}"))
    whole = not result.missing and not any(problem.internal for problem in result.problems)
    return {"executionSuccessful": whole, "toolExecutionNotifications": notes}


def _notification(level: str, text: str) -> Object:
    return {"level": level, "message": {"text": text}}


def _result(diagnostic: Diagnostic, number: int, codes: Sequence[str]) -> Object:
    text = f"{message_of(diagnostic)}."
    if diagnostic.effect is not None:
        text += f" Effect: {clean(diagnostic.effect)}."
    found: Object = {
        "ruleId": diagnostic.code,
        "ruleIndex": codes.index(diagnostic.code),
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": text},
        "locations": [_location(diagnostic.span)],
        "partialFingerprints": {
            # The name that GitHub's code scanning looks for; it wants the number behind the colon.
            "primaryLocationLineHash": f"{diagnostic.fingerprint}:{number}",
            "ampclipLint/v1": diagnostic.fingerprint,
        },
    }
    if diagnostic.trace:
        found["codeFlows"] = [{"threadFlows": [{"locations": [_step(step) for step in diagnostic.trace]}]}]
        others = [step for step in diagnostic.trace if step.span != diagnostic.span]
        related = [{"id": index, **_location(step.span, happening(step))} for index, step in enumerate(others, 1)]
        found |= {"relatedLocations": related} if related else {}
    fix = diagnostic.fix
    # A replacement is made in lines of the file; those of a cell are no such lines.
    if fix is not None and all(edit.span.cell is None for edit in fix.edits):
        found["fixes"] = [
            {
                "description": {"text": clean(fix.message)},
                "artifactChanges": list(_changes(fix.edits)),
                "properties": {"applicability": fix.applicability.value},
            }
        ]
    found["properties"] = {"confidence": diagnostic.confidence.value}
    return found


def _step(step: TraceStep) -> Object:
    flow: Object = {"location": _location(step.span, happening(step))}
    if step.unit is not None:
        flow["state"] = {"gradients": {"text": clean(unit_text(step.unit))}}
    return flow


def _changes(edits: Iterable[Edit]) -> Iterator[Object]:
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.span.filename, []).append(edit)
    for name, mine in by_file.items():
        replacements = [
            # Not escaped: this is to be written, not to be shown.
            {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.content}}
            for edit in sorted(mine, key=lambda edit: edit.span)
        ]
        yield {"artifactLocation": _artifact(name), "replacements": replacements}


def _location(span: Span, message: str | None = None) -> Object:
    logical: list[Object] = []
    if span.cell is not None:
        logical.append({"name": f"cell {span.cell}", "fullyQualifiedName": where(span), "kind": "cell"})
    if span.function:
        name = clean(span.function)
        logical.append({"name": name.rpartition(".")[2], "fullyQualifiedName": name, "kind": "function"})
    found: Object = {"physicalLocation": {"artifactLocation": _artifact(span.filename), "region": _region(span)}}
    if logical:
        found["logicalLocations"] = logical
    if message is not None:
        found["message"] = {"text": message if span.cell is None else f"{where(span)}: {message}"}
    return found


def _region(span: Span) -> Object:
    start, end = lines_of(span)
    if span.cell is not None:
        return {"startLine": start.row}
    return {"startLine": start.row, "startColumn": start.column, "endLine": end.row, "endColumn": end.column}


def _artifact(name: str) -> Object:
    """The file as a URI: relative to the base, or absolute where it lies elsewhere."""
    # `:` is quoted too: in front of it a relative path would be a scheme.
    path = quote(os.fsencode(name) if os.name == "posix" else name.encode("utf-8", "surrogatepass"), safe="/~")
    if re.match(r"[A-Za-z]%3A/", path):
        return {"uri": f"file:///{path[0]}:{path[4:]}"}
    return {"uri": f"file://{path}"} if path.startswith("/") else {"uri": path, "uriBaseId": BASE}
