"""JUnit's XML: a test suite for each file, a failure for each finding, an error for what could not be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from xml.etree import ElementTree

from ampclip_lint.diagnostics import Diagnostic
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.place import happening, message_of, where
from ampclip_lint.report.text import Line, clean, plain

_TOOL = "ampclip-lint"


def render(result: RunResult) -> Iterator[Line]:
    """The suites of the analysed files; one without findings has a case that passes."""
    cases: dict[str, list[ElementTree.Element]] = {name: [] for name in sorted(result.sources)}
    for diagnostic in result.diagnostics:
        cases.setdefault(diagnostic.span.filename, []).append(_case(diagnostic))
    for name in result.missing:
        cases.setdefault(name, []).append(_problem(name, "no such file or directory"))
    for problem in result.problems:
        cases.setdefault(problem.filename, []).append(_problem(problem.filename, problem.reason))
    root = ElementTree.Element("testsuites", name=_TOOL)
    for name, found in (cases or {_TOOL: []}).items():
        suite = ElementTree.SubElement(root, "testsuite", name=clean(name))
        suite.extend(found or [ElementTree.Element("testcase", name=_TOOL, classname=_classname(name))])
        _count(suite)
    _count(root)
    ElementTree.indent(root)
    # The text of a failure may have lines; they are lines of the file too.
    text = '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode")
    for line in text.split("\n"):
        yield plain(line)


def _case(diagnostic: Diagnostic) -> ElementTree.Element:
    span = diagnostic.span
    case = ElementTree.Element(
        "testcase",
        name=f"{diagnostic.code} {diagnostic.name}",
        classname=_classname(span.filename),
        file=clean(span.filename),
    )
    if span.cell is None:
        case.set("line", str(span.start.row))
    message = message_of(diagnostic)
    lines = [f"{clean(span.filename)}:{where(span)}: {clean(diagnostic.message)}"]
    lines += [f"path: {clean(step.span.filename)}:{where(step.span)}: {happening(step)}" for step in diagnostic.trace]
    if diagnostic.effect is not None:
        lines.append(f"effect: {clean(diagnostic.effect)}")
    if diagnostic.fix is not None:
        lines.append(f"fix: {clean(diagnostic.fix.message)}")
    ElementTree.SubElement(case, "failure", message=message, type=diagnostic.severity.value).text = "\n".join(lines)
    return case


def _problem(name: str, reason: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", name=_TOOL, classname=_classname(name))
    ElementTree.SubElement(case, "error", message=clean(reason), type="error")
    return case


def _classname(name: str) -> str:
    """The path of the file without its suffix: readers cut at the last dot."""
    return clean(os.path.splitext(name)[0])


def _count(element: ElementTree.Element) -> None:
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        element.set(name, str(sum(1 for _ in element.iter(tag))))
