"""Figures of reproductions: every description names what runs measure, and every point has the right values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedfair.accounting import Event, Ledger
from simulations.reproductions.published import Drawing, Published, load, names, plan
from simulations.reproductions.request import Kept, Request, kept_runs
from simulations.reproductions.tables import _mean, drawn, reproduce
from tests.for_each import for_each

METHODS = {"SGD": {"strategy": "sgd"}, "A": {"strategy": "dpsgd"}, "B": {"strategy": "dpsgd", "epochs": 2}}


def described(**figure: Any) -> Published:
    figure = {"name": "f", "title": "F", "metric": "accuracy", **figure}
    return Published(title="t", preset="digits", seeds=2, published_seeds=1, datasets={"D": {"dataset": "digits"}},
                     methods=METHODS, quick={"text": "q", "seeds": 1}, figures=[figure])  # type: ignore[arg-type]


def kept(offset: float, steps: int) -> Kept:
    """Return two evaluations of two groups, and a clip norm that is reported twice."""
    rows = [(round_, "test", group, "accuracy", offset + 0.1 * round_ + (group == "8") * 0.5)
            for round_ in (1, 3) for group in ("2", "8", "all")]
    rows += [(1, "rule", "2", "clip_norms", 1.0), (3, "rule", "2", "clip_norms", 2.0), (3, "rule", "2", "theta", 5.0)]
    rows += [(3, "train", group, "records", 100 * steps + (group == "8")) for group in ("2", "8")]
    ledger = Ledger(("2", "8"), 1e-5)
    ledger.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, 1.0)), steps)
    return Kept(pd.DataFrame(rows, columns=["round", "split", "group", "metric", "value"]), ledger)


def made(published: Published) -> Any:
    planned = plan(published, Request(seeds=2))
    runs = [kept({"SGD": 0.3, "A": 0.1, "B": 0.2}[p.method] + 0.01 * p.experiment.seed,
                 {"SGD": 1, "A": 10, "B": 20}[p.method]) for p in planned]
    return next(iter(drawn(published, planned, runs))), runs


def test_groups_at_the_end_of_training() -> None:
    figure, _ = made(described(kind="by-group", methods=("SGD", "A")))
    (panel,) = figure.panels
    assert [series.name for series in panel.series] == ["SGD", "A"]
    assert panel.x.ticks == {0.0: "2", 1.0: "8"}
    assert [point.y.value for point in panel.series[1].points] == pytest.approx([0.405, 0.905])
    assert panel.series[1].points[0].y.low < 0.405 < panel.series[1].points[0].y.high


@pytest.mark.parametrize(("figure", "ends"), [
    ({"metric": "accuracy"}, (0.0, 1.0)), ({"metric": "loss"}, (0.0, math.inf)),
    ({"metric": "accuracy", "kind": "against", "across": "epsilon", "minus": "SGD"}, (-1.0, 1.0)),
    ({"metric": "risk_noise"}, (-math.inf, math.inf))])
def test_intervals_of_few_seeds_do_not_reach_beyond_what_a_mean_can_be(figure: dict[str, str],
                                                                       ends: tuple[float, float]) -> None:
    (drawing,) = described(**{"kind": "by-group", **figure}).figures
    low, high = _mean(drawing, pd.Series([0.05, 0.95]))[1:]
    free = 0.45 * 12.7062047  # half of Student's interval for two runs
    assert (low, high) == pytest.approx((max(ends[0], 0.5 - free), min(ends[1], 0.5 + free)))


def test_the_course_of_training_and_of_a_rule() -> None:
    figure, _ = made(described(kind="course", groups=("8",)))
    (panel,) = figure.panels
    assert [(point.x.value, point.y.value) for point in panel.series[1].points] == [
        (1.0, pytest.approx(0.705)), (3.0, pytest.approx(0.905))]
    figure, _ = made(described(kind="course", split="rule", metric="clip_norms", methods=("A",)))
    assert [point.y.value for point in figure.panels[0].series[0].points] == [1.0, 2.0]


def test_several_metrics_are_lines_of_one_panel_distinguished_in_legend_and_table() -> None:
    figure, _ = made(described(kind="course", split="rule", metric=["clip_norms", "theta"], methods=("A", "B")))
    (panel,) = figure.panels
    assert panel.y.label == "clip norms"
    lines = {"A, clip norms": [1.0, 2.0], "A, theta": [5.0], "B, clip norms": [1.0, 2.0], "B, theta": [5.0]}
    assert {series.name: [point.y.value for point in series.points] for series in panel.series} == lines
    assert figure.legend() == dict(zip(lines, range(4), strict=True))
    assert {row[1] for row in figure.table().rows} == set(lines)


def test_several_metrics_have_no_other_place_than_lines_over_the_rounds() -> None:
    with pytest.raises(ValueError, match="figure 'f' of kind 'by-group' shows the metrics 'accuracy', 'loss'"):
        described(kind="by-group", metric=["accuracy", "loss"])


@pytest.mark.parametrize("across", ["epsilon", "epochs"])
def test_what_is_lost_along_a_setting_or_epsilon(across: str) -> None:
    figure, runs = made(described(kind="against", across=across, minus="SGD", groups=("2",)))
    (series,) = figure.panels[0].series
    assert [point.y.value for point in series.points] == [pytest.approx(-0.1), pytest.approx(-0.2)] if (
        across == "epochs") else [pytest.approx(-0.2), pytest.approx(-0.1)]
    expected = {"epsilon": [runs[1].ledger.epsilon(), runs[2].ledger.epsilon()], "epochs": [2.0, 60.0]}[across]
    assert [point.x.value for point in series.points] == pytest.approx(expected)
    assert [point.label for point in series.points] == (["A", "B"] if across == "epsilon" else ["B", "A"])


def test_what_a_group_has_along_the_records_that_it_trains_with() -> None:
    figure, _ = made(described(kind="against", across="records", groups=("8",)))
    sgd, dpsgd = figure.panels[0].series
    assert [(point.x.value, point.label) for point in sgd.points] == [(101, "SGD")]
    assert [(point.x.value, point.label) for point in dpsgd.points] == [(1001, "A"), (2001, "B")]
    assert [point.y.value for point in dpsgd.points] == [pytest.approx(0.905), pytest.approx(1.005)]


def test_a_metric_that_no_run_has_is_refused() -> None:
    with pytest.raises(ValueError, match="figure 'f' shows 'acuracy' of the part 'test', which no run has measured"):
        made(described(kind="course", metric="acuracy"))
    with pytest.raises(ValueError, match="'acuracy' of the part 'test', which no run has measured"):
        made(described(kind="course", metric=["accuracy", "acuracy"]))


def test_the_figures_of_esipova_et_al_show_what_runs_measure(tmp_path: Path) -> None:
    """On other data, with few steps: a loss of each group in training, and each gap with its own bound."""
    small = {"dataset": "digits", "imbalance": "8:40", "hidden": [4], "steps": 3, "risk_every": 1, "risk_vectors": 2}
    published = load("esipova2023-figures")[0].model_copy(update={"datasets": {"Digits": small}})
    planned = plan(published, Request(seeds=1))
    runs = kept_runs([run.experiment for run in planned], tmp_path)
    figures = {figure.name: figure for figure in drawn(published, planned, runs)}
    losses = {series.name: series.points[0].y.value for series in figures["loss"].panels[0].series}
    assert losses == dict.fromkeys(published.methods, losses["SGD"])  # all begin with the same weights
    for name, risk in (("direction-gap", "risk direction gap"), ("clip-gap", "risk clip gap")):
        (panel,) = figures[name].panels
        gap, bound = panel.series
        assert (gap.name, bound.name) == (f"DPSGD, {risk}", f"DPSGD, {risk} bound")
        assert all(above.y.value > below.y.value for above, below in zip(gap.points, bound.points, strict=True))


def test_figure_2_of_xu_et_al_has_the_clip_norm_of_every_class() -> None:
    published = load("xu2021-figures1-3")[0]
    figures = tuple(figure for figure in published.figures if figure.name == "figure2")
    planned = [run for run in plan(published, Request(seeds=1)) if run.method == "DPSGD-F"]
    rows = [(round_, "rule", str(group), "clip_norms", 1.0) for round_ in (1, 2) for group in range(10)]
    metrics = pd.DataFrame(rows, columns=["round", "split", "group", "metric", "value"])
    (figure,) = drawn(published.model_copy(update={"figures": figures}), planned, [Kept(metrics, kept(0, 1).ledger)])
    assert [panel.title for panel in figure.panels] == [f"MNIST, {group}" for group in range(10)]


@for_each("name", names())
def test_every_described_figure_names_methods_and_settings_that_there_are(name: str) -> None:
    published, _ = load(name)
    for figure in published.figures:
        assert set(figure.methods) | ({figure.minus} - {""}) <= set(published.methods)
        assert (figure.kind == "against") == bool(figure.across)
        if figure.across not in ("", "epsilon", "records"):
            values = {float(getattr(run.experiment, figure.across)) for run in plan(published, Request(seeds=1))
                      if run.method in figure.methods}
            assert len(values) > 2
    assert len({figure.name for figure in published.figures}) == len(published.figures)


def test_figures_alone_from_beginning_to_end(tmp_path: Path) -> None:
    (tmp_path / "nobody.toml").write_text('''
title = "Nobody 2026, Figure 1"
preset = "digits"
seeds = 1
published_seeds = 1
[datasets]
Digits = { dataset = "digits", hidden = [6], epochs = 1, imbalance = "", eval_every = 0.5 }
[methods]
SGD = { strategy = "sgd" }
Fair = { strategy = "dpsgd-f" }
[quick]
text = "The same."
seeds = 1
[[figures]]
name = "norms"
title = "Clip norms"
kind = "course"
split = "rule"
metric = "clip_norms"
''')
    cells = reproduce("nobody", tmp_path / "out", folder=tmp_path)
    assert cells.empty
    page = (tmp_path / "out" / "README.md").read_text()
    assert "![Clip norms](norms.svg)" in page
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "norms.svg", "norms.png", "norms.csv", "README.md", "config.toml", "environment.json", "runs.parquet"}
    assert len(pd.read_csv(tmp_path / "out" / "norms.csv")) > 10


def test_a_label_says_what_is_taken_away() -> None:
    figure = Drawing(name="f", title="F", kind="against", metric="demographic_parity", minus="SGD")
    assert figure.label == "demographic parity, less that of SGD"
