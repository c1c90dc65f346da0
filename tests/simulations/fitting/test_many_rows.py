"""Tables of so many rows that sums over them have no place on the grid of discrete noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfair.datasets.files.chunks import chunks_of
from fedfair.mechanisms.marks import attached
from fedfair.mechanisms.noise import MOST_STEPS, grid_step, most_records, to_steps
from simulations.fitting import budget as budgets
from simulations.fitting import fit as fitting
from simulations.fitting.budget import Spending, default_delta, divided, refuse_large
from simulations.fitting.fit import Wanted, fit
from tests.simulations.fitting.tables import file, people

SPLIT = (0.7, 0.1, 0.2)


def most(epsilon: float, classes: int = 2) -> int:
    """Return how many rows are allowed, as the sentence says."""
    delta, rows = default_delta(10**9), 10**12
    with pytest.raises(ValueError, match=f"the table has {rows:,} rows, but") as refused:
        refuse_large(rows, classes, SPLIT, divided(epsilon, delta, "pld", True), delta, "pld")
    return int(str(refused.value).partition("at most ")[2].partition(" have room")[0].replace(",", ""))


def test_as_many_records_as_there_is_room_for_are_rounded_to_the_grid_and_more_are_not() -> None:
    for deviation in (0.3, 7.0):
        room, step = most_records(deviation), grid_step(deviation)
        to_steps(torch.tensor([room - 1.0], dtype=torch.float64), step)
        with pytest.raises(ValueError, match="too large for the grid"):
            to_steps(torch.tensor([room + 1.0], dtype=torch.float64), step)


def test_more_rows_are_allowed_with_a_smaller_epsilon_and_with_noise_over_more_rounds() -> None:
    assert most(0.1) > most(1.0) > most(10.0) > 10**6
    assert most(1.0, classes=2) > most(1.0, classes=3)


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_no_sum_of_a_fit_of_as_many_rows_as_are_allowed_leaves_the_grid(tmp_path: Path, epsilon: float) -> None:
    """Each release of a fit of fewer rows, as it would be if there were as many more of the same."""
    rows, filled = 4000, []

    def listen(name: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Note how much of the grid the largest number takes, for each row."""
        if name != "add_noise":
            return compute()
        largest = max(float(value.abs().max()) for value in inputs["values"].values())
        filled.append(largest / rows / (MOST_STEPS * grid_step(inputs["deviation"])))
        return compute()

    with attached(listen):
        fit(Wanted(file(tmp_path, rows), "hired", "sex", epsilon=epsilon, delta=default_delta(10**9),
                   settings={"split": SPLIT}))
    assert len(filled) > 5
    assert max(filled) * most(epsilon) < 1


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_too_many_rows_are_refused_before_anything_is_charged_and_before_they_are_read_where_a_file_states_them(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    path, counted = tmp_path / f"people.{ending}", Spending(tmp_path / "fits.jsonl")
    {"parquet": people(900).to_parquet, "csv": people(900).to_csv}[ending](path, index=False)
    monkeypatch.setattr(budgets, "most_records", lambda deviation: 10 * deviation)
    if ending == "parquet":
        monkeypatch.setattr(fitting, "count", lambda *_: pytest.fail("the rows are read"))
    with pytest.raises(ValueError, match=r"900 rows, but .* at most \d+ have room on the grid"):
        fit(Wanted(path, "hired", "sex", count_in=counted.path))
    assert counted.fits == 0


def test_a_table_states_its_rows_if_all_its_files_do(tmp_path: Path) -> None:
    frame = people(90)
    for part in ("a", "b"):
        frame.to_parquet(tmp_path / f"{part}.parquet")
    frame.to_csv(tmp_path / "c.csv")
    frame.to_json(tmp_path / "d.json", orient="records")
    assert [chunks_of(tmp_path / name).stated for name in ("*.parquet", "a.parquet", "c.csv", "d.json")] == [
        180, 90, None, 90]
