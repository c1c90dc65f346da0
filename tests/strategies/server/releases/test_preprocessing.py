"""Private preprocessing: its release, what it is charged, and what it gives."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedfair.accounting import Ledger, Release, epsilon
from fedfair.accounting.events import Preprocessed
from fedfair.accounting.ledger_words import preprocessing_data
from fedfair.datasets.features.encoding import OTHER, Encoding, Feature
from fedfair.datasets.grouped import GroupedDataset
from fedfair.mechanisms import histograms
from fedfair.mechanisms.noise import Trust
from fedfair.mechanisms.randomness import SystemEntropy
from fedfair.node import column_counts
from fedfair.node.column_counts import Counting, keep_frequent
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import run
from simulations.plans.sweep import planned_ledger
from simulations.settings.experiment import Experiment
from strategies.server.releases import preprocessing

COUNTING = Counting(("a", "b"), ("town", "job"), "record", 0.0, 0.0, None, "gaussian")
RECORD = st.tuples(st.floats(-1e12, 1e12), st.floats(-1e-12, 1e3), st.sampled_from("nsw"), st.sampled_from("xyz"))


def table(records: list[tuple[float, float, str, str]]) -> GroupedDataset:
    """Return a table with two numbers and two one-hot columns, not yet scaled."""
    encoding = Encoding((Feature("a"), Feature("b"), *(Feature("town", c) for c in "nsw"),
                         *(Feature("job", c) for c in "xyz")))
    x = torch.tensor([[a, b, *(float(town == c) for c in "nsw"), *(float(job == c) for c in "xyz")]
                      for a, b, town, job in records], dtype=torch.float64).reshape(len(records), 8)
    zeros = torch.zeros(len(records), dtype=torch.long)
    return GroupedDataset(x, zeros, zeros, ("everybody",), 1, encoding=encoding)


def released(data: GroupedDataset, asked: Counting) -> torch.Tensor:
    """Return everything that a client's statistics are, in the units in which the noise is added."""
    numbers = column_counts._noisy_numbers(data, asked, SystemEntropy())
    rooted = histograms._times(numbers, -0.5)
    counts = column_counts._categories(data, asked, SystemEntropy())
    texts = [counts[column].get(name, 0.0) for column, names in (("town", "nsw"), ("job", "xyz")) for name in names]
    return torch.cat([(rooted / histograms.sensitivity(histograms.CELLS)).flatten(),
                      torch.tensor(texts, dtype=torch.float64)])


@settings(max_examples=40)
@given(st.lists(RECORD, max_size=6), RECORD)
def test_a_record_moves_the_release_by_its_sensitivity(others: list[Any], one: Any) -> None:
    moved = released(table([*others, one]), COUNTING) - released(table(others), COUNTING)
    assert float(moved.norm()) <= math.sqrt(4) * (1 + 1e-9)


@settings(max_examples=40)
@given(st.lists(RECORD, min_size=1, max_size=6))
def test_a_participant_moves_the_release_by_the_same(records: list[Any]) -> None:
    assert float(released(table(records), replace(COUNTING, unit="participant")).norm()) <= math.sqrt(4) * (1 + 1e-9)


