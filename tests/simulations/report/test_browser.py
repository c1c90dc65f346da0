"""The report of six methods and five seeds, in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulations.report import write_report
from tests.guard import spent
from tests.simulations.report.conftest import saved_comparison

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

METHODS = ["sgd", "dpsgd", "dpsgd-f", "dpsgd-global", "dpsgd-global-adapt", "gs-dp-sgd"]
MISSING = ("the report is tested in Chromium: install it (on Debian: apt-get install chromium) and the extra dev "
           "(pip install -c constraints.txt '.[dev]')")
YARDSTICK = "(() => { let x = 1; for (let i = 0; i < 8e7; i++) x = (x * 16807) % 2147483647; return x })()"
"""What takes a browser two seconds of processor time, where a plain SGD step of the Adult MLP takes 1 ms."""


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.fail(f"there is no browser: {MISSING}", pytrace=False)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail(f"playwright is not installed: {MISSING}", pytrace=False)
    quiet = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=quiet)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = saved_comparison(tmp_path_factory.mktemp("browser") / "six", METHODS, 5, imbalance="8:40")
    return write_report([folder])[0]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report with every kind of part, of fewer methods and seeds: the checker takes long for many marks."""
    folder = saved_comparison(tmp_path_factory.mktemp("small") / "two", METHODS[1:3], 2, imbalance="8:40")
    return write_report([folder])[0]


