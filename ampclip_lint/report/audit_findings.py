"""A finding on the audit's page: source with the path marked, the path in words, pictures, the effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ampclip_lint.diagnostics import Confidence, Diagnostic, Span, TraceStep
from ampclip_lint.lint.audit import Finding, folder_of
from ampclip_lint.lint.run import RunResult
from ampclip_lint.loops import Curve, History
from ampclip_lint.report.drawing import number_text, plot, spoken, timeline, unit_text
from ampclip_lint.report.excerpts import excerpt, place, regions, row_text, same_file, searchable
from ampclip_lint.report.markup import Content, Markup, code, element, joined, prose, scroller
from ampclip_lint.report.text import shortened

MAX_DRAWN = 300
"""Findings with source and pictures; those behind are told in a line."""
_TAB = 4


def identities(findings: Sequence[Finding]) -> list[str]:
    """A name for each finding that a link can hold on to; equal lines of one function are numbered."""
    seen: Counter[str] = Counter()
    found = []
    for finding in findings:
        name = f"finding-{finding.diagnostic.fingerprint}"
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


class FindingItem:
    """Makes the articles of findings."""

    def __init__(self, result: RunResult) -> None:
        self.result = result

    def article(self, finding: Finding, identity: str, *, drawn: bool) -> Markup:
        """One finding; in a line unless it is `drawn`."""
        diagnostic = finding.diagnostic
        span = diagnostic.span
        return element(
            "article",
            _headline(diagnostic, identity),
            element("p", prose(diagnostic.message), id=f"{identity}-message"),
            self._details(finding, identity) if drawn else None,
            id=identity,
            class_="finding",
            tabindex="-1",
            data_item="finding",
            data_rule=diagnostic.code,
            data_severity=diagnostic.severity.value,
            data_confidence=diagnostic.confidence.value,
            data_folder=folder_of(span.filename),
            data_text=searchable(diagnostic.code, diagnostic.name, diagnostic.message, span.filename, span.function),
            aria_labelledby=f"{identity}-head",
            aria_describedby=f"{identity}-message",
        )

    def _details(self, finding: Finding, identity: str) -> Iterator[Content]:
        diagnostic = finding.diagnostic
        for where, rows in regions(diagnostic, self.result):
            if not same_file(where, diagnostic.span):
                yield element("p", "In ", code(place(where)), ":")
            yield self._source(diagnostic, where, rows)
        if diagnostic.trace:
            yield element("h5", "Path")
            steps = [element("li", self._step(step, diagnostic.span)) for step in diagnostic.trace]
            yield element("ol", steps, class_="path")
        pictures = [
            _timeline(finding.history, identity) if finding.history is not None else None,
            _plot(finding.curve, identity) if finding.curve is not None else None,
        ]
        if any(pictures):
            yield element("div", pictures, class_="pictures")
        if diagnostic.effect is not None:
            yield element("h5", "Effect")
            yield element("p", prose(diagnostic.effect), class_="effect")
        yield element("p", "More: ", code(f"ampclip-lint explain {diagnostic.code}"), class_="faint")

    def _step(self, step: TraceStep, home: Span) -> Iterator[Content]:
        yield f"line {step.span.start.row}" if same_file(step.span, home) else code(place(step.span))
        yield (": ", code(excerpt(step.span, self.result)), " – ", prose(step.message))
        if step.unit is not None:
            unit = step.unit if step.unit == "no gradients" else f"unit {unit_text(step.unit)}"
            yield (", ", element("span", unit, class_="unit"))

    def _source(self, diagnostic: Diagnostic, where: Span, rows: Sequence[int]) -> Markup:
        """The rows around the path, with the numbers of its steps beside them and the finding marked."""
        numbers: dict[int, list[str]] = {}
        for number, step in enumerate(diagnostic.trace, 1):
            if same_file(step.span, where):
                numbers.setdefault(step.span.start.row, []).append(str(number))
        lines: list[Markup] = []
        for before, row in zip((rows[0] - 1, *rows), rows):
            if row != before + 1:
                lines.append(element("tr", element("td"), element("th", "⋮", scope="row"), element("td"), class_="gap"))
            found = same_file(where, diagnostic.span) and diagnostic.span.start.row <= row <= diagnostic.span.end.row
            text = row_text(where, row, self.result)
            lines.append(
                element(
                    "tr",
                    element("td", ",".join(numbers.get(row, ())), class_="step"),
                    element("th", str(row), scope="row"),
                    element("td", _marked(text, row, diagnostic.span) if found else _line(text)),
                    class_="here" if found else None,
                )
            )
        label = f"Source of {place(where)}, with the numbers of the path's steps"
        return scroller(label, element("table", lines), "source")


def _headline(diagnostic: Diagnostic, identity: str) -> Markup:
    function = diagnostic.span.function
    link = element("a", f"{diagnostic.code} {diagnostic.name}", href=f"#{identity}")
    possible = diagnostic.confidence is Confidence.POSSIBLE
    return element(
        "div",
        element("h4", link, id=f"{identity}-head"),
        element("span", diagnostic.severity.value, class_=f"badge {diagnostic.severity.value}"),
        element("span", "possible", class_="badge possibly") if possible else None,
        element("span", code(place(diagnostic.span)), (" in ", code(function)) if function else None, class_="place"),
        class_="head",
    )


def _line(text: str) -> str:
    return shortened(text.expandtabs(_TAB).rstrip())


def _marked(text: str, row: int, span: Span) -> Markup:
    """A row of the finding, with the part that it speaks of marked: all of it where its span is empty."""
    left = span.start.column - 1 if row == span.start.row else len(text) - len(text.lstrip())
    right = span.end.column - 1 if row == span.end.row and span.end > span.start else len(text.rstrip())
    here = shortened(text[left:right])
    before = text[:left].expandtabs(_TAB)
    return joined(shortened(before), element("mark", here) if here else None, shortened(text[right:].rstrip(), 60))


def _timeline(history: History, identity: str) -> Markup:
    return element(
        "figure",
        element("h5", "The gradient's unit along the path"),
        scroller("Timeline, scrolls sideways", timeline(history, f"{identity}-t")),
        element("figcaption", spoken(history), class_="unseen"),
    )


def _plot(curve: Curve, identity: str) -> Markup:
    rows = [
        element(
            "tr", element("th", f"S = {scale:.0f}", scope="row"), element("td", number_text(value), class_="number")
        )
        for scale, value in curve.applied
    ]
    caption = (
        f" where {number_text(curve.intended)} is intended. Worked numbers for small example gradients, "
        "not measured in this program."
    )
    table = element("table", element("tbody", rows), class_="values")
    return element(
        "figure",
        element("h5", f"{curve.quantity} over S"),
        plot(curve, f"{identity}-p"),
        element("figcaption", code(curve.formula), caption),
        element("details", element("summary", "The numbers"), table),
        class_="narrow",
    )
