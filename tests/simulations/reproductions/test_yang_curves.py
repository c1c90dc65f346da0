"""The paper's statements about its figures, judged from known curves; and the command's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simulations.files.atomic_files import write_text
from simulations.plans.compare import OnRound
from simulations.reproductions import yang_curves as module
from simulations.reproductions.request import Request
from simulations.reproductions.yang_curves import OURS, yang_curves
from tests.for_each import for_each


def points(strategy: str, *measured: tuple[float, float, float]) -> list[dict[str, Any]]:
    """Return two seeds around some values of demographic parity, accuracy parity and accuracy."""
    return [{"dataset": "d", "strategy": strategy, "seed": seed, "setting": "theta", "value": float(place),
             "demographic_parity": d, "accuracy_parity": p + sign * 0.01, "accuracy": a}
            for place, (d, p, a) in enumerate(measured) for seed, sign in ((0, 1), (1, -1))]


def frame(ours: float, fair_dp: float) -> pd.DataFrame:
    """Return curves with our accuracy parity at a demographic parity of 0.1, and fair-dp's least demographic parity."""
    return pd.DataFrame(points(OURS, (0.0, ours, 0.8), (0.2, ours, 0.84)) + points("dpsgd-p", (0.05, 0.2, 0.79), (
        0.3, 0.2, 0.79)) + points("fair-dp", (fair_dp, 0.1, 0.7), (0.4, 0.3, 0.7)) + points("dpsgd", (0.4, 0.15, 0.8)))


@for_each(("dataset", "ours", "fair_dp", "seen"), [
    ("adult", 0.12, 0.02, [True, True, True, True, True, True]),
    ("adult", 0.18, 0.02, [True, True, True, False, False, True]),
    ("adult", 0.12, 0.2, [True, True, False, True, True, True]),
    ("dutch", 0.12, 0.2, [True, True, True, True, True, True]),
    ("dutch", 0.12, 0.02, [True, True, False, True, True, True])])
def test_statements_are_judged_from_the_means_at_a_demographic_parity_of_a_tenth(
        dataset: str, ours: float, fair_dp: float, seen: list[bool]) -> None:
    statements = list(module._statements(dataset, frame(ours, fair_dp)))[:6]
    assert [statement.seen for statement in statements] == seen
    assert f"{OURS} 0.820" in statements[-1].found
    assert f"{OURS} {ours:.3f}" in statements[3].found


def test_a_comparison_with_nobody_is_none() -> None:
    alone = pd.DataFrame(points(OURS, (0.0, 0.1, 0.8), (0.2, 0.1, 0.8)) + points("dpsgd-p", (0.2, 0.1, 0.8)) + points(
        "fair-dp", (0.2, 0.1, 0.8)) + points("dpsgd", (0.4, 0.15, 0.8)))
    statements = list(module._statements("adult", alone))
    assert [statement.seen for statement in statements[:6]] == [True, False, False, None, True, None]


@pytest.mark.parametrize(("parity", "found", "seen"), [
    ((0.05, 0.05, 0.05), "in 100.0 % of 0.000 to 0.300", True),
    ((0.05, 0.05, 0.45), "in 91.6 % of 0.000 to 0.300, and misses it by 0.05 at most", False),
    ((0.05, 0.25, 0.05), "in 66.6 % of 0.000 to 0.300, and misses it by 0.05 at most", False),
    ((0.2, 0.2, 0.2), "in 0.0 % of 0.000 to 0.300, and misses it by 0 at most", False)])
def test_a_claim_for_the_same_demographic_parity_holds_only_if_it_holds_throughout(
        parity: tuple[float, float, float], found: str, seen: bool) -> None:
    """Ours is measured at 0, 0.2 and 0.4 and straight between; the others are level, and end at 0.3 at the latest."""
    curves = points(OURS, *zip((0.0, 0.2, 0.4), parity, (0.8, 0.8, 0.8), strict=True)) + points(
        "dpsgd-p", (0.0, 0.2, 0.79), (0.3, 0.2, 0.79)) + points("fair-dp", (0.1, 0.3, 0.9), (0.11, 0.3, 0.9)) + points(
        "dpsgd", (0.3, 0.15, 0.8))
    lowest, below_dpsgd, highest = list(module._statements("adult", pd.DataFrame(curves)))[6:]
    assert (lowest.text, lowest.found, lowest.seen) == (
        f"throughout, {OURS} has the lowest accuracy parity", found, seen)
    assert below_dpsgd.seen == seen
    assert below_dpsgd.found.startswith("in 100.0 % of 0.000 to 0.400" if seen else "in ")
    assert highest.found == "in 96.6 % of 0.000 to 0.300, and misses it by 0.1 at most"
    assert highest.seen is False


