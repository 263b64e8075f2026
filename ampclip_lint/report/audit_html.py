"""The audit as one HTML page that needs nothing else: no network, and no script to be read."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ampclip_lint import __version__
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.audit import Audit, Verdict, folder_of, tally
from ampclip_lint.loops import Doubt
from ampclip_lint.report.audit_findings import MAX_DRAWN, FindingItem, identities
from ampclip_lint.report.audit_loops import doubt_text, loop_item
from ampclip_lint.report.drawing import asset, style
from ampclip_lint.report.excerpts import searchable
from ampclip_lint.report.markup import Content, Markup, code, element, joined, raw
from ampclip_lint.report.text import counted

# What one page may hold: a browser must open it, and nobody reads more.
MAX_FINDINGS = 3_000
MAX_LOOPS = 2_000
MAX_DOUBTS = 2_000


def page(audit: Audit) -> bytes:
    """The whole page. The same audit gives the same bytes."""
    css = joined(asset("colours.css"), asset("page.css"), style())
    script = asset("page.js")
    # What is not this very text is neither run nor fetched, whatever a reported file says.
    policy = f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(script)}"
    title = _title(audit.paths)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=f"{policy}; base-uri 'none'; form-action 'none'"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} – ampclip-lint"),
        element("style", css),
    )
    body = element("body", _body(audit, title), element("script", script))
    return joined(raw("<!DOCTYPE html>\n"), element("html", head, "\n", body, lang="en"), "\n").encode("utf-8")


def _title(paths: Sequence[str]) -> str:
    if list(paths) == ["."]:
        return "Audit"
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"Audit of {', '.join(paths[:3])}{more}"


def _hash(text: str) -> str:
    """How a content security policy names a text that is in the page itself."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _body(audit: Audit, title: str) -> Iterator[Markup]:
    read = f"{counted(audit.result.files, 'file')} read, {audit.analysed} analysed"
    yield element("a", "Skip to the findings", href="#findings", class_="skip")
    button = element("button", "Light / dark", id="theme", type="button", hidden=True)
    about = (
        f"{read}. How gradients are scaled, unscaled, clipped and applied around PyTorch's GradScaler, "
        f"by ampclip-lint {__version__}."
    )
    yield element(
        "header", element("div", element("h1", title), button, class_="top"), element("p", about, class_="faint")
    )
    yield element("main", _summary(audit), _filters(audit), _findings(audit), _loops(audit), _doubts(audit))
    yield element(
        "footer",
        element(
            "p",
            "Units: S is the loss scale, 1 the unit of a true gradient, S′ the scale from before an update(). A "
            "program is right if and only if every gradient that it applies is independent of S. Right, wrong and not "
            "decided speak of what was analysed; what was not is listed.",
        ),
    )


# -- the summary ------------------------------------------------------------------------------------------------------


def _summary(audit: Audit) -> Markup:
    names = {finding.diagnostic.code: finding.diagnostic.name for finding in audit.findings}
    rules = tally(finding.diagnostic.code for finding in audit.findings)
    folders = tally(folder_of(finding.diagnostic.span.filename) for finding in audit.findings)
    tables = element(
        "div",
        _table("By rule", "rule", [(rule, f"{rule} {names[rule]}", number) for rule, number in rules]),
        _table("By folder", "folder", [(folder, folder, number) for folder, number in folders]),
        class_="tables",
    )
    cards = [
        element("li", element("b", str(number)), what, class_=kind or None) for number, what, kind in _cards(audit)
    ]
    return element(
        "section",
        element("h2", "Summary", id="summary"),
        element("ul", cards, class_="cards"),
        tables if audit.findings else None,
        aria_labelledby="summary",
    )


def _cards(audit: Audit) -> Iterator[tuple[int, str, str]]:
    """Number, what it counts, and the colour; what there need not be is left out where it is none."""
    severities = Counter(finding.diagnostic.severity for finding in audit.definite)
    yield len(audit.loops), "training loop" if len(audit.loops) == 1 else "training loops", ""
    yield audit.count(Verdict.RIGHT), "right", "right"
    yield audit.count(Verdict.WRONG), "wrong", "error"
    for verdict, kind in ((Verdict.POSSIBLE, "warning"), (Verdict.SILENCED, "open"), (Verdict.UNDECIDED, "open")):
        if audit.count(verdict):
            yield audit.count(verdict), verdict.value, kind
    for severity, what in ((Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "remark")):
        if severities[severity]:
            kind = severity.value if severity is not Severity.INFO else ""
            yield severities[severity], what if severities[severity] == 1 else f"{what}s", kind
    if audit.possible:
        yield len(audit.possible), "possible", ""
    if audit.result.suppressed:
        yield audit.result.suppressed, "suppressed", ""


def _table(title: str, key: str, rows: Sequence[tuple[str, str, int]]) -> Markup:
    """Counts by something; each leads to the findings, filtered where scripts run."""
    body = [
        element(
            "tr",
            element("th", element("a", text, href="#findings", data_filter=key, data_value=value), scope="row"),
            element("td", str(count), class_="number"),
        )
        for value, text, count in rows
    ]
    return element("table", element("caption", title), element("tbody", body))


# -- filters ----------------------------------------------------------------------------------------------------------


