"""Runs, comparisons and ledgers in notebooks: tables with the figures of the summary, in which no name is markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from simulations.plans.compare import compare, experiments
from simulations.results.result import Result, Results, summary

GROUP = "<script>alert(1)</script>\x1b"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return two methods with two seeds on a file, one of whose groups has a name that is dangerous in a page."""
    file = tmp_path_factory.mktemp("data") / "people.csv"
    rows = [f"{i % 7},{'yes' if i % 7 > 2 else 'no'},{GROUP if i % 3 else 'c'}" for i in range(120)]
    file.write_text("\n".join(["x,hired,sex", *rows]) + "\n")
    settings = {"csv": str(file), "label": "hired", "group": "sex", "hidden": [], "epochs": 2, "batch_size": 16,
                "delta": 1e-4}
    return compare(experiments(["sgd", "dpsgd"], [0, 1], None, settings))


class Tables(HTMLParser):
    """Parser that collects the texts of the cells, by table and row."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[list[str]]] = []
        self.within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        if tag == "table":
            self.found.append([])
        elif tag == "tr":
            self.found[-1].append([])
        self.within = tag in ("th", "td")

    def handle_endtag(self, tag: str) -> None:
        """See `HTMLParser`."""
        self.within = False

    def handle_data(self, data: str) -> None:
        """See `HTMLParser`."""
        if self.within:
            self.found[-1][-1].append(data)


def tables(shown: Result | Results | Ledger) -> list[dict[str, list[str]]]:
    """Return the columns of each table by heading."""
    parser = Tables()
    parser.feed(shown._repr_html_())
    return [dict(zip(table[0], map(list, zip(*table[1:], strict=True)), strict=True)) for table in parser.found]


def test_a_comparison_is_shown_by_method_and_by_group_with_the_summarys_figures(results: Results) -> None:
    methods, groups = tables(results)
    rows = summary(results).set_index("strategy")
    assert methods["method"] == ["sgd", "dpsgd"]
    assert list(methods)[:2] == ["method", "accuracy"]
    for method, shown in zip(methods["method"], methods["accuracy"], strict=True):
        mean, deviation = rows.loc[method, ["accuracy_mean", "accuracy_sd"]]
        assert shown.startswith(f"{mean:.3f} ± {deviation:.3f}")
    assert methods["epsilon"] == ["none", up(rows.loc["dpsgd", "epsilon"], ".3f")]
    assert groups["group"] == ["c", GROUP.replace("\x1b", r"\x1b")]
    assert sum(map(int, groups["training records"])) == results[0].data.train.x.shape[0]
    assert groups["accuracy, sgd"][0].startswith(f"{rows.loc['sgd', 'accuracy_c_mean']:.3f}")


def test_a_run_is_shown_with_its_ledger_and_what_was_found(results: Results) -> None:
    run = results[2]
    html = run._repr_html_()
    methods, _, by_group, by_observer = tables(run)
    assert methods["method"] == ["dpsgd"]
    assert by_group["spent"] == [up(value, ".3f") for value in run.ledger.epsilon_by_group().values()]
    assert by_observer["against"] == ["model", "server", "client"]
    assert "Favourable class: &#x27;yes&#x27; of hired" in html
    assert run.ledger._repr_html_() in html
    assert "because" in run.ledger._repr_html_()


def test_names_are_no_markup_and_no_list_is_too_short(results: Results) -> None:
    for shown in (results, results[0], results[0].ledger):
        assert "<script" not in shown._repr_html_()
        assert "&lt;script&gt;" in shown._repr_html_()
    assert Results()._repr_html_() == "<p>no runs</p>"


def test_a_ledger_that_promises_nothing_says_none(results: Results) -> None:
    by_group, _ = tables(results[0].ledger)
    assert set(by_group["guaranteed"]) == {"none"}


def test_a_comparison_has_a_picture_whose_marks_lie_at_the_means(results: Results) -> None:
    """A mark for each group and method, further right for a larger accuracy, and no style that the page would take."""
    shown = results._repr_html_()
    drawing = ElementTree.fromstring(re.search("<svg.*</svg>", shown, re.DOTALL)[0])  # noqa: S314 - our own drawing
    marks = [float(node.attrib["cx"]) for node in drawing.iter("{http://www.w3.org/2000/svg}circle")]
    rows = summary(results).set_index("strategy")
    means = [rows.loc[method, f"accuracy_{group}_mean"] for group in ("c", GROUP) for method in ("sgd", "dpsgd")]
    assert len(marks) == 4
    assert [marks[a] < marks[b] for a in range(4) for b in range(4)] == [
        means[a] < means[b] for a in range(4) for b in range(4)]
    assert not "".join(node.text or "" for node in drawing.iter("{http://www.w3.org/2000/svg}style"))
