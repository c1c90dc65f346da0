"""Attacks on private selection among trainings: what a row moves in each trial, and what is left of the losing ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

from fedfair.accounting import Ledger, epsilon
from fedfair.accounting.selection import Selection
from fedfair.moments.logistic import AUTO_STEPS
from simulations.fitting import private_selection
from simulations.fitting.private_selection import METHODS, Among, Candidate, Terms
from simulations.settings.experiment import Experiment
from tests.hazards.frozen import Frozen
from tests.hazards.test_fit_attack import LOWEST, OUTLIERS, ROW, changed, differing, neighbours, people

ADAPTIVE = {"options": {"bound": 1.0}}
STEPS = {"clip_norm": 1.0, "steps": 3, "learning_rate": 8.0}
TRIED = [Candidate("moments", {}), Candidate("dpsgd", STEPS), Candidate("dpsgd-global-adapt", {**STEPS, **ADAPTIVE})]
SELECT: dict[str, Any] = {"methods": tuple(METHODS), "epsilon": 4.0, "settings": {"seed": 0}}


def plan(patch: pytest.MonkeyPatch, trials: int) -> None:
    """Fix what is drawn: as many trials as this, of each candidate in turn, the first of which wins."""
    patch.setattr(private_selection, "number_of_trials", lambda *_: trials)
    real = private_selection._selected

    def selected(*parts: Any) -> Any:
        """Begin with the first candidate."""
        turn = iter(TRIED * trials)
        patch.setattr(Among, "drawn", lambda self, source: next(turn))
        return real(*parts)

    patch.setattr(private_selection, "_selected", selected)


def win_first(patch: pytest.MonkeyPatch) -> None:
    """Let the first trial have the best score."""
    real, scores = private_selection._trial, [0.0]

    def trial(*parts: Any) -> private_selection.Trial:
        """Score each trial below those before."""
        scores.append(scores[-1] - 1)
        return real(*parts)._replace(score=scores[-1])

    patch.setattr(private_selection, "_trial", trial)


def trials_of(frozen: Frozen, part: str) -> tuple[float, list[float]]:
    """Return mu^2 that a row moved before the trials, and in each of them, where it was `part` of."""
    told = frozen.told
    sizes = [2 + AUTO_STEPS, 4, 7]  # releases of each trial with its score; global-adapt counts in every step
    after = told[len(told) - 3 - sum(sizes):len(told) - 3]
    before = sum(told[:len(told) - 3 - sum(sizes)])
    each = [sum(after[sum(sizes[:n]):sum(sizes[:n + 1])]) for n in range(3)]
    return before, each


@pytest.mark.parametrize(("part", "row"), [("train", ROW), ("train", LOWEST), ("valid", ROW)])
def test_a_row_tells_no_more_in_a_trial_than_it_is_charged(part: str, row: dict[str, str], tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    plan(monkeypatch, 3)
    frozen, without, with_row = neighbours(tmp_path, monkeypatch, part, row, **SELECT)
    ledger = frozen.fitted(without).result.ledger
    frozen.fitted(with_row)
    before, each = trials_of(frozen, part)
    if part == "valid":  # a model is right on the row with one label or the other
        frozen.fitted(with_row.assign(good=[*with_row["good"][:-1], "no"]))
        each += trials_of(frozen, part)[1]
    charged = ledger.selections[part].multiplier ** -2
    assert max(each) <= charged * (1 + 1e-9)
    assert max(each) >= 0.2 * charged
    beside = ledger.preprocessing if part == "train" else ledger.held_out["valid"]
    assert beside is not None
    assert before + sum(frozen.told[-3:]) <= beside.multiplier**-2 * (1 + 1e-9)


def test_a_row_shows_in_no_file_but_through_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan(monkeypatch, 3)
    frozen = Frozen(tmp_path, monkeypatch, **SELECT)
    plain = frozen.saved(people())
    for unusual, values in OUTLIERS.items():
        assert differing(plain, frozen.saved(changed(people(), values))) == [], unusual


def test_losing_trials_and_their_number_show_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[dict[str, bytes]] = []
    for trials in (1, 3):
        with pytest.MonkeyPatch.context() as patch:
            plan(patch, trials)
            win_first(patch)
            folders.append(saved_with_the_noise_of_the_first(tmp_path, patch, trials))
    assert differing(*folders) == []


def saved_with_the_noise_of_the_first(tmp_path: Path, patch: pytest.MonkeyPatch, trials: int) -> dict[str, bytes]:
    """Return a folder whose noise is 0, so that two with other draws in between can be compared."""
    from fedfair.mechanisms import noise
    from fedfair.node import column_counts
    from strategies.server.releases import preprocessing

    exact: Callable[..., Any] = lambda values, *_: dict(values)  # noqa: E731 - both have the same
    for name in ("add_gaussian", "add_discrete_gaussian"):
        patch.setattr(noise, name, exact)
    for module in (column_counts, preprocessing):
        patch.setattr(module, "keep_frequent", exact)
    patch.setattr("simulations.results.environment.seal", lambda path: "seal")
    from simulations.fitting.fit import Wanted, fit
    from simulations.fitting.save import save

    table = tmp_path / "people.csv"
    people().to_csv(table, index=False)
    out = tmp_path / str(trials) / "fit"
    save(fit(Wanted(table, "good", "sex", **SELECT)), out)
    assert {path.name for path in tmp_path.iterdir()} <= {"people.csv", "1", "3"}
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_a_trial_with_less_noise_than_it_is_charged_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan(monkeypatch, 3)
    real = Candidate.with_noise
    monkeypatch.setattr(Candidate, "with_noise", lambda self, multiplier: real(self, 0.99 * multiplier))
    with pytest.raises(AssertionError, match="more than its selection is charged"):
        Frozen(tmp_path, monkeypatch, **SELECT).fitted(pd.DataFrame(people()))


def test_an_attacker_who_sees_the_best_score_proves_less_than_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst trial there is: it releases its score, a noisy count of one record, so that the best says the most."""
    selection, delta, draws = Selection(1.0, 10.0), 1e-3, np.random.default_rng(0)
    present = np.arange(2000) % 2 == 0
    seen: list[float] = []
    monkeypatch.setattr(private_selection, "_with_columns", lambda *_: (None, None))
    monkeypatch.setattr(Terms, "trial", lambda *_, **__: selection)
    monkeypatch.setattr(private_selection, "experiment_of", lambda *_: None)
    monkeypatch.setattr(private_selection, "_measured", lambda best, *_: seen.append(best.score) or Ledgers())
    for there in present:
        monkeypatch.setattr(private_selection, "_trial", lambda *_, at=float(there): private_selection.Trial(
            draws.normal(at, selection.multiplier), None, None, None))  # type: ignore[arg-type]
        private_selection._selected(Experiment(figures="private", figures_epsilon=1.0), TERMS, None)  # type: ignore[arg-type]
    scores, claim = np.array(seen), epsilon({selection: 1}, delta)
    assert claim / 5 < proved(scores[present], scores[~present], delta) <= claim


def proved(one: np.ndarray, other: np.ndarray, delta: float) -> float:
    """Return the largest epsilon that scores prove with 95 % confidence, by how often they are beyond a threshold.

    Clopper and Pearson's bounds on all rates share the error.
    """
    thresholds = np.quantile(np.concatenate([one, other]), np.linspace(0.01, 0.99, 25))
    error, found = 0.05 / (8 * len(thresholds)), 0.0
    for threshold, above, (p, q) in product(thresholds, (True, False), ((one, other), (other, one))):
        often, seldom = (int(((scores > threshold) == above).sum()) for scores in (p, q))
        least, most = beta.ppf(error, often, len(p) - often + 1), beta.ppf(1 - error, seldom + 1, len(q) - seldom)
        if least > delta:
            found = max(found, math.log((least - delta) / most))
    return found


class Ledgers:
    """Stands for a result whose ledger keeps nothing."""

    def __init__(self) -> None:
        self.ledger = Ledger(("all",), 1e-3)


TERMS = Terms(Among(("moments", "dpsgd")), 1.0, 1e-3, "pld", None)
