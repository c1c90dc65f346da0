"""Another cut-off than 0.5: its figures follow from the counts by score, and decisions of new rows by it."""

from __future__ import annotations

import math
from pathlib import Path
from shutil import copytree

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fedfair.fairness.decision_counts import CONFUSION, EDGES, LEVELS, SCORES
from fedfair.fairness.noisy_figures import NoisyCounts
from simulations.cli import app
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.save import save
from tests.simulations.fitting.test_deciding import people


@pytest.mark.parametrize("own", [0, 1])
def test_figures_are_those_of_decisions_at_the_cut_off(own: int) -> None:
    draws = np.random.default_rng(1)
    label, group, score = draws.integers(0, 2, 900), draws.integers(0, 2, 900), draws.normal(0, 2, 900)
    level = np.searchsorted(EDGES.numpy(), score)
    tables = {CONFUSION: torch.zeros(2, 2, 2, dtype=torch.float64), SCORES: torch.zeros(2, 2, LEVELS,
                                                                                     dtype=torch.float64)}
    np.add.at(tables[SCORES].numpy(), (group, (label == own).astype(int), level), 1)
    counts = NoisyCounts(tables, {CONFUSION: 0.0, SCORES: 0.0}, own, ("f", "m"))
    found = {(each.cut_off, each.group, each.metric): each.value for each in counts.cut_offs()}
    ends = sorted({cut_off for cut_off, _, _ in found})
    assert ends == pytest.approx([1 / (1 + math.exp(-edge)) for edge in EDGES.tolist() if edge])
    for cut_off in ends:
        favoured = 1 / (1 + np.exp(-score)) > cut_off
        rates = []
        for number, name in enumerate(("f", "m")):
            here = group == number
            rates.append(favoured[here].mean())
            assert found[cut_off, name, "positive_rate"] == pytest.approx(rates[-1])
            assert found[cut_off, name, "true_positive_rate"] == pytest.approx(favoured[here & (label == own)].mean())
        assert found[cut_off, "all", "accuracy"] == pytest.approx((favoured == (label == own)).mean())
        assert found[cut_off, "all", "demographic_parity"] == pytest.approx(abs(rates[0] - rates[1]))


def test_noise_of_cut_offs_is_within_their_intervals() -> None:
    """At least as often as is said, of 200 releases of the same counts."""
    exact = torch.full((2, 2, LEVELS), 60.0, dtype=torch.float64)
    exact[:, 1, LEVELS // 2:] += 40
    tables = {CONFUSION: torch.zeros(2, 2, 2, dtype=torch.float64), SCORES: exact}
    plain = NoisyCounts(tables, {CONFUSION: 0.0, SCORES: 0.0}, 1, ("f", "m"))
    true = {each[:3]: each.value for each in plain.cut_offs()}
    draws, held = torch.Generator().manual_seed(0), []
    for _ in range(200):
        noise = 12.0 * torch.randn(exact.shape, generator=draws, dtype=torch.float64)
        made = NoisyCounts({**tables, SCORES: exact + noise}, {CONFUSION: 12.0, SCORES: 12.0}, 1, ("f", "m")).cut_offs()
        held += [each.low <= true[each[:3]] <= each.high for each in made if each.metric == "positive_rate"]
    assert np.mean(held) > .95


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit."""
    out = tmp_path_factory.mktemp("fits") / "people"
    save(fit(Wanted(people(), "hired", "sex", 8.0, settings={"randomness": "seeded"})), out)
    return out


def test_the_page_has_other_cut_offs_until_another_point_is_chosen(folder: Path, tmp_path: Path) -> None:
    story = Story.read(folder)
    assert [round(cut_off, 3) for cut_off in story.at_cut_offs] == [.076, .182, .321, .438, .562, .679, .818, .924]
    rates = [figures["f", "positive_rate"].value for figures in story.at_cut_offs.values()]
    assert rates == pytest.approx(sorted(rates, reverse=True), abs=.05)
    assert 'id="cut-offs"' in (folder / "report.html").read_text()
    copytree(folder, tmp_path / "again")
    assert CliRunner().invoke(app, ["choose", str(tmp_path / "again"), "--tau", "0"]).exit_code == 0
    assert Story.read(tmp_path / "again").at_cut_offs == {}
    assert 'id="cut-offs"' not in (tmp_path / "again" / "report.html").read_text()


def test_new_rows_are_decided_by_a_cut_off_of_ones_own(folder: Path, tmp_path: Path) -> None:
    people(7).drop(columns="hired").head(400).to_csv(tmp_path / "new.csv", index=False)
    asked = ["predict", str(folder), str(tmp_path / "new.csv"), "--out"]
    made = {}
    for cut_off in ("0.2", "0.5", "0.8"):
        run = CliRunner().invoke(app, [*asked, str(tmp_path / f"{cut_off}.csv"), "--cut-off", cut_off])
        assert run.exit_code == 0, run.output
        made[cut_off] = pd.read_csv(tmp_path / f"{cut_off}.csv")
        assert ((made[cut_off]["predicted"] == "yes") == (made[cut_off]["P(yes)"] >= float(cut_off))).all()
    assert CliRunner().invoke(app, [*asked, str(tmp_path / "plain.csv")]).exit_code == 0
    assert (pd.read_csv(tmp_path / "plain.csv")["predicted"] == made["0.5"]["predicted"]).all()
    for words in (["--cut-off", "1.5"], ["--cut-off", "0.3", "--stability"]):
        refused = CliRunner().invoke(app, [*asked, str(tmp_path / "no.csv"), *words])
        assert refused.exit_code == 2
        assert not (tmp_path / "no.csv").exists()
