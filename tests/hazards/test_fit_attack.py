"""Attacks on `fedfair fit`: one row, put into the file before everything, must show nowhere but through the noise."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.accounting import LEFT_OUT, Ledger
from fedfair.auditing.bounds import gaussian_bound
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.fairness.decision_counts import Deciding, factors
from fedfair.moments.logistic import AUTO_STEPS
from fedfair.protocol import task_data
from simulations.fitting.fit import Fitted, Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.kinds import _cells
from strategies.server.budget_shares import FIGURES_SHARE, SPLITS
from strategies.server.population import Population
from tests.hazards.frozen import Frozen

SEEDED = {"randomness": "seeded"}
SCHEMA: dict[str, Any] = {"ranges": {"income": [0, 100], "age": [18, 80]}, "categories": {
    "town": ["north", "south", "other"], "pay": ["other"]}}
ROWS, TRAIN, VALID, HELD_OUT = 400, 280, 40, (0.7, 0.1, 0.2)
ROW = {"income": "1.0", "age": "18", "town": "north", "pay": "$1", "sex": "f", "good": "yes"}
LOWEST = {**ROW, "income": "-1e30", "age": "-1e30"}
"""The row that moves noisy prefix sums most."""

OUTLIERS: dict[str, dict[str, str]] = {
    "a decimal comma": {"income": "1,5"}, "another sign of money": {"pay": "€5"}, "no sign of money": {"pay": "5"},
    "a huge number": {"income": "1e30"}, "a text among numbers": {"age": "abc"}, "a new category": {"town": "atlantis"},
    "a backslash before a quote": {"town": "a,\\"}}
MORE: dict[str, dict[str, str]] = {
    "an ordinary row": {"income": "55.0"}, "infinite": {"income": "inf"}, "beyond infinite": {"income": "1e400"},
    "no number": {"income": "NaN"}, "many digits": {"age": "9" * 400}, "per cent": {"income": "5%"},
    "a code": {"age": "007"}, "a date": {"town": "2024-01-31"}, "a day among numbers": {"age": "20240131"},
    "a long text": {"town": "x" * 50_000}, "a mark between thousands": {"age": "1,234"}, "owed": {"pay": "($5)"},
    "an invisible sign": {"town": "nor\u200bth"}, "from right to left": {"town": "\u202eabc"},
    "composed": {"town": "e\u0301"}, "a semicolon": {"town": "a;b"},
    "quotes": {"town": "'a'"}, "a quote": {"town": 'x\\"'}, "the word other": {"town": "other"},
    "the word missing": {"town": "missing"}, "capitals": {"town": "NORTH"}, "a truth": {"age": "True"},
    "nothing but label and group": dict.fromkeys(("income", "age", "town", "pay"), "")}


def people(rows: int = ROWS) -> pd.DataFrame:
    """Return a table as text, in which income decides the label and money has a sign."""
    draws = np.random.default_rng(0)
    income = draws.normal(50, 10, rows).round(1)
    return pd.DataFrame({"income": income.astype(str), "age": draws.integers(18, 80, rows).astype(str),
                         "town": draws.choice(["north", "south"], rows),
                         "pay": [f"${number}" for number in draws.integers(1, 99, rows)],
                         "sex": draws.choice(["f", "m"], rows), "good": np.where(income > 50, "yes", "no")})


def changed(table: pd.DataFrame, values: dict[str, Any]) -> pd.DataFrame:
    """Return a table with other values in one row."""
    other = table.copy()
    for column, value in values.items():
        other.loc[7, column] = value
    return other


def differing(a: dict[str, bytes], b: dict[str, bytes]) -> list[str]:
    """Return the files that differ."""
    return [name for name in sorted({**a, **b}) if a.get(name) != b.get(name)]


def refuse_traces(frozen: Frozen, rows: Mapping[str, dict[str, str]]) -> None:
    """Fail if one of these rows shows in the folder otherwise than through the noise."""
    plain = frozen.saved(people())
    for unusual, values in rows.items():
        assert differing(plain, frozen.saved(changed(people(), values))) == [], unusual
        refuse_other_rows_to_move(frozen)


def refuse_other_rows_to_move(frozen: Frozen) -> None:
    """Fail if exact answers differ by more than one row that is taken away and one that is added."""
    ledger = frozen.made.result.ledger
    parts = ["train", *(part for part in SPLITS if part in ledger.held_out)]
    most = max(sum(claimed(ledger, part).values()) for part in parts)
    assert sum(frozen.told) <= 4 * most


def test_a_row_shows_in_no_file_but_through_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_traces(Frozen(tmp_path, monkeypatch, settings=SEEDED), OUTLIERS)


def test_a_row_of_a_site_shows_in_no_file_but_through_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                ) -> None:
    frozen = Frozen(tmp_path, monkeypatch, settings=SEEDED, site="town")
    refuse_traces(frozen, {"huge": {"income": "1e30"}, "money": {"pay": "€5"}, "nothing": {"age": ""},
                           "another group": {"sex": "m", "good": "no"}})
    assert [*tmp_path.glob("*/fit/site_figures.csv")]


@pytest.mark.slow
def test_other_rows_show_in_no_file_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_traces(Frozen(tmp_path, monkeypatch, settings=SEEDED), MORE)


@pytest.mark.parametrize(("column", "plain", "unusual"), [
    ("day", [pd.Timestamp("2024-01-01"), pd.Timestamp("2024-02-01")] * (ROWS // 2), pd.Timestamp("2024-01-01 03:04")),
    ("visits", [1.0, 2.0] * (ROWS // 2), 1.5), ("visits", [1.0, 2.0] * (ROWS // 2), math.nan)])
def test_a_value_of_a_typed_column_names_no_other(column: str, plain: list[Any], unusual: Any, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = Frozen(tmp_path, monkeypatch, settings={**SEEDED, "categorical": [column]})
    table = people().assign(**{column: plain})
    frozen.fitted(table, ".parquet")
    frozen.fitted(changed(table, {column: unusual}), ".parquet")
    refuse_other_rows_to_move(frozen)


def test_a_row_without_label_leaves_the_others_as_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                 ) -> None:
    """Neither the number of rows with a label nor the name of a group follows from a row without one."""
    frozen = Frozen(tmp_path, monkeypatch, settings=SEEDED)
    table = people().assign(sex=["1", "2"] * (ROWS // 2))
    plain, other = frozen.saved(table), frozen.saved(changed(table, {"sex": "", "good": ""}))
    assert differing(plain, other) == []
    assert json.loads(other["ledger.json"])["groups"] == ["1", "2"]


def neighbours(tmp_path: Path, patch: pytest.MonkeyPatch, part: str, row: dict[str, str] = ROW, **wanted: Any
               ) -> tuple[Frozen, pd.DataFrame, pd.DataFrame]:
    """Return what fits tables of which the last row is empty or not; it is in a part, the others in their places.

    If it is in "all", all others train too.
    """
    def dealt(data: Any, *_: Any) -> tuple[Tensor, ...]:
        """Put rows into parts by their number, and the last row where it is wanted."""
        rows = torch.arange(len(data))
        if part == "all":
            return rows, rows[:0], rows[:0]
        parts = {"train": rows[:TRAIN], "valid": rows[TRAIN:TRAIN + VALID], "test": rows[TRAIN + VALID:ROWS]}
        parts[part] = torch.cat([parts[part], rows[ROWS:]])
        return tuple(parts.values())

    patch.setattr(task_data, "dealt", dealt)
    settings = {**wanted.pop("settings"), **({} if part == "all" else {"split": HELD_OUT})}
    trained = ROWS if part == "all" else TRAIN
    patch.setattr(Population, "records", property(lambda self: trained))  # is public, and the same of both
    patch.setattr("simulations.fitting.budget.default_delta", lambda rows: 1e-5)
    without, with_row = (pd.concat([people(), pd.DataFrame([last])], ignore_index=True)
                         for last in (dict.fromkeys(row, ""), row))
    return Frozen(tmp_path, patch, settings=settings, **wanted), without, with_row


def claimed(ledger: Ledger, part: str) -> dict[str, float]:
    """Return mu^2 that a row of a part is charged, by step."""
    if part in SPLITS:
        return {part: ledger.held_out[part].multiplier ** -2}
    ((event, times),) = ledger.events.items()
    assert times == 1 + AUTO_STEPS
    before = ledger.preprocessing.multiplier ** -2 if ledger.preprocessing else 0.0
    figures = ledger.held_out[LEFT_OUT].multiplier ** -2 if LEFT_OUT in ledger.held_out else 0.0
    return {"kinds and preprocessing": before, "moments and steps": times * event.guaranteed(0).multiplier ** -2,
            "figures": figures}


HOW: dict[str, dict[str, Any]] = {
    "nothing is known": {}, "local trust": {"trust": "local"}, "sites": {"site": "town"},
    "a schema": {**SCHEMA, "bins": 4}}  # wide ones: records fill the next, by which the row is decided far wrongly


@pytest.mark.parametrize("part", ["all", "train", *SPLITS])
@pytest.mark.parametrize("how", HOW)
def test_a_row_tells_no_more_than_it_is_charged(how: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    frozen, without, with_row = neighbours(tmp_path, monkeypatch, part, epsilon=4.0, settings={**SEEDED, **HOW[how]})
    ledger = frozen.fitted(without).result.ledger
    frozen.fitted(with_row)
    told, charged = sum(frozen.told), sum(claimed(ledger, part).values())
    assert told <= charged * (1 + 1e-9)  # rounding
    assert told >= 0.5 * charged


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
@pytest.mark.parametrize("known", [{}, SCHEMA], ids=["nothing known", "schema"])
@pytest.mark.parametrize("split", [{}, {"split": (0.7, 0.1, 0.2)}], ids=["left out", "held out"])
def test_all_releases_together_have_the_stated_epsilon(split: dict[str, Any], trust: str, known: dict[str, Any],
                                                       tmp_path: Path) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    given = {**SEEDED, **known, "trust": trust, **split}
    ledger, delta = fit(Wanted(tmp_path / "people.csv", "good", "sex", 2.0, settings=given)).result.ledger, 1e-6
    lists = ledger.preprocessing.delta if ledger.preprocessing else 0.0
    held_out = [(part, ledger.held_out_epsilon(part), delta) for part in SPLITS if split]
    for part, printed, left in (("train", ledger.epsilon(), delta - lists), *held_out):
        composed = PLDAccountant()
        for square in filter(None, claimed(ledger, part).values()):
            composed.compose(GaussianDpEvent(square**-0.5))
        assert printed == pytest.approx(composed.get_epsilon(left), rel=2e-3)
        assert 1.9 < printed <= 2.0


def test_a_table_of_shares_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the budget of training goes: 2 % to kinds, 6 % or so to preprocessing, the rest to moments and steps."""
    frozen, without, with_row = neighbours(tmp_path, monkeypatch, "all", LOWEST, settings=SEEDED)
    charged = claimed(frozen.fitted(without).result.ledger, "train")
    frozen.fitted(with_row)
    *before, front, model = frozen.told
    (kinds, *columns), trained = before[:-1 - AUTO_STEPS], before[-1 - AUTO_STEPS:]
    whole = sum(charged.values())
    assert kinds / whole == pytest.approx(0.02, rel=0.01)
    assert kinds + sum(columns) == pytest.approx(charged["kinds and preprocessing"], rel=0.1)
    assert 0.05 < charged["kinds and preprocessing"] / whole < 0.12
    assert sum(trained) <= charged["moments and steps"]
    assert all(trained)
    assert front + model == pytest.approx(charged["figures"], rel=0.01)
    assert charged["figures"] / whole == pytest.approx(FIGURES_SHARE, rel=0.01)