class Opened:
    """The page in a new window, with its complaints, its requests to a network, and the seconds of processor time that
    it took to open.
    """

    def __init__(self, browser, file: Path, width: int = 1280, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        before = spent()
        self.page.goto(file.as_uri(), wait_until="load")
        self.seconds = spent() - before


@pytest.fixture
def page(browser, file: Path) -> Iterator[object]:
    opened = Opened(browser, file)
    yield opened.page
    opened.page.close()
    assert opened.complaints == []


def test_it_is_small_opens_fast_and_asks_for_nothing(browser, file: Path) -> None:
    assert file.stat().st_size < 5e6
    opened = Opened(browser, file)
    opened.page.wait_for_timeout(300)
    before = spent()
    opened.page.evaluate(YARDSTICK)
    two_seconds = spent() - before
    opened.page.close()
    again = Opened(browser, file)
    again.page.close()
    assert min(opened.seconds, again.seconds) < two_seconds
    assert [url for url in opened.requests if url != file.as_uri() and not url.startswith("data:")] == []
    assert opened.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light"), (794, "dark")])
def test_it_fits_every_width_and_is_drawn_in_light_and_dark(browser, file: Path, width: int, scheme: str,
                                                            tmp_path: Path) -> None:
    """794 pixels are the width of A4, printed: always dark on light."""
    opened = Opened(browser, file, width, scheme)
    if width == 794:
        opened.page.emulate_media(media="print")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light" or width == 794)
    sizes = opened.page.evaluate("[...document.querySelectorAll('.panels svg')].filter(s => s.checkVisibility())"
                                 ".map(s => s.getBoundingClientRect()).map(b => [b.width, b.height])")
    assert len(sizes) > 20
    assert all(w >= 250 and h >= 100 for w, h in sizes)
    opened.page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 50_000
    opened.page.close()
    assert opened.complaints == []


def column(page, table: str, place: int) -> list[str]:
    return page.eval_on_selector_all(f"#{table} tbody tr", f"rows => rows.map(row => row.cells[{place}].dataset.value)")


def test_a_click_or_a_key_sorts_a_table_either_way(page) -> None:
    heading = page.locator("#part-1-methods thead th", has_text="accuracy").first
    heading.locator("button").click()
    numbers = [float(text) for text in column(page, "part-1-methods", 1)]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 1
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").press("Enter")
    assert [float(text) for text in column(page, "part-1-methods", 1)] == sorted(numbers, reverse=True)
    assert "sorted by accuracy" in page.inner_text("#status")
    page.locator("#part-1-methods thead th", has_text="epsilon").locator("button").click()
    assert column(page, "part-1-methods", 9)[-1] == "inf"
    page.locator("#part-1-methods thead th", has_text="method").locator("button").click()
    assert column(page, "part-1-methods", 0) == sorted(METHODS)


def test_a_legend_hides_a_method_in_every_figure_and_shows_it_again(page) -> None:
    def shown(method: str = "dpsgd") -> int:
        return page.eval_on_selector_all(f"g[data-series={method}]",
                                         "all => all.filter(g => getComputedStyle(g).display !== 'none').length")

    before = shown()
    button = page.locator("button[data-toggle=dpsgd]").first
    button.focus()
    page.keyboard.press("Space")
    assert shown() == 0 < before
    assert set(page.eval_on_selector_all("button[data-toggle=dpsgd]", "all => all.map(b => b.ariaPressed)")) == {
        "false"}
    assert shown("sgd") > 0
    button.click()
    assert shown() == before


def test_a_table_is_downloaded_as_csv_with_every_digit_and_interval(page, tmp_path: Path) -> None:
    with page.expect_download() as started:
        page.locator("button[data-table=part-1-methods]").click()
    assert started.value.suggested_filename == "part-1-methods.csv"
    started.value.save_as(tmp_path / "methods.csv")
    with (tmp_path / "methods.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    assert [row["method"] for row in rows] == [*METHODS, "majority class"]
    assert rows[0]["epsilon"] == "inf"
    assert float(rows[1]["accuracy, low"]) < float(rows[1]["accuracy"]) < float(rows[1]["accuracy, high"])
    assert len(rows[1]["accuracy"]) > 6


def test_pointing_at_a_mark_says_what_it_is(page) -> None:
    page.locator("g[data-series=dpsgd] .hit").first.hover()
    assert page.inner_text("#tip").startswith("dpsgd: accuracy 0.")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_a_checker_finds_no_serious_violation(browser, small: Path, width: int, scheme: str) -> None:
    """axe-core, by Deque, on the page with everything unfolded."""
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page.goto(small.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    page.close()
    assert [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found
            if each["impact"] in ("serious", "critical")] == []
    assert [each["id"] for each in found] == []


def test_on_a_phone_the_accuracy_comes_first_and_the_first_column_stays(browser, file: Path) -> None:
    page = Opened(browser, file, 390).page
    headings = page.locator("#part-1-methods thead th")
    assert headings.nth(1).inner_text().strip().startswith("accuracy")
    box = headings.nth(1).bounding_box()
    assert box["x"] + box["width"] <= 390
    row = page.locator("#part-1-methods tbody tr").first
    name, figure = row.locator("th"), row.locator("td").first
    before = name.bounding_box()["x"], figure.bounding_box()["x"]
    page.eval_on_selector("#part-1-methods", "table => { table.parentElement.scrollLeft = 120; }")
    assert name.bounding_box()["x"] == before[0]
    assert figure.bounding_box()["x"] == before[1] - 120
    page.close()


def test_in_print_headings_repeat_closed_sections_are_open_and_pages_have_numbers(browser, file: Path) -> None:
    """A heading with a box for its button is not repeated by Chromium, nor one that may be broken."""
    page = Opened(browser, file).page
    unfolded = ("[...document.querySelectorAll('details:not(.data):not(details.data *)')]"
                ".map(part => part.children[1].checkVisibility({contentVisibilityAuto: true}))")
    assert not any(page.evaluate(unfolded))
    page.emulate_media(media="print")
    assert len(page.evaluate(unfolded)) > 3
    assert all(page.evaluate(unfolded))
    heading = page.evaluate("(() => { const head = getComputedStyle(document.querySelector('thead')); return ["
                            "head.display, head.breakInside, getComputedStyle(document.querySelector('tfoot')).display,"
                            "getComputedStyle(document.querySelector('thead button')).display]; })()")
    assert heading == ["table-header-group", "avoid", "table-row-group", "contents"]
    rules = page.evaluate("[...document.styleSheets[0].cssRules].map(rule => rule.cssText)")
    assert any(rule.startswith("@page") and "counter(pages)" in rule for rule in rules)
    page.close()


def test_what_was_closed_is_closed_again_after_printing(page) -> None:
    count = "document.querySelectorAll('details[open]').length"
    page.evaluate("addEventListener('beforeprint', () => { document.body.dataset.open = " + count + "; })")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert int(page.evaluate("document.body.dataset.open")) > 3
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(count) == 0
