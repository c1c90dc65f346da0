"""Curves: a run's whole theta curve without another run, other settings with a run each, and what is written."""

from __future__ import annotations

import json
import math
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfair.accounting import Ledger
from simulations.cli import app
from simulations.engines.run import run
from simulations.plans.compare import experiments
from simulations.plans.curves import curves, theta_curve
from simulations.plans.plan_files import curve_figure, write_curves
from simulations.settings.experiment import SettingsError
from tests.for_each import for_each
from tests.simulations.watched_runs import forbid_runs, watch_runs


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return settings for a small file of two groups, one with fewer records of class 1, and a short training."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(0, 2, 600), rng.normal(size=600)
    y = (x + 1.2 * group - 1 > 0).astype(int)
    path = tmp_path_factory.mktemp("data") / "own.csv"
    rows = [f"{a:.3f},{'ab'[k]},{b}" for a, k, b in zip(x, group, y, strict=True)]
    path.write_text("\n".join(["x,group,label", *rows]))
    return {"csv": str(path), "label": "label", "group": "group", "model": "logistic", "split": [0.4, 0.3, 0.3],
            "learning_rate": 0.5, "clip_norm": 1.0, "steps": 10, "batch_size": 32, "noise_multiplier": 0.0}


def test_a_theta_curve_has_the_metrics_of_runs_with_each_theta(settings: dict[str, object]) -> None:
    result = run(experiments(["dpsgd-p"], [0], None, settings)[0])
    for theta, point in theta_curve(result, (0.02, 0.3)):
        again = run(experiments(["dpsgd-p"], [0], None, {**settings, "theta": theta})[0]).metrics
        last = again[(again["split"] == "test") & (again["group"] == "all") & (again["round"] == 10)]
        assert point == pytest.approx({name: last[last["metric"] == name]["value"].item() for name in point})


def test_a_theta_curve_is_of_the_class_that_is_favourable() -> None:
    settings = {"hidden": [8], "steps": 5, "favourable": 3, "split": [0.4, 0.3, 0.3]}
    made = experiments(["dpsgd-p"], [0], None, settings)[0]
    result = run(made)
    (_, point), = theta_curve(result, [made.theta])
    last = result.metrics.query("split == 'test' and group == 'all' and round == 5")
    assert point == pytest.approx({name: last[last["metric"] == name]["value"].item() for name in point})


def test_settings_are_followed_and_single_points_are_there(settings: dict[str, object]) -> None:
    seen: list[tuple[int, int, str]] = []
    frame = curves(["dpsgd", "dpsgd-p", "gs-dp-sgd"], [0, 1], None, settings,
                   {"theta": [0.0, 0.1, 0.5], "gs-dp-sgd.learning_rate": [0.1, 0.2]},
                   on_round=lambda done, runs, name, *rounds: seen.append((done, runs, name)))
    alone = [(4 + place, 8, f"gs-dp-sgd, seed {place // 2}") for place in range(4)]
    assert list(dict.fromkeys(seen)) == [*((place, 8, "4 runs together") for place in range(4)), *alone]
    assert frame.groupby(["strategy", "setting"]).size().to_dict() == {
        ("dpsgd", ""): 2, ("dpsgd-p", "theta"): 6, ("gs-dp-sgd", "learning_rate"): 4}
    assert frame[["demographic_parity", "accuracy_parity", "accuracy"]].notna().all(axis=None)


@pytest.mark.slow
def test_several_jobs_give_the_same_curves(settings: dict[str, object]) -> None:
    alone, together = (curves(["dpsgd", "dpsgd-p"], [0, 1], None, settings, {"theta": [0.0, 0.5]}, jobs=jobs)
                       for jobs in (1, 2))
    pd.testing.assert_frame_equal(alone, together, rtol=1e-4)


