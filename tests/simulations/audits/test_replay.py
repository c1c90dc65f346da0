"""An audit by replay finds nothing in a fit, and each of the leaks that fits once had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfair.datasets.files import chunks
from fedfair.datasets.files.csv_file import open_csv
from fedfair.datasets.split import shuffled
from fedfair.protocol import task_data
from fedfair.protocol.task import Task
from simulations.audits import neighbour_files
from simulations.audits.replay import replay
from simulations.cli import app
from simulations.fitting import fit as fitting
from simulations.fitting.fit import Wanted
from strategies.server.releases import preprocessing


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small file of people, of which neighbours are changed in one row, in few ways."""
    monkeypatch.setattr(neighbour_files, "_ROWS", 1)
    monkeypatch.setattr(neighbour_files, "CELLS", ("", '"24', "0,5", "1e308"))
    kinds = ("a blank line", "an open quote", "too many values")
    monkeypatch.setattr(neighbour_files, "LINES", {name: neighbour_files.LINES[name] for name in kinds})
    draws, records = np.random.default_rng(0), 300
    file = tmp_path / "people.csv"
    pd.DataFrame({"years": draws.integers(0, 30, records), "city": draws.choice(["Bonn", "Kiel", '5"'], records),
                  "sex": draws.choice(["f", "m"], records), "hired": draws.choice(["no", "yes"], records)}
                 ).to_csv(file, index=False, quoting=3, quotechar="'", escapechar="\\")
    return file


def audited(file: Path, **settings: Any) -> list[str]:
    """Return where something but the releases tells of a row, and "releases" where these tell too much."""
    made = replay(Wanted(file, "hired", "sex", settings=settings))
    assert made.neighbours >= 4
    return [finding.where for finding in made.findings] + ["releases"] * (made.epsilon > made.claimed)


@pytest.mark.parametrize("settings", [{}, {"duplicates": "together"}])
def test_nothing_but_the_releases_tells_of_a_row(people: Path, settings: dict[str, Any]) -> None:
    assert audited(people, **settings) == []


def test_nothing_but_the_releases_tells_of_a_row_of_parquet(people: Path, tmp_path: Path) -> None:
    pd.read_csv(people, quotechar="'").to_parquet(tmp_path / "people.parquet")
    assert audited(tmp_path / "people.parquet") == []


def test_an_exact_number_of_records_is_found(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "trained_rows", lambda self: None)
    assert any(where.startswith("ledger.json") for where in audited(people))


def test_a_line_of_the_log_is_found(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = preprocessing._margin

    def telling(columns: Any, task: Task, *others: Any) -> float:
        """Log how many records there are."""
        preprocessing.log.warning("%s records", len(task.data().train))
        return plain(columns, task, *others)

    monkeypatch.setattr(preprocessing, "_margin", telling)
    assert {where.partition(":")[0] for where in audited(people)} == {"log"}


def test_rows_that_are_dealt_anew_are_found(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hazard: the deal was a permutation of the number of rows with a label."""
    monkeypatch.setattr(task_data, "dealt", shuffled)
    assert "releases" in audited(people)


def test_a_quote_that_swallows_rows_is_found(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hazard: between two quotes everything was one value."""
    class Whole:
        """A file that is parsed as a whole, as it was."""

        def __init__(self, path: Path, asked: Any) -> None:
            self.file = open_csv(path, asked)
            self.names, self.layout = self.file.names, self.file.layout

        def frames(self, rows: int) -> Any:
            """Yield all rows."""
            yield self.file.frame()

    monkeypatch.setattr(chunks, "open_rows", Whole)
    assert audited(people) != []


def test_a_refusal_that_depends_on_a_row_is_found(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fitting.count

    def refusing(table: Any, *others: Any) -> Any:
        """Refuse a row without values."""
        if any(bool((frame == "").all(axis=1).any()) for frame in table.frames()):
            raise ValueError("a row is empty")
        return plain(table, *others)

    monkeypatch.setattr(fitting, "count", refusing)
    assert "refusal" in audited(people)


def test_a_path_that_tells_equal_tables_is_found(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "without_records", lambda fitted: fitted)
    assert any(where.startswith("config.toml") for where in audited(people))


def test_the_command_says_what_it_tried(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "replay.json"
    done = CliRunner().invoke(app, ["audit", "--replay", str(people), "--label", "hired", "--group", "sex", "--out",
                                    str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "not refuted" in " ".join(done.output.split())
    assert '"findings": []' in out.read_text()
