"""The pages in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample

from sensorveil.report import render

pytestmark = pytest.mark.browser

CHROMIUM = Path("/usr/bin/chromium")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"phone": (360, 740), "desktop": (1280, 800)}
FIRST = ("p.eyebrow", "h1", "#from-whom", "#cost")
"""Where it was measured, is it hidden, from whom, and what does it cost."""


@pytest.fixture(scope="module")
def chromium():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.is_file():
        pytest.skip(f"{CHROMIUM} is missing: install Debian's package chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(params=sample.PAGES, scope="module")
def address(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / f"{request.param}.html"
    path.write_text(sample.PAGES[request.param](), "utf-8")
    return path.as_uri()


@pytest.fixture(params=SIZES)
def opened(request, chromium, address):
    """A page that has been loaded, with all requests and complaints written down."""
    width, height = SIZES[request.param]
    tab = chromium.new_page(viewport={"width": width, "height": height})
    tab.requests, tab.complaints = [], []
    tab.on("request", lambda sent: tab.requests.append(sent.url))
    tab.on("console", lambda said: tab.complaints.append(said.text))
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.on("dialog", lambda dialog: tab.complaints.append(f"dialog: {dialog.message}"))
    tab.goto(address)
    yield tab
    tab.close()


def test_page_in_the_browser(opened, address):
    # Everything open is the harder case: tables and charts inside folded parts count too.
    verdict = opened.locator("h1").bounding_box()
    assert verdict["y"] >= 0
    assert verdict["y"] + verdict["height"] <= opened.viewport_size["height"]
    assert opened.locator("h1").is_visible()

    opened.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    across, room = opened.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert across <= room

    sizes = opened.evaluate(
        "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect())"
        ".map(r => [r.width, r.height])"
    )
    assert sizes
    assert all(width > 0 and height > 0 for width, height in sizes)

    smallest = opened.evaluate(
        "Math.min(...[...document.querySelectorAll('.chart text')].map("
        "t => 12 * t.ownerSVGElement.getBoundingClientRect().width / 340))"
    )
    assert smallest >= 11

    assert not opened.evaluate("document.scripts.length")
    assert opened.requests == [address]
    assert opened.complaints == []


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(
    "name", ["hidden", "not hidden", "inconclusive", "two", "copies", "donors"]
)
def test_the_first_screen_answers_is_it_hidden_from_whom_and_at_what_cost(
    chromium, tmp_path, name, size
):
    path = tmp_path / "a.html"
    path.write_text(sample.PAGES[name](), "utf-8")
    width, height = size
    tab = chromium.new_page(viewport={"width": width, "height": height})
    tab.goto(path.as_uri())
    asked = (*FIRST, "#about-donors") if name in ("copies", "donors") else FIRST
    boxes = [tab.locator(where).bounding_box() for where in asked]
    ends = {where: box["y"] + box["height"] for where, box in zip(asked, boxes, strict=True)}
    assert all(box["height"] > 0 and box["width"] > 0 for box in boxes)
    assert max(ends.values()) <= height, ends
    if width > 1000:  # a wide screen has room for the picture too
        picture = tab.locator("svg.strip").first.bounding_box()
        assert picture["y"] + picture["height"] <= height
    tab.close()


def test_dark_mode_is_dark_and_print_is_light(chromium, tmp_path):
    path = tmp_path / "a.html"
    path.write_text(render(sample.audit()), "utf-8")
    tab = chromium.new_page(color_scheme="dark")
    tab.goto(path.as_uri())
    ground = "getComputedStyle(document.body).backgroundColor"
    assert tab.evaluate(ground) == "rgb(20, 24, 27)"
    tab.emulate_media(media="print")
    assert tab.evaluate(ground) == "rgb(255, 255, 255)"
    tab.close()
