"""The tables and the picture of the federated experiment, from figures that are known."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fedfair.datasets import GroupedDataset, Parts
from simulations.cli import app
from simulations.plans.compare import experiments
from simulations.plans.kept_runs import RUNS
from simulations.reproductions import shakespeare as module
from simulations.reproductions.shakespeare import accuracies, by_quarter, correlations, learned, observations, predicted


def made(costs: list[float]) -> pd.DataFrame:
    """Return eight participants with vocabularies of 1 to 8 words, in two seeds that differ by 0.02."""
    rows = [{"seed": seed, "participant": str(n), "fedavg": 0.5, "dp-fedavg": 0.5 - cost - 0.02 * seed,
             "cost": cost + 0.02 * seed, "best_cost": -cost, "excessive_risk": 2 * cost, "words": n + 1}
            for seed in (0, 1) for n, cost in enumerate(costs)]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_quarters_are_means_over_participants_then_over_seeds() -> None:
    table = by_quarter(made([0.1, 0.1, 0.2, 0.2, 0.2, 0.4, 0.4, 0.4]), "words")
    assert table["quarter"].tolist() == ["smallest", "smaller", "larger", "largest"]
    assert table["words_mean"].tolist() == [1.5, 3.5, 5.5, 7.5]
    assert table["cost_mean"].tolist() == pytest.approx([0.11, 0.21, 0.31, 0.41])
    assert table["cost_std"].tolist() == pytest.approx([0.02 / 2**0.5] * 4)
    assert table["excessive_risk_mean"].tolist() == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert table["relative_cost_mean"].tolist() == pytest.approx([0.22, 0.42, 0.62, 0.82])


@pytest.mark.parametrize(("costs", "expected"), [(range(8), 1.0), (range(8, 0, -1), -1.0)])
def test_the_correlation_is_of_ranks_and_by_seed(costs: range, expected: float) -> None:
    for of in ("cost", "excessive_risk"):
        rho = correlations(made([cost**3 / 1000 for cost in costs]), "words", of)
        assert rho.tolist() == pytest.approx([expected] * 2)


def test_an_observation_is_made_only_if_every_seed_makes_it() -> None:
    participants = made([cost / 100 for cost in range(8)])
    participants["rarefied"] = -participants["words"]
    for words, seen in (([20.0, 21.0], True), ([20.0, 50.0], False)):
        active = pd.DataFrame({"fedavg": [40.0, 41.0], "dp-fedavg": words}, index=[0, 1])
        assert observations(participants, active)["seen"].tolist() == [seen, True, False, False, True]


def test_the_most_frequent_continuation_of_two_words_or_of_fewer_where_it_was_seen_once() -> None:
    x = torch.tensor([[0, 1, 2], [0, 1, 2], [0, 3, 2], [0, 3, 2], [9, 9, 2], [9, 8, 4]])
    y = torch.tensor([5, 5, 6, 6, 6, 7])
    data = GroupedDataset(x, y, torch.tensor([0, 0, 1, 1, 1, 1]), ("a", "b"), 10)
    known = learned(data)
    assert [predicted(known, before) for before in x.tolist()] == [5, 5, 6, 6, 6, 6]
    accuracy, active = accuracies(Parts(data, data, data))
    assert (accuracy.to_dict(), active) == ({"a": 1.0, "b": 0.75}, 2)


def test_the_command_runs_it_and_writes_a_page(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(data_dir))
    monkeypatch.setattr(module, "experiments", lambda names, seeds, preset, settings: experiments(
        names, seeds, preset, {**settings, "steps": 1}))
    out, command = tmp_path / "out", ["reproduce", "shakespeare", "--seeds", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    said = result.stdout.split(" See ")[0]
    assert said.endswith("of 5 observations are made in every seed.")
    page = (out / "README.md").read_text()
    for words in ("`fedfair reproduce shakespeare --seeds 1 --device cpu --out DIR`", said, "](picture.svg)",
                  "Distinct words that a model predicts: fedavg ", "| largest |"):
        assert words in page
    assert "nan" not in page
    assert {"picture.svg", "participants.csv", "observations.csv", "config.toml", "environment.json", RUNS} <= {
        file.name for file in out.iterdir()}
    made = (out / RUNS).stat().st_mtime_ns
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (out / RUNS).stat().st_mtime_ns == made
    assert (out / "README.md").read_text() == page


@pytest.mark.parametrize(("options", "expected"), [
    (["--datasets", "mnist"], "unknown data set 'mnist': known are shakespeare"),
    (["--quick"], "shakespeare has no quick version: leave --quick out, or take --seeds 1"),
    (["--device", "abacus"], "device 'abacus' cannot be used here")])
def test_options_that_it_has_no_use_for_are_refused(options: list[str], expected: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "shakespeare", "--out", str(tmp_path / "out"), *options])
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()
