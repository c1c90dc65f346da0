"""A table of every kind of column, and what every form of its model decides of new rows."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations.cli import app

TRUE, FALSE = ["True", "TRUE", "true", "t", "1", "1.0"], ["False", "FALSE", "false", "F", "0", "0.0"]
LEARNED = {"age": [20, 40, 60, 80], "code": ["1", "2", "3"], "smoker": ["True", "False"], "city": ["Oslo", "Bergen"]}
"""What the columns of the training hold."""


def table(rows: int = 2000) -> pd.DataFrame:
    """Return numbers, codes, truth values and names."""
    draws = np.random.default_rng(1)
    made = pd.DataFrame({name: draws.choice(values, rows) for name, values in LEARNED.items()})
    ill = made["age"] + 30 * (made["smoker"] == "True") + 10 * (made["city"] == "Oslo") + draws.normal(0, 9, rows) > 70
    return made.assign(sex=draws.choice(["f", "m"], rows), ill=np.where(ill, "yes", "no"))


SETTINGS: dict[str, Any] = {"randomness": "seeded", "categorical": ["code", "smoker", "city"], "numbers": ["age"],
                            "bins": 4, "ranges": {"age": (0, 100)}}


def written(folder: Path, rows: list[list[str]], separator: str = ",", mark: str = "") -> Path:
    """Write a file."""
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    path = folder / "new.csv"
    path.write_text(mark + text.getvalue(), encoding="utf-8")
    return path


def by_command(folder: Path, file: Path, *more: str) -> tuple[int, list[str], str]:
    """Return the code, the decisions and stderr of `fedfair predict`."""
    logged, logger = io.StringIO(), logging.getLogger("simulations.results.classifier")
    handler = logging.StreamHandler(logged)  # under pytest the log is not on stderr
    logger.addHandler(handler)
    done = CliRunner().invoke(app, ["predict", str(folder), str(file), *more])
    logger.removeHandler(handler)
    rows = pd.read_csv(io.StringIO(done.stdout), dtype=str)["predicted"].tolist() if done.exit_code == 0 else []
    return done.exit_code, rows, done.stderr + logged.getvalue()


def by_program(folder: Path, file: Path, *more: str) -> tuple[int, list[str], str]:
    """Return the code, the decisions and stderr of predict.py."""
    out, said, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        patch.setattr("sys.argv", ["predict.py", str(file), *more])
        try:
            runpy.run_path(str(folder / "predict.py"), run_name="__main__")
        except SystemExit as end:
            code = int(str(end.code))
    rows = [row["predicted"] for row in csv.DictReader(io.StringIO(out.getvalue()))]
    return code, rows, said.getvalue()


def by_all(folder: Path, file: Path, *more: str) -> tuple[int, list[str], str]:
    """Return what command and program do, which is the same."""
    command, program = by_command(folder, file, *more), by_program(folder, file, *more)
    assert command == program
    return program