cell = st.text("0123456789.,-+$€%e ab", max_size=6)


@given(st.lists(cell, max_size=6), cell, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_row_adds_one_to_one_count_of_a_column(others: list[str], own: str, commas: bool) -> None:
    reading = reading_as_asked(Asked())
    before, after = (np.array(_cells(pd.Series(texts, dtype="string", name="a"), reading, commas))
                     for texts in (others, [*others, own]))
    assert (after >= before).all()
    assert (after - before).sum() <= 1


@given(st.integers(2, 4), st.integers(2, 4), st.data())
@settings(max_examples=60, deadline=None)
def test_a_row_moves_both_tables_by_one_together(classes: int, groups: int, data: st.DataObject) -> None:
    numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
    n = data.draw(st.integers(1, 5))
    output = torch.tensor(data.draw(st.lists(st.lists(numbers, min_size=classes, max_size=classes), min_size=n,
                                             max_size=n)))
    y, group = (torch.tensor(data.draw(st.lists(st.integers(0, most - 1), min_size=n, max_size=n)))
                for most in (classes, groups))
    deciding = Deciding(groups, classes, 1)
    more, less = deciding.counts(output, y, group), deciding.counts(output[:-1], y[:-1], group[:-1])
    scale = factors(more)
    moved = sum(float(((more[name] - less[name]) / scale[name]).square().sum()) for name in more)
    assert moved == pytest.approx(1.0)


@pytest.mark.slow
def test_an_attacker_who_knows_all_else_proves_less_than_the_claim_and_a_third_of_it(tmp_path: Path) -> None:
    """The best test there is, on all releases of whole fits: 5 seeds, each below the claim, together a third of it."""
    claim, delta, trials = 16.0, 1e-5, 40
    found, truth = [], []
    for seed in range(5):
        scores, present = audited(tmp_path, claim, seed, trials)
        assert gaussian_bound(scores, present, delta) <= claim
        found.append(scores)
        truth.append(present)
    assert claim / 3 <= gaussian_bound(np.concatenate(found), np.concatenate(truth), delta) <= claim


def audited(tmp_path: Path, claim: float, seed: int, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores of trials, and whether the row was there: how much likelier the releases are with it."""
    present = np.random.default_rng(seed).permutation(np.arange(trials) % 2 == 0)
    scores = []
    for there in present:
        with pytest.MonkeyPatch.context() as patch:
            frozen, *tables = neighbours(tmp_path, patch, "train", epsilon=claim, settings={"seed": seed})
            frozen.fitted(tables[int(there)])
            frozen.fitted(tables[1 - int(there)])
            assert frozen.first is not None
            scores.append(frozen.first.evidence(frozen.now) * (-1 if there else 1))
    return np.array(scores), present


def test_a_saved_fit_says_what_is_public(tmp_path: Path) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    fitted: Fitted = fit(Wanted(tmp_path / "people.csv", "good", "sex"))
    from simulations.fitting.privacy_statement import promise
    from simulations.fitting.save import save

    story: Story = save(fitted, tmp_path / "out")
    said = {part.heading: part.text for part in promise(story)}
    assert "the number of rows" in said["What is public by assumption"]
    assert story.epsilon <= 1.0