def test_points_that_are_kept_are_not_measured_again(
        settings: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over: dict[str, list[Any]] = {"theta": [0.0, 0.5], "dpsgd.learning_rate": [0.1]}
    first = curves(["dpsgd", "dpsgd-p"], [0], None, settings, over, kept=tmp_path)
    pd.testing.assert_frame_equal(first, curves(["dpsgd", "dpsgd-p"], [0], None, settings, over), check_exact=True)
    asked: list[tuple[str, int, float]] = []

    watch_runs(monkeypatch, lambda made: asked.append((made.strategy, made.seed, made.learning_rate)))
    more = curves(["dpsgd", "dpsgd-p"], [0, 1], None, settings, {**over, "dpsgd.learning_rate": [0.1, 0.2]},
                  kept=tmp_path)
    assert asked == [("dpsgd", 0, 0.2), ("dpsgd", 1, 0.1), ("dpsgd", 1, 0.2), ("dpsgd-p", 1, 0.5)]
    assert len(more) == 8


def test_a_folder_that_was_broken_off_is_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"dataset": ["d"], "strategy": ["dpsgd"], "seed": [0], "setting": [""], "value": [None],
                          "demographic_parity": [0.1], "accuracy_parity": [0.1], "accuracy": [0.9]})
    with monkeypatch.context() as until:
        until.setattr("simulations.plans.plan_files.curve_figure", lambda frame: frame["missing"])
        with pytest.raises(KeyError):
            write_curves(frame, {"seeds": 1}, tmp_path / "out")
    write_curves(frame, {"seeds": 1}, tmp_path / "out")
    assert (tmp_path / "out" / "curves.svg").is_file()


def test_what_no_strategy_uses_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"no strategy here is followed over fairdp\.M"):
        curves(["dpsgd"], [0], None, settings, {"fairdp.M": [1]})
    with pytest.raises(ValueError, match="did not search a threshold"):
        list(theta_curve(run(experiments(["dpsgd"], [0], None, settings)[0]), (0.1,)))


@for_each(("over", "message"), [
    ({"dpsgd.clip_norm": [1], "dpsgd.learning_rate": [1]}, r"is followed over dpsgd\.learning_rate: write STRATEGY"),
    ({"theta": [0.1]}, "followed over theta: write STRATEGY.setting .* theta for those that search a threshold"),
    ({"dpsgd.theta": [0.1]}, r"no strategy here is followed over dpsgd\.theta"),
    ({"dpsgd": [1]}, "no strategy here is followed over dpsgd:"),
    ({"dpsgd.clip_norm": 0.1}, r"dpsgd\.clip_norm is 0\.1: give a list of values, for example dpsgd\.clip_norm=\[0\.1"),
    ({"dpsgd.clip_norm": []}, r"dpsgd\.clip_norm is \[\]: give a list of values"),
    ({"dpsgd.clip_norm": "ab"}, r"dpsgd\.clip_norm is 'ab': give a list of values"),
    ({"dpsgd.seed": [1]}, "seed is 1 among the settings, but it is chosen by --seed"),
    ({"dpsgd.clip_norm": [1, -1]}, "clip_norm is -1: it should be greater than 0")])