def test_a_category_of_one_record_is_hardly_ever_listed() -> None:
    """With a threshold for a probability of .02 instead of 1e-8, so that it can be counted."""
    deviation, trials = 3.0, 4000
    threshold = 1 + deviation * float(norm.isf(0.02))
    kept = sum(bool(keep_frequent({"only": 1.0}, deviation, threshold, "gaussian", SystemEntropy()))
               for _ in range(trials))
    assert abs(kept / trials - 0.02) < 4 * math.sqrt(0.02 / trials)
    assert keep_frequent({"many": 100.0}, deviation, threshold, "gaussian", SystemEntropy()) == {"many": 1.0}


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_the_release_carries_the_noise_that_it_is_charged(data_dir: Path, trust: str,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise on prefix sums is measured against an exact histogram, and its deviation against the ledger's."""
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(preprocessing, "_range", lambda below, *_: seen.append(
        below.diff(prepend=torch.zeros(1, dtype=below.dtype))) or (0.0, 1.0))
    made = Experiment(dataset="compas", strategy="dpsgd", preprocessing="private", preprocessing_epsilon=0.75, steps=1,
                      randomness="system", trust=trust)
    ledgers = [run(made).ledger for _ in range(6)]
    spent = ledgers[0].preprocessing
    assert spent is not None
    difference = torch.stack(seen[1:]) - seen[0]  # twice the variance
    noise = histograms._times(difference, -0.5) / histograms.sensitivity(histograms.CELLS) / math.sqrt(2)
    expected = spent.multiplier * math.sqrt(6) * (math.sqrt(2) if trust == "local" else 1)
    assert float(noise.std()) == pytest.approx(expected, rel=0.05)


def test_the_target_covers_the_release_and_its_delta(data_dir: Path) -> None:
    made = Experiment(dataset="compas", strategy="dpsgd", preprocessing="private", target_epsilon=2.0, steps=20,
                      randomness="system")
    result, planned = run(made), planned_ledger(made)
    ledger = result.ledger
    assert ledger.guarantee == "proved"
    assert ledger.epsilon() == planned.epsilon() <= 2.0
    assert ledger.preprocessing is not None
    release = Release(1.0, ledger.preprocessing.multiplier)
    assert epsilon({release: 1}, 0.9e-6, "pld") == pytest.approx(0.5, rel=1e-3)
    (event, steps), = ledger.events.items()
    by_hand = epsilon({release: 1, event.guaranteed(0): steps}, 1e-6 - ledger.preprocessing.delta, "pld")
    assert ledger.epsilon() == pytest.approx(by_hand)
    assert Ledger.from_dict(ledger.to_dict()).epsilon() == ledger.epsilon()
    assert "part of the figures above" in preprocessing_data(ledger)
    assert ledger.epsilon(delta=1e-8) == math.inf  # less than the categories alone take
    assert result.data.train.categories.count(OTHER) == 5
    assert 0 <= float(result.data.train.x.min()) <= float(result.data.train.x.max()) <= 1


def test_categories_under_local_trust_have_one_clients_noise() -> None:
    ledger = Ledger(("a", "b"), 1e-6, Trust.LOCAL, clients=16, preprocessing=Preprocessed(5.0, 1e-8))
    alone = epsilon({Release(1.0, 5.0): 1}, 1e-6 - 1e-8, "pld")
    assert ledger.by_observer()["model"] == pytest.approx(alone)
    assert ledger.by_observer()["server"] == pytest.approx(alone)


def test_what_is_known_is_not_asked_for(data_dir: Path) -> None:
    given = {"ranges": {"priors_count": [0, 30]}, "categories": {
        "age_cat": ["Less than 25", "25 - 45", "Greater than 45"], "race": ["African-American", "Caucasian"],
        "sex": ["Female", "Male"], "c_charge_degree": ["F", "M"], "score_text": ["Low", "Medium", "High"],
        "v_score_text": ["Low", "Medium", "High"]}}
    made = Experiment(dataset="compas", strategy="dpsgd", preprocessing="private", steps=1, **given)
    assert run(made).ledger.preprocessing is None


def test_a_release_without_a_budget_or_too_noisy_is_refused_before_it_is_made(data_dir: Path) -> None:
    made = {"dataset": "compas", "strategy": "dpsgd", "preprocessing": "private", "steps": 1}
    with pytest.raises(ValueError, match="give target_epsilon, of which it takes a quarter, or preprocessing_epsilon"):
        run(Experiment(**made))
    with pytest.raises(ValueError, match="its noise would hide the ranges of priors_count among 3,695 records"):
        run(Experiment(**made, preprocessing_epsilon=0.01))
    with pytest.raises(ValueError, match="its release is not in that budget"):
        run(Experiment(**{**made, "strategy": "dpsgd-f"}, preprocessing_epsilon=0.5, group_epsilon=3.0))


@pytest.mark.parametrize("randomness", ["seeded", "system"])
def test_a_run_that_goes_on_keeps_what_was_released(data_dir: Path, tmp_path: Path, randomness: str,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    made = Experiment(dataset="compas", strategy="dpsgd", preprocessing="private", target_epsilon=3.0, steps=6,
                      randomness=randomness)
    calls: list[str] = []
    once = preprocessing.learn_columns
    monkeypatch.setattr("simulations.engines.run.learn_columns",
                        lambda *given: calls.append("released") or once(*given))

    def stop(_: object, now: int) -> None:
        if now == 4:
            raise KeyboardInterrupt

    checkpoint = Checkpoint(tmp_path / "out", made.settings(), every=2)
    with pytest.raises(KeyboardInterrupt):
        run(made, checkpoint=checkpoint, watch=stop)
    result = run(made, checkpoint=checkpoint)
    assert calls == ["released"]
    assert result.ledger.preprocessing is not None
    if randomness == "seeded":
        whole = run(made)
        assert all(map(torch.equal, result.model.parameters(), whole.model.parameters()))


class Killed(BaseException):
    """A kill, which nothing in the program catches."""


@pytest.mark.parametrize("kills", [1, 3])
def test_a_release_that_a_kill_may_have_lost_is_charged_as_well(data_dir: Path, tmp_path: Path, kills: int,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when the release has left the nodes, and nothing of it was kept: the next one has other noise."""
    made = Experiment(dataset="compas", strategy="dpsgd", preprocessing="private", target_epsilon=3.0, steps=6,
                      randomness="system")
    checkpoint = Checkpoint(tmp_path / "out", made.settings())
    once = preprocessing.learn_columns

    def killed(*given: Any) -> None:
        once(*given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("simulations.engines.run.learn_columns", killed)
        for _ in range(kills):
            with pytest.raises(Killed):
                run(made, checkpoint=checkpoint)
    ledger, alone = run(made, checkpoint=checkpoint).ledger, planned_ledger(made)
    assert ledger.preprocessing is not None
    assert alone.preprocessing is not None
    assert ledger.preprocessing.multiplier == pytest.approx(alone.preprocessing.multiplier / math.sqrt(kills + 1))
    assert ledger.preprocessing.delta == pytest.approx(alone.preprocessing.delta * (kills + 1))
    assert ledger.guarantee == "proved"
    assert ledger.epsilon() <= 3.0
    assert min(event.multipliers[0] for event in ledger.events) > max(e.multipliers[0] for e in alone.events)


def test_a_release_is_kept_before_it_is_used(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the release, before the training has a checkpoint."""
    made = Experiment(dataset="compas", strategy="dpsgd", preprocessing="private", target_epsilon=3.0, steps=6,
                      randomness="system")
    checkpoint = Checkpoint(tmp_path / "out", made.settings())
    with monkeypatch.context() as patch:
        patch.setattr("simulations.engines.run.train", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(made, checkpoint=checkpoint)
    monkeypatch.setattr("simulations.engines.run.learn_columns", lambda *_: (_ for _ in ()).throw(Killed))
    ledger = run(made, checkpoint=checkpoint).ledger
    assert ledger.preprocessing == planned_ledger(made).preprocessing
    assert sum(ledger.events.values()) == 6


def test_releases_lost_again_and_again_are_refused_before_another_is_made(
        data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Experiment(dataset="compas", strategy="dpsgd", preprocessing="private", target_epsilon=3.0, steps=6,
                      randomness="system")
    checkpoint, calls = Checkpoint(tmp_path / "out", made.settings()), []

    def killed(*_: Any) -> None:
        calls.append(1)
        raise Killed

    monkeypatch.setattr("simulations.engines.run.learn_columns", killed)
    for _ in range(9):
        with pytest.raises(Killed):
            run(made, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="its lost releases have used up delta, 1e-06"):
        run(made, checkpoint=checkpoint)
    assert len(calls) == 9


def test_what_cannot_run_is_refused_before_the_release(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("simulations.engines.run.learn_columns", lambda *_: calls.append(1))
    monkeypatch.setattr("simulations.engines.run._DAYS", 0.01)
    made = {"dataset": "compas", "strategy": "dpsgd", "preprocessing": "private", "preprocessing_epsilon": 1.0}
    with pytest.raises(ValueError, match="days at the least"):
        run(Experiment(**made, steps=90_000_000, eval_every=1e9))
    with pytest.raises(ValueError, match="group_epsilon is set, but preprocessing is private"):
        run(Experiment(**{**made, "strategy": "dpsgd-f"}, group_epsilon=3.0, steps=6))
    assert calls == []


def test_participants_are_protected_as_a_whole(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    file = tmp_path / "visits.csv"
    file.write_text("who,age,ward,ill,sex\n" + "".join(
        f"p{i},{draws.integers(20, 90)},{'ABC'[i % 3]},{draws.integers(0, 2)},{'fm'[i % 2]}\n"
        for i in range(1500) for _ in range(1 + i % 3)))
    made = Experiment(csv=str(file), label="ill", group="sex", participant="who", partition="natural", numbers=["age"],
                      strategy="dp-fedavg", preprocessing="private", preprocessing_epsilon=2.0, steps=2, delta=1e-4,
                      randomness="system", split=[0.8, 0.0, 0.2], model="logistic")
    result = run(made)
    assert result.ledger.guarantee == "proved"
    assert result.data.train.encoding.categories("ward") == ("A", "B", "C", OTHER)
    assert result.ledger.epsilon() > 2.0
