"""A training loop on the audit's page: verdict, objects, clips, calls, and why something was not decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ampclip_lint.diagnostics import Confidence, Span
from ampclip_lint.lint.audit import Audit, JudgedLoop, Verdict, folder_of
from ampclip_lint.lint.run import RunResult
from ampclip_lint.loops import Call, Clip, Doubt, Loop, Scaler
from ampclip_lint.report.drawing import unit_text
from ampclip_lint.report.excerpts import excerpt, near, place, searchable
from ampclip_lint.report.markup import Content, Markup, code, element, items, joined, prose, scroller
from ampclip_lint.report.text import counted, shortened

MAX_CALLS = 60
"""Calls of one loop, and its doubts."""

_BADGES = {
    Verdict.WRONG: "wrong",
    Verdict.POSSIBLE: "possibly",
    Verdict.UNDECIDED: "open",
    Verdict.SILENCED: "silenced",
    Verdict.RIGHT: "right",
}


def loop_item(number: int, judged: JudgedLoop, audit: Audit, names: Sequence[str]) -> Markup:
    """A loop that opens; `names` are those of the findings that the page has."""
    loop = judged.loop
    head = element(
        "summary",
        element("span", judged.verdict.value, class_=f"badge {_BADGES[judged.verdict]}"),
        element("span", element("b", code(loop.name)), " ", code(place(loop.span)), class_="place"),
    )
    return element(
        "details",
        head,
        element("div", _objects(loop), _findings(judged, audit, names), _calls(loop, audit.result)),
        id=f"loop-{number}",
        class_="loop",
        data_item="loop",
        data_verdict=judged.verdict.value,
        data_folder=folder_of(loop.span.filename),
        data_text=searchable(loop.name, loop.span.filename, judged.verdict.value),
    )


def doubt_text(doubt: Doubt, result: RunResult) -> Markup:
    """Where, what, and why it was not decided."""
    text = excerpt(doubt.span, result)
    return joined(code(place(doubt.span)), (" ", code(text)) if text else None, " – ", prose(doubt.reason))


def scaler_text(scaler: Scaler, home: Span) -> Iterator[str]:
    """What is known of a scaler beside its name, as phrases; places as they are told beside `home`."""
    if scaler.made_at:
        yield f"made at {' and '.join(near(span, home) for span in scaler.made_at)}"
    else:
        yield "from outside: an argument or an attribute"
    for what in ("device", "enabled", "init_scale"):
        value = getattr(scaler, what)
        if value is not None:
            yield f"{what} `{shortened(value)}`"
    if scaler.inert:
        yield "S is 1 all the time"


def clip_text(clip: Clip) -> str:
    """How a clip limits, by what, and what it finds."""
    what = "the norm is measured" if clip.kind == "measured" else f"by {clip.kind}"
    threshold = f" with threshold `{shortened(clip.threshold)}`" if clip.threshold else ""
    return f"{what}{threshold}; gradients: {' or '.join(map(unit_text, clip.units))}"


def _objects(loop: Loop) -> Markup:
    scalers = [(code(scaler.name), ", ", prose(", ".join(scaler_text(scaler, loop.span)))) for scaler in loop.scalers]
    told: list[tuple[str, Sequence[Content]]] = [
        ("Scalers", scalers),
        ("Optimizers", [code(name) for name in loop.optimizers]),
        ("Steps", [("where ", code(window)) for window in loop.windows]),
        ("Clips", [(near(clip.span, loop.span), " ", prose(clip_text(clip))) for clip in loop.clips]),
    ]
    return element(
        "dl",
        [
            (element("dt", what), [element("dd", content) for content in contents])
            for what, contents in told
            if contents
        ],
    )


def _findings(judged: JudgedLoop, audit: Audit, names: Sequence[str]) -> Iterator[Content]:
    shown = [(names[number], audit.findings[number].diagnostic) for number in judged.findings if number < len(names)]
    if shown or judged.silenced:
        yield element("h3", "Findings", class_="minor")
    if shown:
        yield items(
            (
                element("a", f"{found.code} {found.name}", href=f"#{name}"),
                " ",
                code(place(found.span)),
                " (possible)" if found.confidence is Confidence.POSSIBLE else None,
            )
            for name, found in shown
        )
    if judged.silenced:
        yield element("p", f"{counted(judged.silenced, 'fault')} suppressed, or of rules that are not selected.")
    if judged.loop.doubts:
        yield element("h3", "Not decided", class_="minor")
        yield items(doubt_text(doubt, audit.result) for doubt in judged.loop.doubts[:MAX_CALLS])


def _calls(loop: Loop, result: RunResult) -> Iterator[Content]:
    if not loop.calls:
        return
    yield element("h3", "Calls in their order", class_="minor")
    head = element("tr", [element("th", text, scope="col") for text in ("Where", "Call", "Gradients then")])
    rows = [element("tr", _call(call, loop, result)) for call in loop.calls[:MAX_CALLS]]
    yield scroller("Calls", element("table", element("thead", head), element("tbody", rows)))
    if len(loop.calls) > MAX_CALLS:
        yield element("p", f"Only the first {MAX_CALLS} of {len(loop.calls)} calls are shown.", class_="faint")


def _call(call: Call, loop: Loop, result: RunResult) -> Iterator[Content]:
    several = len(loop.optimizers) > 1
    yield element("td", near(call.span, loop.span))
    yield element("td", code(excerpt(call.span, result)), " – ", prose(call.what))
    yield element(
        "td",
        [
            element("div", f"{name}: " if several else None, " or ".join(map(unit_text, units)))
            for name, units in call.units
        ],
    )
