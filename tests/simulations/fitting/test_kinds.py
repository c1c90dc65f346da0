"""Kinds of columns from noisy counts: codes with leading zeros are names, and a fit says of what it learned nothing."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.mechanisms.randomness import source
from simulations.fitting.budget import FEWEST_BINS, MOST_BINS, bins_for
from simulations.fitting.caveats import caveats, unlearned
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.kinds import Counts, evenness_of, kinds, likeliest
from simulations.fitting.save import save
from simulations.results.scorecard import scorecard
from tests.for_each import for_each

SEEDED: dict[str, Any] = {"randomness": "seeded"}


def people(rows: int = 8000) -> pd.DataFrame:
    """Return people with postal codes of five digits, of which a tenth start with 0, and days of birth."""
    draws = np.random.default_rng(0)
    pay = draws.lognormal(10, 0.5, rows)
    born = pd.Timestamp("1950-01-01") + pd.to_timedelta(draws.integers(0, 18_000, rows), unit="D")
    return pd.DataFrame({"pay": pay.round(2).astype(str), "born": born.strftime("%d.%m.%Y"),
                         "postcode": [f"{code:05d}" for code in draws.integers(1000, 100_000, rows)],
                         "sex": draws.choice(["f", "m"], rows),
                         "granted": np.where(np.log(pay) + draws.normal(0, 0.5, rows) > 10, "yes", "no")})


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Return what a fit tells of people."""
    return save(fit(Wanted(people(), "granted", "sex", settings=SEEDED)), tmp_path_factory.mktemp("fits") / "people")


def test_a_tenth_of_codes_with_leading_zeros_makes_a_column_no_number(story: Story) -> None:
    features = story.description.encoding.features
    assert all(feature.bin is None for feature in features if feature.column == "postcode")
    assert any(feature.bin is not None for feature in features if feature.column == "pay")


def test_a_fit_says_of_which_columns_it_learned_nothing(story: Story) -> None:
    assert unlearned(story) == ["born", "postcode"]
    assert any("Nothing was learned of born, postcode" in doubt for doubt in caveats(story))


def test_a_column_of_which_something_was_learned_is_not_named(tmp_path: Path) -> None:
    wanted = Wanted(people(2000).drop(columns=["born", "postcode"]), "granted", "sex", 3.0, settings=SEEDED)
    assert unlearned(save(fit(wanted), tmp_path / "out")) == []


def test_categories_of_one_number_in_two_writings_are_named(tmp_path: Path) -> None:
    """As the counts that are charged list them; a file that a spreadsheet went through has 1 for 01."""
    frame = people(2000).drop(columns=["born", "postcode"])
    frame["county"] = np.where(frame.index < 1000, "0", "") + (frame.index % 3 + 1).astype(str)
    (doubt,) = [doubt for doubt in caveats(told(frame, {}, tmp_path / "one")) if "county" in doubt]
    assert "01 and 1 of county are one number" in doubt
    for settings in ({"categorical": ["county"]}, {"numbers": ["county"]}):
        assert not any("county" in doubt for doubt in caveats(told(frame, settings, tmp_path / str(*settings))))


def test_what_a_type_declares_as_a_quantity_is_one_and_its_unit_is_said(tmp_path: Path) -> None:
    """Each was a category a day. From CSV, where the same values are text, it is the same scorecard."""
    draws = np.random.default_rng(2)
    days, cents = draws.integers(0, 300, 2000), draws.integers(0, 10_000, 2000)
    frame = pd.DataFrame({
        "stay": pd.to_timedelta(days, unit="D"), "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(cents, unit="h"),
        "born": [datetime.date(1990, 1, 1) + datetime.timedelta(days=int(day)) for day in days],
        "woke": [datetime.time(cent % 24, cent % 60) for cent in cents],
        "pay": [Decimal(int(cent)) / 100 for cent in cents],
        "sex": draws.choice(["f", "m"], 2000), "granted": np.where(days + cents / 50 > 250, "yes", "no")})
    frame.to_csv(tmp_path / "own.csv", index=False)
    settings = {**SEEDED, "dataset": "table", "quantities": {"seen": "date", "born": "date"}}
    stories = [save(fit(Wanted(data, "granted", "sex", 10.0, settings=settings)), tmp_path / name)
               for name, data in (("typed", frame), ("text", tmp_path / "own.csv"))]
    for story in stories:
        binned = {feature.column for feature in story.description.encoding.features if feature.bin}
        assert binned == {"stay", "seen", "born", "woke", "pay"}
        assert any("stay in days, woke in hours since midnight" in doubt for doubt in caveats(story))
    assert stories[0].scorecard.equals(stories[1].scorecard)


