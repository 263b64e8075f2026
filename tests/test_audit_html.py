"""The audit's page as text: well-formed, self-contained, nothing of a file is markup, and there is an end to it."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

import audited
from ampclip_lint.lint.audit import Audit, audit_paths
from ampclip_lint.lint.config import Settings
from ampclip_lint.loops import Age, Curve, Held, History, Level, Moment
from ampclip_lint.report import audit_findings, audit_html
from ampclip_lint.report.audit_html import page
from ampclip_lint.report.drawing import number_text, plot, spoken, standalone, timeline, unit_text
from ampclip_lint.report.markup import element, escaped, joined, prose

ASSETS = ("colours.css", "page.css", "page.js", "picture.css")


class Reader(HTMLParser):
    """Elements with their attributes, their text, and whether every one that opens closes."""

    VOID = frozenset({"meta", "input", "br", "line", "rect", "circle", "polyline", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = tmp_path_factory.mktemp("repository")
    audited.repository(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return audit_paths(["."], Settings(isolated=True))


def read(audit: Audit) -> Reader:
    return Reader(page(audit).decode())


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_asks_for_nothing(audit: Audit) -> None:
    found = read(audit)
    for _, attributes in found.elements:
        assert not {"src", "srcset", "style", "data", "action", "background"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    css = "".join((files("ampclip_lint.report") / "audit_assets" / name).read_text() for name in ASSETS)
    assert not re.search(r"url\(|@import|https?:|fetch|XMLHttp|WebSocket|import\(|eval", css)
    urls = set(re.findall(r"https?://[^\"'<\s]+", page(audit).decode()))
    assert urls == {"http://www.w3.org/2000/svg"}, "the name of a format, which nobody fetches"
    (policy,) = [m["content"] for m in found.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_nothing_of_a_file_is_markup(audit: Audit) -> None:
    text = page(audit).decode()
    found = Reader(text)
    assert found.of("img") == []
    assert len(found.of("script")) == 1
    assert text.count("</script>") == 1
    assert "\u202e" not in text and "\x07" not in text
    shown = "".join(found.text)
    assert 'model("</script><script>window.pwned = 1</script>"' in shown, "it is shown as it stands in the file"
    assert "&lt;b&gt;" in shown
    assert "hostile/<img src=x onerror=alert(1)>.py" in shown
    assert "\\u202e" in shown


def test_the_same_audit_gives_the_same_page(audit: Audit) -> None:
    assert page(audit) == page(audit)


def test_headings_labels_and_links_are_sound(audit: Audit) -> None:
    found = read(audit)
    levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(deeper - level <= 1 for level, deeper in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in found.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(name) or "").split()) <= set(ids)
        if (attributes.get("href") or "#").startswith("#") and attributes.get("href"):
            assert str(attributes["href"])[1:] in ids


def test_a_finding_has_source_path_pictures_and_effect(audit: Audit) -> None:
    (number,) = [n for n, f in enumerate(audit.findings) if f.diagnostic.span.filename == "train.py"]
    one = replace(audit, findings=(audit.findings[number],), loops=())
    text = "".join(read(one).text)
    for piece in ("clip-before-unscale", "clip_grad_norm_(model.parameters(), 1.0)", "line 8: ", "unit S"):
        assert piece in text
    assert "clip(S·g, M)/S = clip(g, M/S) where 1 is intended" in text
    assert "the threshold M acts as M/S" in text
    assert len(read(one).of("svg")) == 2


def test_a_fault_without_a_formula_has_its_text_alone(audit: Audit) -> None:
    (finding,) = [f for f in audit.findings if f.diagnostic.code == "AMP402"]
    one = replace(audit, findings=(finding,), loops=())
    assert len(read(one).of("svg")) == 1
    assert "it applies h·S/S'" in "".join(read(one).text)


def test_a_page_has_an_end(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_findings, "MAX_DRAWN", 2)
    monkeypatch.setattr(audit_html, "MAX_DRAWN", 2)
    monkeypatch.setattr(audit_html, "MAX_FINDINGS", 4)
    monkeypatch.setattr(audit_html, "MAX_LOOPS", 3)
    monkeypatch.setattr(audit_html, "MAX_DOUBTS", 1)
    found = read(
        replace(audit, findings=audit.findings * 2, loops=tuple(replace(judged, findings=()) for judged in audit.loops))
    )
    text = "".join(found.text)
    assert len(found.of("article")) == 4
    assert "The first 2 findings are shown with source and pictures, others in a line." in text
    assert "Only the first 4 of 10 findings are shown." in text
    assert "Only the first 3 of 7 loops are shown." in text
    assert "Only the first 1 of 2 places are shown." in text


def test_equal_findings_have_names_of_their_own(audit: Audit) -> None:
    names = audit_findings.identities([audit.findings[0]] * 3)
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]


def test_long_lines_and_unprintable_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = audited.WRONG.replace("1.0)", f"1.0)  # {'x' * 100_000}").replace(
        "(model(x), y)", f"(model(x), y, {'1 + ' * 9_000}1)"
    )
    name = b"bad\xff\xfe.py".decode("utf-8", "surrogateescape")
    try:
        (tmp_path / name).write_text(audited.program(long))
    except OSError:
        pytest.skip("this file system has no names that are not UTF-8")
    monkeypatch.chdir(tmp_path)
    data = page(audit_paths(["."], Settings(isolated=True)))
    assert len(data) < 60_000
    assert b"bad\\udcff\\udcfe.py" in data


def test_an_empty_audit_is_a_page() -> None:
    from ampclip_lint.lint.run import RunResult

    text = "".join(read(Audit(RunResult(), paths=(".",))).text)
    assert "Nothing was found." in text
    assert "Everything that was found could be decided." in text


def test_the_assets_are_part_of_the_package() -> None:
    for name in ASSETS:
        assert (files("ampclip_lint.report") / "audit_assets" / name).is_file()


# -- markup -----------------------------------------------------------------------------------------------------------


def test_markup_escapes_what_it_did_not_make() -> None:
    inner = element("b", "<&>", class_="a\"b'", hidden=True, title=None, data_n=3)
    assert inner == '<b class="a&quot;b&#x27;" hidden data-n="3">&lt;&amp;&gt;</b>'
    assert joined("<", inner, None, ["&", (inner,)]) == f"&lt;{inner}&amp;{inner}"
    assert escaped("a\tb\nc\x00\u202e\ud800") == "a\tb\nc\\x00\\u202e\\ud800"
    assert prose("a `b<c` d") == "a <code>b&lt;c</code> d"
    assert prose("a ` lonely <") == "a ` lonely &lt;"


# -- pictures ---------------------------------------------------------------------------------------------------------


def moment(event: str, *held: Held, marked: bool = False) -> Moment:
    from ampclip_lint.diagnostics import Position, Span

    return Moment(Span("t.py", Position(3, 1), Position(3, 9)), event, held, marked)


def test_a_timeline_says_in_words_what_it_shows() -> None:
    one, scaled, old = Level(0, "1"), Level(1, "S"), Level(1, "S_old", Age.STALE)
    history = History(
        ("a<b", "second"),
        (
            moment("backward", Held((scaled,)), Held(unknown=True)),
            moment("update", Held((one, old)), Held(), marked=True),
        ),
    )
    assert spoken(history) == (
        "backward in line 3: a<b: S, second: unknown; update in line 3 (the finding): a<b: 1 + S′, second: no gradients"
    )
    picture = timeline(history, "x")
    found = Reader(picture)
    assert (found.of("title")[0]["id"], found.of("desc")[0]["id"]) == ("x-title", "x-desc")
    assert found.of("svg")[0]["aria-labelledby"] == "x-title x-desc"
    assert {"unknown", "no gradients", "1", "S", "S′", "a<b"} <= set(found.text)
    assert len(found.of("circle")) == 5 + 2, "two sums, three single values, the legend"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("S^-1", "1/S"),
        ("S_old", "S′"),
        ("S^2", "S²"),
        ("S(a)_old^-2", "S(a)′⁻²"),
        ("1 + S", "1 + S"),
        ("mixed", "mixed"),
    ],
)
def test_units_for_people(text: str, shown: str) -> None:
    assert unit_text(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.125, "0.125"), (1 / 65536, "1.53·10⁻⁵"), (851968.0, "8.52·10⁵"), (5.0, "5")]
)
def test_numbers_for_people(value: float, shown: str) -> None:
    assert number_text(value) == shown


def test_a_plot_stays_in_its_frame() -> None:
    for values in ((1.0, 2.0**-16), (5.0, 5.0 * 2**16), (5.0, 5.0), (1e-12, 1e12)):
        curve = Curve("f", "norm", values[0], ((1.0, values[0]), (8.0, values[0]), (65536.0, values[1])))
        found = Reader(plot(curve, "p"))
        for circle in found.of("circle"):
            assert 64 <= float(str(circle["cx"])) <= 376
            assert 8 <= float(str(circle["cy"])) <= 186
        for text in found.of("text"):
            assert 0 < float(str(text["y"])) < 232


def test_a_picture_of_its_own_has_its_colours() -> None:
    curve = Curve("f", "norm", 1.0, ((1.0, 1.0), (65536.0, 2.0)))
    text = standalone(plot(curve, "p"))
    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "light-dark(" in text and "url(" not in text
