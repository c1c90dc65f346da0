"""The page of a fit in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations.fitting.fit import Wanted, fit
from simulations.fitting.save import save
from tests.simulations.fitting.tables import people
from tests.simulations.report.test_browser import Opened, browser

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
__all__ = ["browser"]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a fit, of a table with a long name that has no place to break."""
    folder = tmp_path_factory.mktemp("page") / "people"
    table = people(20_000).rename(columns={"postcode": "postcode_of_the_last_permanent_address"})
    save(fit(Wanted(table, "hired", "sex", gap=0.1, site="school")), folder)
    return folder / "report.html"


def test_the_page_asks_nobody_and_complains_of_nothing(browser, page_file: Path) -> None:
    opened = Opened(browser, page_file)
    assert opened.complaints == []
    assert opened.requests == [page_file.as_uri()]


def test_the_slider_moves_all_figures_by_keyboard_and_by_mouse(browser, page_file: Path) -> None:
    page = Opened(browser, page_file).page
    slider, told = page.locator("#tau"), page.locator("#told")
    slider.focus()
    page.keyboard.press("Home")
    free = page.locator("[data-cell]").all_inner_texts()
    assert told.inner_text().startswith("tau 1")
    page.keyboard.press("End")
    fair = page.locator("[data-cell]").all_inner_texts()
    assert sum(one != other for one, other in zip(free, fair, strict=True)) >= len(free) - 3
    assert page.locator("#front .point.now").count() == 1
    page.locator("#front .point").first.dispatch_event("click")  # marks may lie above each other
    assert told.inner_text().startswith("tau 1")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
    assert not told.inner_text().startswith("tau 1")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")])
def test_a_checker_finds_no_violation(browser, page_file: Path, width: int, scheme: str) -> None:
    """axe-core, by Deque, on the page with everything unfolded."""
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page.goto(page_file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
    assert wide <= width


@pytest.mark.parametrize("width", [390, 1280])
def test_no_word_of_a_picture_is_cut_off(browser, page_file: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, bypass_csp=True)
    page.goto(page_file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    words, outside = page.evaluate("""() => {
        const words = [...document.querySelectorAll("svg text")].map(text => [text, text.getBoundingClientRect()]);
        const beyond = words.filter(([text, box]) => box.left < 0 || box.right > window.innerWidth
            || box.left < text.ownerSVGElement.getBoundingClientRect().left - 1);
        return [words.length, beyond.map(([text]) => text.textContent)];
    }""")
    page.close()
    assert words > 50
    assert outside == []


def test_it_prints(browser, page_file: Path, tmp_path: Path) -> None:
    page = Opened(browser, page_file).page
    page.emulate_media(media="print")
    assert not page.locator(".slider").is_visible()
    page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