def test_a_date_is_refused_by_its_type_before_anything_is_charged_and_read_as_days_where_it_is_text(tmp_path: Path
                                                                                                 ) -> None:
    """A type is the format of a file, which is public; of text noisy counts tell, and then no row may stop a fit."""
    frame = people(2000)[["pay", "sex", "granted"]]
    seen = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame.index, unit="D")
    count_in = tmp_path / "spending.toml"
    with pytest.raises(ValueError, match=r"column 'seen' holds dates: .* quantities = \{ seen = \"date\" \}"):
        fit(Wanted(frame.assign(seen=seen), "granted", "sex", 5.0, settings=SEEDED, count_in=count_in))
    assert not count_in.exists()
    frame.assign(seen=seen.astype(str)).to_csv(tmp_path / "own.csv", index=False)
    story = save(fit(Wanted(tmp_path / "own.csv", "granted", "sex", 5.0, settings=SEEDED)), tmp_path / "out")
    assert "Read as numbers: seen in days since 1970-01-01." in caveats(story)


@for_each("said", [{"numbers": ["stay"]}, {"ranges": {"stay": [0, 60]}}, {"edges": {"stay": [3.0, 9.0]}}])
def test_durations_that_are_said_to_be_plain_numbers_are_refused_before_anything_is_charged(
        said: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All of them counted as missing, and the column was paid for."""
    folder, frame = tmp_path_factory.mktemp("own"), people(2000)[["pay", "sex", "granted"]]
    frame.assign(stay=pd.to_timedelta(frame.index % 60, unit="D")).to_parquet(folder / "own.parquet")
    wanted = Wanted(folder / "own.parquet", "granted", "sex", 5.0, settings={**SEEDED, **said},
                    count_in=folder / "spending.toml")
    with pytest.raises(ValueError, match=r"column 'stay' holds durations, .* quantities = \{ stay = \"duration\" \}"):
        fit(wanted)
    assert not (folder / "spending.toml").exists()
    fit(replace(wanted, settings={**wanted.settings, "quantities": {"stay": "duration"}}))


def test_a_fit_says_which_texts_look_like_quantities(tmp_path: Path) -> None:
    """By noisy counts, so that no single row decides what is said; a name that begins with a number is none."""
    frame = people(2000).drop(columns=["born", "postcode"])
    frame["kilos"] = (frame.index % 40 + 50).astype(str) + " kg"
    frame["crp"] = np.where(frame.index % 10 == 0, "<0.5", (frame.index % 37 / 10).astype(str))
    frame["share"] = (frame.index % 50).astype(str) + np.where(frame.index % 3 == 0, " %", "")
    frame["rate"] = (frame.index % 50).astype(str) + np.where(frame.index % 3, " %", "")
    frame["street"] = (frame.index % 50).astype(str) + " Main Street"
    text = "\n".join(caveats(told(frame, {}, tmp_path / "out")))
    assert "Most values of kilos look like quantities" in text
    assert "Some values of crp are quantities with a bound or a unit" in text
    assert "Some values of share, rate have a sign of per cent, and others none; those that are fewer count" in text
    assert "Read as numbers: rate in per cent." in text
    assert "street look" not in text
    assert "kg" not in text.replace("kilos", "")
    doubts = caveats(told(frame, {"categorical": ["kilos"]}, tmp_path / "other"))
    assert not any("kilos look" in doubt for doubt in doubts)


def test_a_fit_says_of_which_numbers_some_are_other_texts_and_count_as_missing(tmp_path: Path) -> None:
    """A tenth of a column was missing without a word, as where a bank writes what is owed in words."""
    frame = people(2000).drop(columns=["born", "postcode"])
    numbers = (frame.index % 40 + 50).astype(str)
    frame["owed"] = np.where(frame.index % 10 == 0, "see note", numbers)
    frame["paid"] = np.where(frame.index % 10 == 0, "", numbers)
    frame["due"] = np.where(frame.index % 10 == 0, numbers + "-", numbers)  # as SAP writes what is below 0
    told_of = [doubt for doubt in caveats(told(frame, {}, tmp_path / "out")) if "no numbers as its others" in doubt]
    assert [doubt.partition(" are texts")[0] for doubt in told_of] == ["Some values of owed"]


def test_bands_of_ages_are_categories_of_which_a_fit_asks_nothing_as_the_check_does(tmp_path: Path) -> None:
    draws = np.random.default_rng(8)
    made = people(3000).assign(band=draws.choice(["18-24", "25-34", "35-44", "65+"], 3000),
                               pay_band=draws.choice(["30-40k", "40-55k", "£55k-£75k", "75k+"], 3000),
                               way=draws.choice(["<15 min", "15-30 min", ">60 min"], 3000))
    said = " ".join(caveats(told(made, {}, tmp_path)))
    assert "Most values of born, way look like quantities" in said


def told(frame: pd.DataFrame, settings: dict[str, Any], folder: Path) -> Story:
    """Return what a fit at a large epsilon tells of a table."""
    return save(fit(Wanted(frame, "granted", "sex", 20.0, settings={**SEEDED, **settings})), folder)


def with_labels(cells: torch.Tensor, records: int, rare: float = 0.5) -> Counts:
    """Return counts of cells and of two classes, of which one has a share."""
    return Counts(records, cells, torch.tensor([rare * records, (1 - rare) * records], dtype=torch.float64))


@pytest.mark.parametrize(("records", "deviation", "least"), [(4000, 100, 1.0), (400, 40, 0.995)])
def test_kinds_that_few_columns_have_make_others_no_less_certain(records: int, deviation: float, least: float) -> None:
    """All counts have noise, which would add up over kinds that no cell of a column is of."""
    wanted = {"number": 0, "text": 4, "date": 6, "measure": 9}
    exact = torch.zeros(len(wanted) + 1, 13, dtype=torch.float64)
    for row, kind in enumerate(wanted.values()):
        exact[row, kind] = records
    right = dict.fromkeys(wanted, 0)
    for seed in range(200):
        found = kinds(with_labels(exact, records), [*wanted], reading_as_asked(Asked()), False,
                      deviation / (len(exact) + 1)**0.5, "gaussian", source(str(seed), "kinds"))
        right["number"] += "number" in found.numbers
        right["text"] += "text" not in (*found.numbers, *dict(found.quantities), *found.measures)
        right["date"] += ("date", "date") in found.quantities
        right["measure"] += "measure" in found.measures
    assert min(right.values()) >= least * 200, right


@given(st.lists(st.floats(-500, 1500), min_size=13, max_size=13), st.integers(1, 1000))
def test_the_likeliest_counts_are_the_nearest_that_a_column_can_have(noisy: list[float], records: int) -> None:
    """Against bisection on what is taken from every count until no more cells are left than there are rows."""
    low, high = 0.0, max(max(noisy), 0.0)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(each - middle, 0) for each in noisy) > records else (low, middle)
    expected = [max(each - high, 0) for each in noisy]
    found = likeliest(torch.tensor([noisy], dtype=torch.float64), records)[0].tolist()
    assert found == pytest.approx(expected, abs=1e-6)


def test_small_tables_have_the_columns_that_they_have() -> None:
    """700 rows, four columns of numbers and four of texts, with the noise of epsilon 1: a seventh of the rows."""
    cells = torch.zeros(9, 13, dtype=torch.float64)
    cells[:4, 0] = cells[4:8, 4] = 700.0  # numbers, and texts
    wrong = 0
    for seed in range(200):
        found = kinds(with_labels(cells, 700), "abcdefgh", reading_as_asked(Asked()), False, 95 / math.sqrt(10),
                      "gaussian", source(str(seed), "kinds"))
        wrong += len({*found.numbers} ^ {*"abcd"})
    assert wrong <= 2


@pytest.mark.parametrize(("texts", "is_number"), [(180, True), (220, False)])
def test_without_much_noise_four_cells_of_five_make_a_column_of_numbers(texts: int, is_number: bool) -> None:
    cells = torch.zeros(2, 13, dtype=torch.float64)
    cells[0, 0], cells[0, 4] = 1000.0 - texts, texts
    found = kinds(with_labels(cells, 1000), ["c"], reading_as_asked(Asked()), False, 0.5, "gaussian",
                  source("one", "kinds"))
    assert found.numbers == (("c",) if is_number else ())


def test_a_column_of_0_and_1_has_two_bins_however_rare_its_ones_are(tmp_path: Path) -> None:
    """Of a rare 1 private preprocessing sees nothing beside its noise; by their counts all cells are 0 or 1."""
    draws = np.random.default_rng(3)
    rare, often = (draws.random(8000) < share for share in (0.004, 0.3))
    frame = pd.DataFrame({"rare": rare.astype(int), "often": np.where(often, "1", "0"),
                          "visits": draws.poisson(2, 8000), "sex": draws.choice(["f", "m"], 8000),
                          "granted": np.where(often ^ (draws.random(8000) < 0.2), "yes", "no")})
    frame.loc[:40, "rare"] = np.nan
    frame.to_csv(tmp_path / "own.csv", index=False)
    seeded = {**SEEDED, "seed": 1}  # one column in twelve is taken for another by the noise
    for data in (frame, tmp_path / "own.csv"):
        made = fit(Wanted(data, "granted", "sex", 6.0, settings=seeded))
        assert made.counted is not None
        assert made.counted.switches == ("rare", "often")
        ends = {name: [feature.bin for feature in made.result.data.train.encoding.features
                       if feature.column == name and feature.bin] for name in ("rare", "often", "visits")}
        assert ends["rare"] == ends["often"] == [(None, 0.5), (0.5, None)]
        assert ends["visits"] != ends["rare"]
        assert made.result.ledger.epsilon() <= 6.0
        card = scorecard(made.result.model, made.result.data.train.encoding, ("no", "yes"))
        assert card.loc[card["column"] == "rare", "value"].tolist() == ["0 (under 0.5)", "1 (0.5 and over)", "missing"]
    given = fit(Wanted(frame, "granted", "sex", 6.0, settings={**seeded, "edges": (("often", (0.2,)),)}))
    assert given.result.experiment.edges == (("often", (0.2,)), ("rare", (0.5,)))


@for_each(("zeros_and_ones", "others", "deviation", "least", "most"), [
    (4000, 0, 20, 0.95, 0.995),  # all but those whose noise looks like other values
    (4000, 0, 200, 0.0, 0.0),  # noise that may hide a tenth of the values
    (3600, 400, 100, 0.0, 0.15), (3600, 400, 50, 0.0, 0.0), (0, 4000, 20, 0.0, 0.0)])
def test_a_column_is_of_0_and_1_only_if_the_noise_could_not_hide_others(zeros_and_ones: int, others: int,
                                                                        deviation: int, least: float, most: float
                                                                        ) -> None:
    exact = torch.zeros(2, 13, dtype=torch.float64)
    exact[0, 0], exact[0, 10] = others, zeros_and_ones
    found = [kinds(with_labels(exact, 4000), ["x"], reading_as_asked(Asked()), False, deviation / 3**0.5, "gaussian",
                   source(str(seed), "kinds")) for seed in range(200)]
    assert least <= np.mean([each.switches == ("x",) for each in found]) <= most
    assert np.mean([each.numbers == ("x",) for each in found]) > 0.95


@pytest.mark.parametrize("rare", [0.02, 0.1, 0.5])
def test_noisy_counts_tell_how_evenly_records_are_divided_among_classes(rare: float) -> None:
    """4 p (1 - p), within what noise of sqrt(m + 2) multipliers on either count moves it by."""
    multiplier, records, exact = 30.0, 20_000, torch.zeros(8, 13, dtype=torch.float64)
    exact[:7, 0] = records
    told = [kinds(with_labels(exact, records, rare), [*"abcdefg"], reading_as_asked(Asked()), False, multiplier,
                  "gaussian", source(str(seed), "kinds")) for seed in range(400)]
    found = [each.evenness for each in told if each.evenness is not None]
    slope = 4 * abs(1 - 2 * rare) * np.hypot(rare, 1 - rare) * multiplier * 3 / records
    assert np.mean(found) == pytest.approx(4 * rare * (1 - rare), abs=0.003)
    assert np.std(found) == pytest.approx(slope, rel=0.15, abs=0.0005)


def test_evenness_of_three_classes_is_that_of_a_plain_sum() -> None:
    """How often two records have other classes, over the same for as many classes of one size; none is below 0."""
    assert evenness_of(torch.tensor([1.0, 1.0, 1.0])) == pytest.approx(1.0)
    assert evenness_of(torch.tensor([6.0, 3.0, 1.0])) == pytest.approx(1.5 * (1 - 0.36 - 0.09 - 0.01))
    assert evenness_of(torch.tensor([-5.0, 10.0])) == evenness_of(torch.tensor([-5.0, -10.0])) == 0.0


@given(records=st.integers(100, 100_000), numbers=st.integers(1, 40), others=st.integers(0, 20),
       deviation=st.floats(1.0, 60.0), evenness=st.one_of(st.none(), st.floats(0.0, 1.0)))
def test_bins_are_the_most_that_noise_bears_on_second_moments_and_on_scores(records: int, numbers: int, others: int,
                                                                            deviation: float, evenness: float | None
                                                                            ) -> None:
    def bears(bins: int) -> bool:
        """Return whether as many bins are few enough."""
        width = bins * numbers + 4 * others + 1
        told = evenness is None or records * evenness >= 6 * deviation * width * (1 - 1e-9)
        return told and math.sqrt(2) * records >= 2 * deviation * width**1.5 * (1 - 1e-9)

    most = [FEWEST_BINS, *(bins for bins in range(FEWEST_BINS, MOST_BINS + 1) if bears(bins))]
    assert bins_for(records, numbers, others, deviation, evenness) == most[-1]


def test_a_table_with_a_rare_class_has_fewer_bins_unless_nothing_is_asked(tmp_path: Path) -> None:
    """Where a schema says all, no release counts the classes, and bins follow from the number of rows as before."""
    draws = np.random.default_rng(4)
    frame = pd.DataFrame({**{f"x{place}": draws.normal(size=8000).round(3) for place in range(6)},
                          "sex": draws.choice(["f", "m"], 8000)})
    rare, even = (frame.assign(granted=np.where(draws.random(8000) < share, "yes", "no")) for share in (0.03, 0.5))
    known = {"ranges": [{"column": f"x{place}", "low": -4.0, "high": 4.0} for place in range(6)]}

    def bins(table: pd.DataFrame, **given: Any) -> int:
        """Return the number of bins that a fit chooses."""
        return fit(Wanted(table, "granted", "sex", settings={**SEEDED, **given})).result.experiment.bins

    assert bins(rare) < 9 < bins(even)
    assert bins(rare, **known) == bins(even, **known)
