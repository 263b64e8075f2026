"""The audit's page in a real browser: nothing is fetched, keys and filters work, nothing sticks out of the window."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import audited
import chromium
from ampclip_lint.lint.audit import audit_paths
from ampclip_lint.lint.config import Settings
from ampclip_lint.report.audit_html import page

PROGRAM = chromium.executable()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason=f"no Chromium is installed (none of {', '.join(chromium.NAMES)})"
)

SHOWN = "[...document.querySelectorAll('article')].filter((a) => a.getClientRects().length).map((a) => a.dataset.rule)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    assert PROGRAM is not None
    found = chromium.Browser(PROGRAM, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("audit")
    audited.repository(folder / "repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "repository")
        target = folder / "audit.html"
        target.write_bytes(page(audit_paths(["."], Settings(isolated=True))))
    return target.as_uri()


@pytest.fixture
def opened(browser: chromium.Browser, url: str) -> chromium.Browser:
    browser.resize(1280, 900)
    browser.prefer("light")
    browser.open(url)
    return browser


def choose(browser: chromium.Browser, name: str, value: str) -> None:
    """What choosing from a list does."""
    control = f"document.querySelector('select[name={name}]')"
    browser.evaluate(f"{control}.value = {json.dumps(value)}")
    browser.evaluate(f"{control}.dispatchEvent(new Event('input', {{bubbles: true}}))")


def count(browser: chromium.Browser, kind: str) -> str:
    return str(browser.evaluate(f"document.querySelector('[data-count={kind}]').textContent"))


def focused(browser: chromium.Browser) -> str:
    return str(browser.evaluate("document.activeElement.id"))


def test_nothing_is_fetched_and_nothing_goes_wrong(opened: chromium.Browser, url: str) -> None:
    assert opened.requests() == [url]
    assert opened.complaints() == []
    assert opened.evaluate("window.pwned") is None
    assert opened.evaluate("document.querySelectorAll('img, iframe, object, embed, link[href]').length") == 0
    assert opened.evaluate("[...document.scripts].length") == 1


def test_filters_and_search_narrow_the_findings_down(opened: chromium.Browser) -> None:
    everything = opened.evaluate(SHOWN)
    assert count(opened, "finding") == str(len(everything))
    choose(opened, "rule", "AMP101")
    assert opened.evaluate(SHOWN) == ["AMP101"] * 2
    assert count(opened, "finding") == f"2 of {len(everything)}"
    choose(opened, "folder", "hostile")
    assert len(opened.evaluate(SHOWN)) == 1
    assert count(opened, "loop") == "1 of 7"
    opened.evaluate("document.getElementById('show-all').click()")
    assert opened.evaluate(SHOWN) == everything
    choose(opened, "confidence", "possible")
    assert opened.evaluate(SHOWN) == ["AMP306"]
    opened.evaluate("document.getElementById('show-all').click()")
    choose(opened, "verdict", "right")
    assert (count(opened, "loop"), opened.evaluate(SHOWN)) == ("1 of 7", everything)
    headings = "[...document.querySelectorAll('[data-group]')].filter((g) => g.getClientRects().length).length"
    choose(opened, "rule", "AMP101")
    assert opened.evaluate(headings) == 2, "folders without a finding are gone"


def test_the_summary_leads_to_filtered_findings(opened: chromium.Browser) -> None:
    opened.evaluate("document.querySelector('a[data-filter=folder][data-value=many]').click()")
    assert opened.evaluate("document.querySelector('select[name=folder]').value") == "many"
    assert set(opened.evaluate(SHOWN)) == {"AMP402"}


def test_keys(opened: chromium.Browser) -> None:
    opened.press("/")
    assert focused(opened) == "search"
    opened.type("clip jk")
    assert opened.evaluate("document.getElementById('search').value") == "clip jk", "letters are letters in the search"
    assert opened.evaluate(SHOWN) == []
    opened.press("Escape")
    assert len(opened.evaluate(SHOWN)) > 2
    ids = opened.evaluate("[...document.querySelectorAll('article')].map((a) => a.id)")
    for key, index in (("j", 0), ("j", 1), ("j", 2), ("k", 1), ("k", 0), ("k", 0)):
        opened.press(key)
        assert focused(opened) == ids[index]
    choose(opened, "rule", "AMP402")
    opened.press("j")
    assert opened.evaluate("document.activeElement.dataset.rule") == "AMP402", "what is filtered out is passed over"


def test_the_keyboard_reaches_everything_and_shows_where_it_is(opened: chromium.Browser) -> None:
    opened.press("Tab")
    assert opened.evaluate("document.activeElement.textContent") == "Skip to the findings"
    assert opened.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    reached = set()
    for _ in range(200):
        opened.press("Tab")
        if opened.evaluate("document.activeElement === document.body"):
            break  # ... of the page; what follows is the browser's own.
        assert opened.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        reached.add(
            opened.evaluate(
                "document.activeElement.name || document.activeElement.id || document.activeElement.tagName"
            )
        )
    assert {"theme", "search", "rule", "folder", "show-all", "A", "DIV", "SUMMARY"} <= reached


def test_a_link_to_a_finding_shows_it_although_it_is_filtered_out(opened: chromium.Browser) -> None:
    wanted = opened.evaluate("document.querySelector('article[data-rule=AMP402]').id")
    assert wanted.startswith("finding-")
    choose(opened, "rule", "AMP101")
    opened.evaluate(
        f"new Promise((done) => {{ addEventListener('hashchange', () => done(1)); location.hash = '{wanted}'; }})"
    )
    assert focused(opened) == wanted
    assert "AMP402" in opened.evaluate(SHOWN)
    top = opened.evaluate(f"document.getElementById('{wanted}').getBoundingClientRect().top")
    assert -1 <= top <= 600


def test_light_and_dark(opened: chromium.Browser) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = opened.evaluate(paper)
    opened.prefer("dark")
    dark = opened.evaluate(paper)
    assert light == "rgb(255, 255, 255)"
    assert dark != light
    opened.evaluate("document.getElementById('theme').click()")
    assert opened.evaluate(paper) == light
    opened.evaluate("document.getElementById('theme').click()")
    assert opened.evaluate(paper) == dark


#: The texts whose contrast with what is behind them is less than WCAG asks for.
CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d");
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "white";
  };
  const poor = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const pair = [light(element.closest("svg") ? style.fill : style.color), light(behind(element))];
    if ((Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05) < 4.5)
      poor.add(`${element.tagName} ${element.getAttribute("class")}: ${element.textContent.slice(0, 40)}`);
  }
  return [...poor];
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read(opened: chromium.Browser, scheme: str) -> None:
    opened.prefer(scheme)
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert opened.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_sticks_out_of_the_window(opened: chromium.Browser, width: int) -> None:
    opened.resize(width, 900)
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.screenshot().startswith(b"\x89PNG")


def test_without_scripts_everything_is_there(browser: chromium.Browser, url: str) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(url)
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
    assert len(browser.evaluate(SHOWN)) == browser.evaluate("document.querySelectorAll('article').length") > 3
    assert browser.evaluate("document.getElementById('filters').getClientRects().length") == 0
    assert browser.evaluate("document.getElementById('theme').getClientRects().length") == 0


def test_pictures_have_names_and_descriptions(opened: chromium.Browser) -> None:
    names = """[...document.querySelectorAll('svg')].map((svg) => svg.getAttribute('aria-labelledby').split(' ')
        .map((id) => document.getElementById(id).textContent).join('|'))"""
    found = opened.evaluate(names)
    assert any(text.startswith("The unit of the gradients along the path|zero_grad in line") for text in found)
    assert any(text.startswith("The norm of the applied gradient over the loss scale S|Intended: 1.") for text in found)
    ids = opened.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
