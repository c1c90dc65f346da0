"""An audit by replay finds nothing in fits, runs and nodes, and each of the leaks that they once had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import MetricRecord, RecordDict
from typer.testing import CliRunner

from fedfair.datasets.files import chunks
from fedfair.datasets.files.csv_file import open_csv
from fedfair.datasets.split import shuffled
from fedfair.mechanisms.clipping import Flat
from fedfair.node import moment_sums
from fedfair.node.node import Node
from fedfair.protocol import task_data
from fedfair.protocol.task import Task
from simulations.audits import neighbour_files
from simulations.audits.replay import ReplayAudit, replay
from simulations.audits.replayed import fit_of, nodes_of, run_of
from simulations.cli import app
from simulations.fitting import fit as fitting
from simulations.fitting.fit import Wanted
from simulations.results.result import Result
from strategies.server.releases import preprocessing
from tests.simulations.fitting.tables import people as table
from tests.simulations.fitting.test_of_nodes import SCHEMA


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
    """Return where something but the releases of a fit tells of a row, and "releases" where these tell too much."""
    return told(replay(fit_of(Wanted(file, "hired", "sex", settings=settings)), file, "hired", "sex"))


def told(made: ReplayAudit) -> list[str]:
    """Return where something but the releases tells of a row, and "releases" where these tell too much."""
    assert made.neighbours >= 2
    return [finding.where for finding in made.findings] + ["releases"] * made.exceeds


def audited_run(file: Path, **settings: Any) -> list[str]:
    """Do the same of a run, all of whose columns are declared."""
    own = {"strategy": "dpsgd-f", "target_epsilon": 1.0, "label": "hired", "group": "sex", "steps": 3, "hidden": (4,),
           "batch_size": 100, "ranges": {"years": [0, 30]}, "categories": {"city": ["Bonn", "Kiel", "other"]},
           "decimal": ".", "missing": "drop", **settings}
    made = replay(run_of(own), file, "hired", "sex")
    assert made.others >= 3  # of which the numbers of records by group, which are public, are others
    assert made.epsilon > 0
    return told(made)


def audited_nodes(folder: Path, **settings: Any) -> list[str]:
    """Do the same of a fit over three nodes, of whose files one is changed."""
    (folder / "study.toml").write_text(SCHEMA)
    for number in range(3):
        table(600, number).to_csv(folder / f"site{number}.csv", index=False)
    wanted = Wanted(None, "", "", settings={"schema_file": str(folder / "study.toml"), "missing": "drop", **settings})
    own, *others = (folder / f"site{number}.csv" for number in range(3))
    made = replay(nodes_of(wanted, others), own, "hired", "sex")
    assert made.epsilon > 0
    return told(made)


@pytest.mark.parametrize("settings", [{}, {"duplicates": "together"}])
def test_nothing_but_the_releases_tells_of_a_row(people: Path, settings: dict[str, Any]) -> None:
    assert audited(people, **settings) == []


def test_nothing_but_the_releases_tells_of_a_row_where_the_table_lies(people: Path, monkeypatch: pytest.MonkeyPatch
                                                                      ) -> None:
    """There a table is sealed, by another seal each time."""
    monkeypatch.chdir(people.parent)
    assert not audited(people)


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
    assert "releases" in audited(people, split=(0.7, 0.1, 0.2))


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


def test_nothing_but_the_releases_of_a_run_tells_of_a_row(people: Path) -> None:
    assert audited_run(people) == []


def test_a_run_that_clips_nothing_is_found(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flat, "coefficients", lambda self, norms, groups: torch.ones_like(norms))
    assert audited_run(people, strategy="dpsgd", clip_norm=0.01) == ["releases"]


def test_a_file_of_a_run_that_tells_is_found(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hazard: a hash of the table was in environment.json."""
    plain = Result.save

    def telling(result: Result, folder: Path) -> Path:
        """Save a sum of all features too."""
        saved = plain(result, folder)
        (saved / "environment.json").write_text(f'{{"features": {float(result.data.train.x.sum())}}}')
        return saved

    monkeypatch.setattr(Result, "save", telling)
    assert {where.partition(":")[0] for where in audited_run(people)} == {"environment.json"}


def test_a_table_that_is_refused_itself_is_no_finding_and_no_clean_bill(people: Path) -> None:
    with pytest.raises(ValueError, match=r"the table itself is refused, .* unknown column 'hire'"):
        replay(fit_of(Wanted(people, "hire", "sex")), people, "hired", "sex")


def test_an_audit_whose_row_is_in_no_release_says_so(people: Path) -> None:
    made = replay(run_of({"strategy": "sgd", "label": "hired", "group": "sex", "steps": 1, "hidden": (4,),
                          "batch_size": 1, "ranges": {"years": [0, 30]}, "missing": "drop", "decimal": ".",
                          "categories": {"city": ["Bonn", "Kiel", "other"]}}), people, "hired", "sex")
    assert made.epsilon == 0
    assert "No changed row was in any release" in str(made.table().caption)


@pytest.fixture
def few(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change a row in fewer ways."""
    monkeypatch.setattr(neighbour_files, "CELLS", ("1e308", "x"))
    monkeypatch.setattr(neighbour_files, "LINES", {})


@pytest.mark.parametrize("secure", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["local", "secure"])
@pytest.mark.usefixtures("few")
def test_nothing_but_the_releases_of_nodes_tells_of_a_row(tmp_path: Path, secure: bool) -> None:
    """Nor what the nodes send."""
    assert audited_nodes(tmp_path, secure_aggregation=secure) == []


@pytest.mark.usefixtures("few")
def test_a_message_that_tells_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact, moments, content = list[float](), moment_sums.record_moments, moment_sums.content

    def remembering(node: Node, *asked: Any) -> Any:
        """Keep a number of features without noise."""
        features = node.clients.together.train.x
        exact.append(float((features @ torch.arange(features.shape[1], dtype=features.dtype)).sum()))
        return moments(node, *asked)

    def telling(made: Any) -> RecordDict:
        """Send it too."""
        reply = content(made)
        reply["told"] = MetricRecord({"exact": exact[-1]})
        return reply

    monkeypatch.setattr(moment_sums, "record_moments", remembering)
    monkeypatch.setattr(moment_sums, "content", telling)
    assert {where.partition(":")[0] for where in audited_nodes(tmp_path)} == {"messages"}


def test_the_command_says_what_it_tried(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "replay.json"
    done = CliRunner().invoke(app, ["audit", "--replay", str(people), "--label", "hired", "--group", "sex", "--out",
                                    str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "not refuted" in " ".join(done.output.split())
    assert '"findings": []' in out.read_text()


@pytest.mark.usefixtures("few")
def test_the_command_says_how_far_it_is_beside_what_it_prints(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay runs some hundred times, and a table of a million rows takes a minute each: ten seconds bring a line."""
    monkeypatch.setattr("simulations.commands.terminal.monotonic", lambda: 0.0)  # so that no ten seconds pass
    done = CliRunner().invoke(app, ["audit", "--replay", str(people), "--label", "hired", "--group", "sex"])
    assert done.stderr == "A fit on neighbours of the table: 100 %, done in 0 s\n"
    assert "100 %" not in done.stdout


@pytest.mark.usefixtures("few")
def test_a_replay_tells_how_many_tables_it_ran_on(people: Path) -> None:
    told: list[tuple[int, int]] = []
    made = replay(fit_of(Wanted(people, "hired", "sex")), people, "hired", "sex",
                  progress=lambda done, of: told.append((done, of)))
    tables = 1 + made.neighbours + made.others
    assert told == [(done, tables) for done in range(1, tables + 1)]
