"""Sites whose records differ: which runs there are, what is told of them, and a small one made once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simulations.reproductions.heterogeneity import (
    Cell,
    Study,
    among,
    cells,
    choose,
    differences,
    findings,
    heterogeneity,
    load,
    plan,
)
from simulations.reproductions.request import Request
from simulations.settings.experiment import SettingsError

TOML = """
seeds = 3
choosing_seeds = 2
target_epsilon = 2.0
alphas = [0.5, 10.0]
local_epochs = [1, 2]
sites = 3
batch = 0.6
[settings]
model = "linear"
features = "bounded"
delta = 1e-5
epochs = 2
accountant = "rdp"
[data.digits]
learning_rates = [1.0, 4.0]
settings = { split = [0.1, 0.2, 0.7] }
[local."local epochs"]
strategy = "dpsgd"
[local.SCAFFOLD]
strategy = "scaffold"
[common."one step"]
strategy = "dpsgd"
trust = "local"
[quick]
text = "Two seeds."
seeds = 2
choosing_seeds = 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(TOML)
    return tmp_path / "study.toml"


@pytest.fixture
def study(config: Path) -> Study:
    return load(file=config)


def test_methods_in_local_epochs_run_for_every_alpha_and_one_step_a_round_once(study: Study) -> None:
    made = [cell for cell, _ in cells(study)]
    assert len(made) == len({*made}) == 2 * (2 * 2 * 2 + 1)
    for entry in plan(study, "cpu"):
        local, run = entry.cell.local_epochs, entry.experiment
        assert (run.sync, run.local_epochs) == (("epoch", local) if local else ("step", 1))
        assert run.sampling_rate == pytest.approx(0.2 if local else 0.6)  # a site's part of the common batch
        assert (run.alpha, run.target_epsilon or math.inf) == (entry.cell.alpha, entry.cell.epsilon)
        assert (run.noise_multiplier, run.clip_norm) == ((0.0, 1e6) if math.isinf(entry.cell.epsilon) else (1.0, 0.5))


def test_the_first_seeds_choose_a_rate_and_only_the_chosen_one_is_run_with_the_others(study: Study) -> None:
    tried = plan(study, "cpu")
    assert {entry.experiment.seed for entry in tried} == {0, 1}
    chosen = {cell: 4.0 if cell.alpha == 10.0 else 1.0 for cell, _ in cells(study)}
    others = plan(study, "cpu", chosen)
    assert len(others) == len(chosen)
    assert all(entry.experiment.seed == 2 and entry.rate == chosen[entry.cell] for entry in others)


def row(cell: Cell, rate: float, seed: int, valid: float, accuracy: float) -> dict[str, Any]:
    return {**cell._asdict(), "rate": rate, "seed": seed, "valid": valid, "accuracy": accuracy}


def test_a_rate_is_chosen_for_each_cell_also_for_those_without_an_alpha(study: Study) -> None:
    made = [cell for cell, _ in cells(study)]
    best = {cell: (1.0, 4.0)[place % 2] for place, cell in enumerate(made)}
    tried = pd.DataFrame([row(cell, rate, seed, float(rate == best[cell]) + seed, 0.0)
                          for cell in made for rate in (1.0, 4.0) for seed in (0, 1)])
    assert choose(tried) == best


def test_methods_are_compared_with_local_epochs_alone_by_seed(study: Study) -> None:
    """SCAFFOLD gains .1 without privacy at alpha .5, and loses .1 under privacy; one step cannot be told apart."""

    def gain(cell: Cell, seed: int) -> float:
        """Return how much more accurate a run is than that of local epochs alone."""
        if cell.method != "SCAFFOLD":
            return {"local epochs": 0.0, "one step": 0.01 * (seed - 1)}[cell.method]
        return 0.001 * seed + (-0.1 if math.isfinite(cell.epsilon) else 0.1 * (cell.alpha == 0.5))

    taken = pd.DataFrame([row(cell, 1.0, seed, 0.0, 0.5 + 0.2 * seed + gain(cell, seed))
                          for cell, _ in cells(study) for seed in range(3)])
    gaps = differences(study, taken, math.inf, "SCAFFOLD")
    assert {place: round(gap.value, 3) for place, gap in gaps.items()} == {
        (1, 0.5): 0.101, (1, 10.0): 0.001, (2, 0.5): 0.101, (2, 10.0): 0.001}
    assert len(among(taken, 2.0, "one step", 2, 10.0)) == len(among(taken, 2.0, "SCAFFOLD", 2, 10.0)) == 3
    assert list(findings(study, taken)) == [
        "digits: of 4 pairs of alpha and number of local epochs, told to be more (less) accurate than local epochs "
        "alone: without privacy SCAFFOLD in 2 (0), one step in 0 (0); at epsilon 2 SCAFFOLD in 0 (4), one step in 0 "
        "(0)."]


def test_it_is_run_once_and_its_page_has_every_method_picture_first(config: Path, tmp_path: Path) -> None:
    said = heterogeneity(tmp_path / "out", Request(quick=True), file=config)
    page = (tmp_path / "out" / "README.md").read_text()
    assert said.startswith("digits: of 4 pairs of alpha and number of local epochs, ")
    assert said in page
    assert page.index("digits.svg") < page.index("fedfair reproduce heterogeneity --seeds 2 --quick")
    for epsilon in ("without privacy", "at epsilon 2"):
        assert f"| {epsilon} | 2 | SCAFFOLD | " in page
        assert f"| {epsilon} |  | one step | " in page
    taken = pd.read_csv(tmp_path / "out" / "runs.csv")
    assert len(taken) == 2 * 2 * (2 * 2 * 2 + 1)
    assert set(taken[taken["epsilon"] == math.inf]["noise"]) == {0.0}
    picture = (tmp_path / "out" / "digits.svg").read_text()
    assert "alpha, at epsilon 2, local epochs a round: 2" in picture
    assert heterogeneity(tmp_path / "out", Request(quick=True), file=config,
                         on_round=lambda *_: pytest.fail("a run was made again")) == said


def test_the_configuration_has_a_table_and_digits_and_values_that_are_not_allowed_are_refused(config: Path) -> None:
    whole, quick = load(), load(Request(quick=True))
    assert {*whole.data} == {"digits", "adult"}
    assert (whole.alphas, whole.local_epochs, whole.seeds) == ((0.1, 0.5, 1.0, 10.0), (1, 5), 10)
    assert quick.seeds < whole.seeds
    assert load(Request(datasets=("digits",))).others == ("adult",)
    with pytest.raises(ValueError, match="unknown data set 'adults'"):
        load(Request(datasets=("adults",)))
    config.write_text(TOML.replace("alphas = [0.5, 10.0]", "alphas = []"))
    with pytest.raises(SettingsError, match="heterogeneity: "):
        load(file=config)