def test_throughout_is_one_point_or_none_where_curves_meet_in_no_more() -> None:
    own = pd.DataFrame({"demographic_parity": [0.1, 0.3], "error": [0.2, 0.4]})
    for place, error, found in ((0.2, 0.31, ("in 100.0 % of 0.200 to 0.200", True)),
                                (0.2, 0.29, ("in 0.0 % of 0.200 to 0.200, and misses it by 0.01 at most", False)),
                                (0.5, 0.9, ("no other curve gets there", None))):
        other = pd.DataFrame({"demographic_parity": [place], "error": [error]})
        assert module._throughout(own, [other], "error") == found


def replaced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Put known curves in place of runs; return the data sets and numbers of seeds that are requested."""
    asked: list[tuple[str, int]] = []

    def curves(strategies: list[str], seeds: Any, preset: str, settings: dict[str, Any], over: Any,
               on_round: OnRound, jobs: int, kept: Path) -> pd.DataFrame:
        assert (jobs, kept.name) == (3, "out")
        asked.append((settings["dataset"], len(seeds)))
        on_round(1, 2, "dpsgd, seed 0", 5, 10)
        return frame(0.12, 0.02)

    monkeypatch.setattr(module, "curves", curves)
    return asked


def test_the_folder_has_all_curves_and_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replaced(monkeypatch)
    reports: list[tuple[int, int, str, int, int]] = []
    said = yang_curves(tmp_path / "out", on_round=lambda *now: reports.append(now), jobs=3)
    assert said == "46 of 54 statements are seen."
    assert reports[0] == (0, 6, f"{module.DATASETS[0]}, dpsgd, seed 0", 15, 20)
    assert [place for place, *_ in reports] == list(range(6))
    assert asked == [(dataset, 5) for dataset in module.DATASETS]
    assert "torch" in json.loads((tmp_path / "out" / "environment.json").read_text())["packages"]
    page = (tmp_path / "out" / "README.md").read_text()
    assert page.count("![Curves of") == 6
    assert "Means over 5 seeds, where the paper has 15; by default there are 5 here, 1 in the quick version." in page


def test_a_larger_version_goes_on_in_the_folder_of_a_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replaced(monkeypatch)
    yang_curves(tmp_path / "out", Request(quick=True), jobs=3)
    page = (tmp_path / "out" / "README.md").read_text()
    assert "Means over 1 seed, where" in page
    assert "Adult alone, three norms of fair-dp, 1 seed by default instead of 5." in page
    yang_curves(tmp_path / "out", Request(datasets=("law",)), jobs=3)
    yang_curves(tmp_path / "out", Request(seeds=2), jobs=3)
    assert asked == [("adult", 1), ("law", 5), *((dataset, 2) for dataset in module.DATASETS)]
    assert "seeds = 2" in (tmp_path / "out" / "adult" / "config.toml").read_text()


@pytest.mark.parametrize("last", ["curves.csv", "curves.svg", "config.toml", "statements.csv"])
def test_after_a_stop_between_two_files_the_same_command_goes_on(
        last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch)

    def stopped(path: Path, text: str) -> None:
        write_text(path, text)
        if path.name == last:
            raise KeyboardInterrupt

    with monkeypatch.context() as until:
        until.setattr(module, "write_text", stopped)
        until.setattr("simulations.plans.plan_files.write_text", stopped)
        with pytest.raises(KeyboardInterrupt):
            yang_curves(tmp_path / "out", jobs=3)
    assert yang_curves(tmp_path / "out", jobs=3).endswith("are seen.")


def test_a_folder_of_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replaced(monkeypatch)
    (tmp_path / "config.toml").write_text('reproduction = "xu2021-table1"\n')
    with pytest.raises(FileExistsError, match="holds a different experiment"):
        yang_curves(tmp_path, jobs=3)
    assert asked == []
