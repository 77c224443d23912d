"""The pages in a real browser: nothing is cut off, sent, run or out of reach."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from samples import (
    HOSTILE,
    hostile_audit,
    hostile_report,
    poor_audit,
    poor_report,
    rich_audit,
    rich_report,
)

from mfairfl.report.page import render

pytestmark = pytest.mark.slow

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]}}
PAGES = {
    "rich": lambda: render(rich_report()),
    "poor": lambda: render(poor_report()),
    "hostile": lambda: render(hostile_report()),
    "rich audit": lambda: render(rich_audit()),
    "poor audit": lambda: render(poor_audit()),
    "hostile audit": lambda: render(hostile_audit()),
}
SCREENS = {"desk": (1280, 800), "phone": (390, 844)}
OPEN_ALL = "document.querySelectorAll('details').forEach(one => one.open = true)"
WIDTHS = (320, 390, 640, 800, 1024, 1280, 1920)
SMALLEST = 11  # CSS pixels


def _starts(path):
    """Some distributions install a script that only asks for another package."""
    try:
        asked = subprocess.run([path, "--version"], check=False, capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


@pytest.fixture(scope="module")
def browser():
    """One browser for this module: Playwright's loop must not run beside other tests."""
    found = next((path for path in map(shutil.which, BROWSERS) if path and _starts(path)), None)
    if found is None:
        pytest.skip(f"no browser that starts is installed ({', '.join(BROWSERS)})")
    as_root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=[*QUIET, *as_root])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(make(), encoding="utf-8")
    return folder


