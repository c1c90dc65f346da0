"""An attack on how rows are dealt (after `attacks/split_label.py`): does one row move others in or out of a part?

A category that no training row has is listed by nobody. If an emptied label deals all rows anew, some of them train,
and the list of a private release, of hundreds of rows, tells the two tables apart.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

from fedfair.datasets.split import shuffled
from fedfair.protocol import task_data
from fedfair.protocol.task import Task
from simulations.fitting.fit import Wanted, fit

ROWS, SPLIT, ERROR = 1500, (0.7, 0.1, 0.2), 0.025
CLAIM = 1.0


def tables(folder: Path) -> list[Path]:
    """Write a table in which all training rows have one category and all others another, and the same less a label.

    The label is that of a row that trains nothing.
    """
    draws = np.random.default_rng(0)
    table = pd.DataFrame({"x": "a", "years": draws.integers(0, 30, ROWS), "sex": draws.choice(["f", "m"], ROWS),
                          "hired": draws.choice(["no", "yes"], ROWS)})
    table.to_csv(folder / "plain.csv", index=False)
    train = Task(csv=str(folder / "plain.csv"), label="hired", group="sex", missing="keep", features="binned",
                 preprocessing="private", numbers=("years",), split=SPLIT).data().train.records.tolist()
    table["x"] = np.where(table.index.isin(train), "a", "b")
    other = table.copy()
    other.loc[min({*table.index} - {*train}), "hired"] = ""
    paths = []
    for name, each in (("one", table), ("other", other)):
        (folder / name).mkdir()
        paths.append(folder / name / "people.csv")
        each.to_csv(paths[-1], index=False)
    return paths


def listed(path: Path, fits: int) -> int:
    """Return in how many fits the category of those that do not train is a feature."""
    made = (fit(Wanted(path, "hired", "sex", CLAIM, settings={"split": SPLIT, "seed": 0})) for _ in range(fits))
    return sum(any(feature.category == "b" for feature in each.result.data.train.encoding.features) for each in made)


def bound(seldom: int, often: int, fits: int) -> float:
    """Return a lower bound on epsilon by Clopper and Pearson's of both rates, at 95 %."""
    most = beta.ppf(1 - ERROR, seldom + 1, fits - seldom) if seldom < fits else 1.0
    least = beta.ppf(ERROR, often, fits - often + 1) if often else 0.0
    return math.log(max(least - 1e-6, 1e-9) / most)


@pytest.mark.slow
def test_an_emptied_label_tells_no_more_than_the_claim_in_200_fits_a_side(tmp_path: Path) -> None:
    one, other = (listed(path, 200) for path in tables(tmp_path))
    assert max(bound(one, other, 200), bound(other, one, 200)) < CLAIM


def test_rows_that_are_dealt_anew_refute_the_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hazard: the deal was a permutation of the number of rows with a label."""
    monkeypatch.setattr(task_data, "dealt", shuffled)
    one, other = (listed(path, 12) for path in tables(tmp_path))
    assert bound(one, other, 12) > CLAIM