def test_what_cannot_be_followed_is_refused_before_anything_runs(
        over: dict[str, Any], message: str, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_runs(monkeypatch, "this is a run")
    with pytest.raises(SettingsError, match=message):
        curves(["dpsgd"], [0], None, settings, over)


def test_a_value_of_theta_is_checked_before_anything_runs(settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
                                                          ) -> None:
    forbid_runs(monkeypatch, "this is a run")
    for over in ({"theta": [0.1, "much"]}, {"dpsgd-p.theta": ["much"]}):
        with pytest.raises(SettingsError, match="theta is 'much'"):
            curves(["dpsgd-p"], [0], None, settings, over)


def test_values_that_are_lists_are_written_as_text(settings: dict[str, object], tmp_path: Path) -> None:
    over = {"dpsgd.hidden": [[8], [4, 2]]}
    frame = curves(["dpsgd"], [0], None, {**settings, "model": "mlp", "steps": 2}, over)
    write_curves(frame, {"over": over}, tmp_path / "out")
    assert pd.read_csv(tmp_path / "out" / "curves.csv")["value"].tolist() == ["[8]", "[4, 2]"]
    assert (tmp_path / "out" / "curves.svg").is_file()


def test_the_command_writes_a_table_and_a_picture(settings: dict[str, object], tmp_path: Path) -> None:
    given = [part for key, value in settings.items() if key not in ("csv", "label", "group")
             for part in ("--set", f"{key}={value}")]
    arguments = ["curve", "--csv", str(settings["csv"]), "--label", "label", "--group", "group", "--preset", "digits",
                 "--set", "hidden=[]", "--set", "imbalance=a:100%", *given, "--strategies", "dpsgd,dpsgd-p",
                 "--over", "theta=[0.05, 0.2]", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert pd.read_csv(tmp_path / "out" / "curves.csv")["strategy"].tolist() == ["dpsgd", "dpsgd-p", "dpsgd-p"]
    svg = ElementTree.fromstring((tmp_path / "out" / "curves.svg").read_text())  # noqa: S314 - our own file
    marks = [node for node in svg.iter("{http://www.w3.org/2000/svg}g") if "data-tip" in node.attrib]
    assert len(marks) == 2 * 3
    assert CliRunner().invoke(app, [*arguments, "--set", "clip_norm=2"]).exit_code == 2


def test_a_curve_over_target_epsilon_has_proved_ledgers_that_meet_it(settings: dict[str, object], tmp_path: Path
                                                                     ) -> None:
    own = {**settings, "ranges": {"x": [-5.0, 5.0]}, "categories": {}, "randomness": "system", "delta": 1e-5}
    del own["noise_multiplier"]
    out, targets = tmp_path / "out", [0.5, 2.0]
    frame = curves(["sgd", "dpsgd", "dpsgd-f", "dpsgd-p"], [0], None, own, {"target_epsilon": targets}, kept=out)
    private = frame[frame["strategy"] != "sgd"]
    assert set(private["guarantee"]) == {"proved"}
    assert private["value"].tolist() == targets * 3
    assert (private["epsilon"] <= private["value"]).all()
    assert (private["epsilon"] > 0.99 * private["value"]).all()
    assert frame.loc[frame["strategy"] == "sgd", ["setting", "epsilon", "guarantee"]].values.tolist() == [
        ["", math.inf, "none"]]
    ledgers = [Ledger.from_dict(json.loads(text)) for text in pd.read_parquet(out / "runs.parquet")["ledger"]]
    assert sorted(ledger.epsilon() for ledger in ledgers) == sorted(frame["epsilon"])
    panels = {panel.title: panel for panel in curve_figure(frame).panels}
    assert list(panels) == ["accuracy_parity", "accuracy", "accuracy over epsilon", "accuracy_parity over epsilon",
                            "demographic_parity over epsilon"]
    over = {series.name: series for series in panels["accuracy over epsilon"].series}
    assert [point.x.value for point in over["dpsgd"].points] == private["epsilon"].tolist()[:2]
    assert over["sgd"].level


def test_a_setting_of_all_strategies_gives_way_to_that_of_one(settings: dict[str, object]) -> None:
    over: dict[str, list[Any]] = {"learning_rate": [0.1, 0.2], "dpsgd.learning_rate": [0.3], "theta": [0.1]}
    frame = curves(["sgd", "dpsgd", "dpsgd-p"], [0], None, settings, over)
    assert frame.groupby("strategy")["value"].agg(list).to_dict() == {
        "sgd": [0.1, 0.2], "dpsgd": [0.3], "dpsgd-p": [0.1]}


def test_a_picture_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    frame = curves(["dpsgd"], [0], None, {"hidden": [8], "steps": 2}, {"noise_multiplier": [1.0, 4.0]})
    assert [panel.title for panel in curve_figure(frame).panels] == ["accuracy over epsilon",
                                                                     "accuracy_parity over epsilon"]


def test_a_curve_of_a_file_of_ones_own_has_settings_that_suit_it(settings: dict[str, object], tmp_path: Path) -> None:
    words = ["curve", "--csv", str(settings["csv"]), "--label", "label", "--group", "group", "--strategies",
             "dpsgd,dpsgd-p", "--over", "target_epsilon=[1, 4]", "--set", "epochs=1.0", "--out", str(tmp_path / "out")]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    used = tomllib.loads((tmp_path / "out" / "config.toml").read_text())
    assert "preset" not in used
    assert used["settings"]["model"] == "logistic"
    table = pd.read_csv(tmp_path / "out" / "curves.csv")
    assert table["setting"].tolist() == ["target_epsilon"] * 4
    assert table["epsilon"].tolist() == pytest.approx([1, 4, 1, 4], rel=0.01)