class Visit:
    """A page that is open, and whatever it said or asked for."""

    def __init__(self, browser, file, screen, *, scripts=True):
        width, height = SCREENS[screen]
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, java_script_enabled=scripts
        )
        self.page = self.context.new_page()
        self.said, self.requests = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.address = file.as_uri()
        self.page.goto(self.address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def short_audit():
    """An audit with one of each part: axe takes long for thousands of cells."""
    found = rich_audit()
    drift = found.drift.model_copy(update={"changes": found.drift.changes[:12]})
    parts = {"sections": found.sections[:1], "bias_tables": found.bias_tables[:2]}
    return found.model_copy(update={**parts, "drift": drift})


SHORT = {
    "report": lambda: render(rich_report(rounds=4)),
    "hostile report": lambda: render(hostile_report(count=10, rounds=4)),
    "poor report": lambda: render(poor_report()),
    "audit": lambda: render(short_audit()),
    "poor audit": lambda: render(poor_audit()),
}


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("make", SHORT.values(), ids=SHORT)
def test_the_page_is_accessible(browser, tmp_path, make, screen):
    file = tmp_path / "page.html"
    file.write_text(make(), encoding="utf-8")
    with Visit(browser, file, screen) as visit:
        visit.page.evaluate(OPEN_ALL)
        assert not Axe().run(visit.page, options=RULES).response["violations"]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_quiet_and_fits_any_screen(browser, files, name):
    with Visit(browser, files / f"{name}.html", "desk") as visit:
        for everything in (False, True):
            if everything:
                visit.page.evaluate(OPEN_ALL)
            for width in WIDTHS:
                visit.page.set_viewport_size({"width": width, "height": 800})
                wide = visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, width
        assert visit.said == []
        assert visit.requests == [visit.address]


@pytest.mark.parametrize("screen", SCREENS)
def test_it_reads_the_same_without_scripts(browser, files, screen):
    with Visit(browser, files / "rich.html", screen, scripts=False) as visit:
        page = visit.page
        assert page.get_by_role("heading", level=1).inner_text() == (
            "mfairfl on adult: who gets income >50K?"
        )
        assert page.get_by_text("Too few rows to tell", exact=True).first.is_visible()
        for heading in ("How each group fares", "How training went", "Where the numbers come"):
            assert page.get_by_role("heading", name=heading).is_visible()
        for number in ("85.8 %", "1.14 points", "0.42 points"):
            assert page.get_by_role("cell", name=number).first.is_visible()
        assert visit.said == []
        assert visit.requests == [visit.address]


@pytest.mark.parametrize("screen", SCREENS)
def test_the_verdict_is_on_the_first_screen(browser, files, screen):
    """Title, badge, three sentences and the first warning, without scrolling."""
    with Visit(browser, files / "rich.html", screen) as visit:
        places = ["h1", ".badge", ".answers div:nth-child(3)", ".warnings li:first-of-type"]
        for place in places:
            box = visit.page.locator(place).first.bounding_box()
            assert box["y"] + box["height"] <= SCREENS[screen][1], place


@pytest.mark.parametrize("name", ["rich", "hostile", "rich audit"])
def test_texts_of_charts_are_large_enough_on_a_phone(browser, files, name):
    with Visit(browser, files / f"{name}.html", "phone") as visit:
        sizes = visit.page.evaluate(
            """[...document.querySelectorAll('svg.chart')].map(chart => {
                const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
                const texts = [...chart.querySelectorAll('text')].map(t => getComputedStyle(t));
                return Math.min(...texts.map(style => scale * parseFloat(style.fontSize)));
            })"""
        )
        assert len(sizes) > 10
        assert min(sizes) >= SMALLEST


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", ["rich", "hostile", "rich audit", "hostile audit"])
def test_texts_of_charts_stay_inside(browser, files, name, screen):
    """A text may leave its chart by less than the space around it."""
    with Visit(browser, files / f"{name}.html", screen) as visit:
        outside = visit.page.evaluate(
            """[...document.querySelectorAll('svg.chart')].flatMap(chart => {
                const frame = chart.getBoundingClientRect();
                return [...chart.querySelectorAll('text')].filter(t => {
                    const box = t.getBoundingClientRect();
                    return box.left < frame.left - 14 || box.right > frame.right + 14
                        || box.top < frame.top - 4 || box.bottom > frame.bottom + 4;
                }).map(t => t.textContent);
            })"""
        )
        assert outside == []


def test_cells_without_a_number_take_no_place_on_a_phone(browser, files):
    with Visit(browser, files / "rich.html", "phone") as visit:
        empty = visit.page.locator("table.stack td:empty")
        assert empty.count() > 0
        assert not any(cell.is_visible() for cell in empty.all())


def test_the_keyboard_reaches_every_table_that_scrolls(browser, files):
    with Visit(browser, files / "rich.html", "phone") as visit:
        page = visit.page
        wanted = {
            region.get_attribute("aria-label")
            for region in page.locator(".scroll").all()
            if region.is_visible()
        }
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
        reached = set()
        for _ in range(200):
            page.keyboard.press("Tab")
            label = page.evaluate("document.activeElement.getAttribute('aria-label')")
            reached |= {label}
            if page.evaluate("document.activeElement === document.body"):
                break
        assert wanted
        assert wanted <= reached


@pytest.mark.parametrize("name", ["hostile", "hostile audit"])
def test_hostile_names_are_text(browser, files, name):
    with Visit(browser, files / f"{name}.html", "desk") as visit:
        page = visit.page
        assert page.locator("script, img, iframe, object, embed, link").count() == 0
        shown = page.locator("main").inner_text()
        for hostile in HOSTILE:
            assert hostile.replace("\u202e", "?") in shown
        assert "\u202e" not in page.content()
        assert visit.said == []
        assert visit.requests == [visit.address]


def test_it_prints(browser, files):
    with Visit(browser, files / "rich.html", "desk") as visit:
        paper = visit.page.pdf(format="A4")
        assert len(re.findall(rb"/Type\s*/Page\b", paper)) >= 3
        visit.page.emulate_media(media="print")
        folded = visit.page.locator("details.data table").first
        assert folded.bounding_box()["height"] > 100
        assert not visit.page.locator("nav").is_visible()
