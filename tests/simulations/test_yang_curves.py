"""The paper's statements about its figures, told from curves that are known; and the command's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simulations.compare import OnRound
from simulations.reproductions import yang_curves as module
from simulations.reproductions.yang_curves import OURS, yang_curves


def points(strategy: str, *measured: tuple[float, float, float]) -> list[dict[str, Any]]:
    """Two seeds around some values of demographic parity, accuracy parity and accuracy."""
    return [{"dataset": "d", "strategy": strategy, "seed": seed, "setting": "theta", "value": float(place),
             "demographic_parity": d, "accuracy_parity": p + sign * 0.01, "accuracy": a}
            for place, (d, p, a) in enumerate(measured) for seed, sign in ((0, 1), (1, -1))]


def frame(ours: float, fair_dp: float) -> pd.DataFrame:
    """Our accuracy parity where demographic parity is 0.1, and the least demographic parity of fair-dp."""
    return pd.DataFrame(points(OURS, (0.0, ours, 0.8), (0.2, ours, 0.84)) + points("dpsgd-p", (0.05, 0.2, 0.79), (
        0.3, 0.2, 0.79)) + points("fair-dp", (fair_dp, 0.1, 0.7), (0.4, 0.3, 0.7)) + points("dpsgd", (0.4, 0.15, 0.8)))


@pytest.mark.parametrize(("dataset", "ours", "fair_dp", "seen"), [
    ("adult", 0.12, 0.02, [True, True, True, True, True, True]),
    ("adult", 0.18, 0.02, [True, True, True, False, False, True]),
    ("adult", 0.12, 0.2, [True, True, False, True, True, True]),
    ("dutch", 0.12, 0.2, [True, True, True, True, True, True]),
    ("dutch", 0.12, 0.02, [True, True, False, True, True, True])])
def test_statements_are_told_from_the_means_at_a_demographic_parity_of_a_tenth(
        dataset: str, ours: float, fair_dp: float, seen: list[bool]) -> None:
    told = list(module._statements(dataset, frame(ours, fair_dp)))
    assert [statement.seen for statement in told] == seen
    assert f"{OURS} 0.820" in told[-1].found
    assert f"{OURS} {ours:.3f}" in told[3].found


def test_a_comparison_with_nobody_is_none() -> None:
    alone = pd.DataFrame(points(OURS, (0.0, 0.1, 0.8), (0.2, 0.1, 0.8)) + points("dpsgd-p", (0.2, 0.1, 0.8)) + points(
        "fair-dp", (0.2, 0.1, 0.8)) + points("dpsgd", (0.4, 0.15, 0.8)))
    told = list(module._statements("adult", alone))
    assert [statement.seen for statement in told] == [True, False, False, None, True, None]


def test_the_folder_keeps_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def curves(strategies: list[str], seeds: Any, preset: str, settings: dict[str, Any], over: Any,
               on_round: OnRound, jobs: int) -> pd.DataFrame:
        assert jobs == 3
        asked.append(settings["dataset"])
        on_round(1, 2, "dpsgd, seed 0", 5, 10)
        return frame(0.12, 0.02)

    monkeypatch.setattr(module, "curves", curves)
    told: list[tuple[int, int, str, int, int]] = []
    said = yang_curves(tmp_path / "out", on_round=lambda *now: told.append(now), jobs=3)
    assert said == "34 of 36 statements are seen."
    assert told[0] == (0, 6, f"{module.DATASETS[0]}, dpsgd, seed 0", 15, 20)
    assert [place for place, *_ in told] == list(range(6))
    assert yang_curves(tmp_path / "out").startswith("34 of 36")
    assert asked == list(module.DATASETS)
    page = (tmp_path / "out" / "README.md").read_text()
    assert page.count("![Curves of") == 6
    with pytest.raises(FileExistsError):
        yang_curves(tmp_path / "out", seeds=2)