def _filters(audit: Audit) -> Markup:
    found = [finding.diagnostic for finding in audit.findings]
    files = [
        *(diagnostic.span.filename for diagnostic in found),
        *(judged.loop.span.filename for judged in audit.loops),
        *(doubt.span.filename for doubt in audit.doubts),
    ]
    severities = {diagnostic.severity.value for diagnostic in found}
    search = element(
        "input",
        id="search",
        name="search",
        type="search",
        autocomplete="off",
        placeholder="message, file, function",
        aria_keyshortcuts="/",
    )
    keys = (
        *(element("kbd", "/"), " search, ", element("kbd", "j"), " and ", element("kbd", "k")),
        *(" next and previous finding, ", element("kbd", "Esc"), " clear the search"),
    )
    return element(
        "form",
        element("label", "Search", search, class_="wide"),
        _select("Rule", "rule", sorted({diagnostic.code for diagnostic in found})),
        _select("Severity", "severity", [s.value for s in Severity if s.value in severities]),
        _select("Confidence", "confidence", sorted({diagnostic.confidence.value for diagnostic in found})),
        _select("Loops", "verdict", [verdict.value for verdict in Verdict if audit.count(verdict)]),
        _select("Folder", "folder", sorted(set(map(folder_of, files)))),
        element("button", "Show all", type="button", id="show-all"),
        element("p", keys, class_="keys"),
        id="filters",
        class_="filters",
        hidden=True,
        aria_label="Filters",
        role="search",
    )


def _select(label: str, name: str, values: Sequence[str]) -> Markup:
    options = [element("option", "all", value=""), *(element("option", value, value=value) for value in values)]
    return element("label", label, element("select", options, name=name), hidden=len(values) < 2)


# -- sections ---------------------------------------------------------------------------------------------------------


def _findings(audit: Audit) -> Markup:
    item = FindingItem(audit.result)
    names = identities(audit.findings)
    groups: dict[str, list[Markup]] = {}
    for number, finding in enumerate(audit.findings[:MAX_FINDINGS]):
        folder = folder_of(finding.diagnostic.span.filename)
        groups.setdefault(folder, []).append(item.article(finding, names[number], drawn=number < MAX_DRAWN))
    content = [
        element("section", element("h3", "In ", code(folder)), found, data_group=True)
        for folder, found in groups.items()
    ]
    notes = []
    if len(audit.findings) > MAX_DRAWN:
        notes.append(f"The first {MAX_DRAWN} findings are shown with source and pictures, others in a line.")
    notes += _cap(len(audit.findings), MAX_FINDINGS, "findings")
    shown = min(len(audit.findings), MAX_FINDINGS)
    return _section("Findings", "findings", "finding", shown, notes, content or element("p", "Nothing was found."))


def _loops(audit: Audit) -> Markup:
    names = identities(audit.findings)[:MAX_FINDINGS]
    loops = sorted(audit.loops, key=lambda judged: list(Verdict).index(judged.verdict))
    content = [loop_item(number, judged, audit, names) for number, judged in enumerate(loops[:MAX_LOOPS], 1)]
    notes = [
        "Functions in which gradients are made or applied under a scaler, and that nothing else here calls; each with "
        "all that it calls.",
        *_cap(len(loops), MAX_LOOPS, "loops"),
    ]
    nothing = element("p", "No training loop with a scaler was found.")
    return _section("Training loops", "loops", "loop", len(content), notes, content or nothing)


def _doubts(audit: Audit) -> Markup:
    result, doubts = audit.result, audit.doubts
    content = [_problem(name, "no such file or directory") for name in result.missing]
    content += [_problem(problem.filename, problem.reason) for problem in result.problems]
    content += [_doubt(doubt, audit) for doubt in doubts[:MAX_DOUBTS]]
    notes = [
        "Where this report knows too little: files that could not be read, gradients that come from elsewhere, calls "
        "that were not followed, budgets that were hit.",
        *_cap(len(doubts), MAX_DOUBTS, "places"),
    ]
    nothing = element("p", "Everything that was found could be decided.")
    listed = element("ul", content, class_="plain") if content else nothing
    return _section("What could not be decided", "doubts", "doubt", len(content), notes, listed)


def _problem(name: str, reason: str) -> Markup:
    return element(
        "li",
        code(name),
        f": {reason}",
        data_item="doubt",
        data_folder=folder_of(name),
        data_text=searchable(name, reason),
    )


def _doubt(doubt: Doubt, audit: Audit) -> Markup:
    return element(
        "li",
        doubt_text(doubt, audit.result),
        data_item="doubt",
        data_folder=folder_of(doubt.span.filename),
        data_text=searchable(doubt.span.filename, doubt.span.function, doubt.reason),
    )


def _section(title: str, name: str, kind: str, count: int, notes: Iterable[str], content: Content) -> Markup:
    number = element("output", str(count), data_count=kind, aria_live="polite")
    return element(
        "section",
        element("h2", f"{title} (", number, ")", id=name),
        [element("p", note, class_="faint") for note in notes],
        content,
        aria_labelledby=name,
    )


def _cap(count: int, most: int, what: str) -> list[str]:
    return [f"Only the first {most} of {count} {what} are shown."] if count > most else []
