"""One thread of PyTorch, since models are tiny here and two would wait for each other; and a table of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread(two_threads: None) -> None:
    """Apply after the fixture that all tests share."""
    torch.set_num_threads(1)


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    """Provide settings of a file of one's own, whose columns are publicly known."""
    draws = np.random.default_rng(0)
    n = 900
    sex, age, job = draws.choice(["f", "m"], n), draws.integers(18, 80, n), draws.choice(["a", "b", "c"], n)
    score = (age - 45) / 20 + (job == "a") + 0.8 * (sex == "m") + draws.normal(size=n)
    file = tmp_path / "own.csv"
    pd.DataFrame({"age": age, "job": job, "sex": sex, "person": np.arange(n) // 30,
                  "hired": np.where(score > 0.5, "yes", "no")}).to_csv(file, index=False)
    return {"csv": str(file), "label": "hired", "group": "sex", "participant": "person", "ranges": [("age", 18, 80)],
            "categories": [("job", ["a", "b", "c", "other"])], "split_by": "record"}
