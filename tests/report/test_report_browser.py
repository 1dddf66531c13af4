"""The page in Chromium: no errors, nothing outside the window or on top of something else, keyboard, WCAG AA."""

from __future__ import annotations

import shutil
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import sync_playwright
from synthetic_records import write_all

import mgg.report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
DESK, PHONE = (1280, 800), (390, 844)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]

#: Pairs of neighbors in the page's flow that cover each other by more than a pixel.
OVERLAPS = """() => {
    const found = [];
    for (const parent of document.querySelectorAll("body, main, main section, main details, figure, nav")) {
        const boxes = [...parent.children]
            .filter((each) => !["fixed", "sticky", "absolute"].includes(getComputedStyle(each).position))
            .map((each) => [each, each.getBoundingClientRect()])
            .filter(([, box]) => box.width > 1 && box.height > 1);
        for (let i = 0; i < boxes.length; ++i)
            for (let k = i + 1; k < boxes.length; ++k) {
                const [a, b] = [boxes[i][1], boxes[k][1]];
                const [w, h] = [Math.min(a.right, b.right) - Math.max(a.left, b.left),
                                Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
                if (w > 1 && h > 1)
                    found.push(`${boxes[i][0].outerHTML.slice(0, 60)} | ${boxes[k][0].outerHTML.slice(0, 60)}`);
            }
    }
    return found;
}"""
#: Elements that reach over the window's right edge and are in nothing that scrolls.
OUTSIDE = """() => [...document.querySelectorAll("body *")].filter((each) => {
    if (each.getBoundingClientRect().right <= innerWidth + 1 || each.closest("svg") !== null) return false;
    for (let at = each.parentElement; at; at = at.parentElement)
        if (["auto", "scroll", "hidden"].includes(getComputedStyle(at).overflowX)) return false;
    return true;
}).map((each) => each.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of a whole experiment."""
    folder = tmp_path_factory.mktemp("browser")
    mgg.report.build(write_all(folder / "in"), folder / "out", "Whole")
    return folder / "out" / "index.html"


@pytest.fixture
def opened(browser, report):
    """Opens the page in a window of some size and color scheme; at the end nothing has gone wrong or been fetched."""
    wrong, contexts = [], []

    def open_at(size=DESK, scheme="light"):
        context = browser.new_context(viewport=dict(zip(("width", "height"), size, strict=True)), color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or wrong.append(request.url))
        page.goto(report.as_uri())
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("size", [DESK, PHONE, (768, 1024)])
def test_nothing_overflows_or_overlaps(opened, size):
    page = opened(size)
    for unfolded in (False, True):
        if unfolded:
            page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= size[0]
        assert page.evaluate(OUTSIDE) == []
        assert page.evaluate(OVERLAPS) == []


def test_first_screen_shows_what_ran(opened):
    page = opened()
    tops = page.evaluate("[...document.querySelectorAll('main svg')].map((each) => each.getBoundingClientRect().top)")
    assert min(tops) < DESK[1]
    assert page.locator("#summary").bounding_box()["y"] < DESK[1] / 2


def test_keyboard_reaches_every_link_and_section(opened):
    """By Tab: every link and every folded section, in the order of the page, each with a visible outline."""
    page = opened()
    wanted = page.evaluate(
        "[...document.querySelectorAll('a[href], summary')].filter((each) => each.checkVisibility()).length"
    )
    assert wanted > 20
    seen, places = 0, []
    for _ in range(3 * wanted):
        page.keyboard.press("Tab")
        kind, outline, place = page.evaluate(
            """() => { const at = document.activeElement, all = [...document.querySelectorAll("*")];
                return [at.tagName, getComputedStyle(at).outlineStyle, all.indexOf(at)]; }"""
        )
        if kind == "BODY" or (places and place < places[-1]):
            break
        assert outline != "none", kind
        places.append(place)
        seen += kind in ("A", "SUMMARY")
    assert seen == wanted
    folded = page.query_selector("details:not([open]) > summary")
    folded.focus()
    page.keyboard.press("Enter")
    assert folded.evaluate("(each) => each.parentElement.open")


def test_contents_links_lead_to_their_sections(opened):
    page = opened()
    for link in page.locator("nav a").all():
        link.click()
        top = page.evaluate(f"document.querySelector('{link.get_attribute('href')}').getBoundingClientRect().top")
        at_end = page.evaluate("scrollY + innerHeight >= document.scrollingElement.scrollHeight - 1")
        assert -1 <= top < 100 or at_end
        box = link.bounding_box()
        assert 0 <= box["y"] < DESK[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE])
def test_page_follows_wcag_aa(opened, size, scheme):
    page = opened(size, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})")
    told = [f"{each['id']}: {node['html'][:120]}" for each in found["violations"] for node in each["nodes"]]
    assert told == []
    assert "color-contrast" in {each["id"] for each in found["passes"]}
