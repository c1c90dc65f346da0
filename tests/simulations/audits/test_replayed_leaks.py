"""Leaks that fits, runs and existing apps once had, each planted anew: an audit by replay finds it, and none today."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from typer.testing import CliRunner

from fedfair.accounting import Release, epsilon
from fedfair.datasets import GroupedDataset
from fedfair.datasets.files import chunks, in_memory
from fedfair.datasets.split import shuffled
from fedfair.mechanisms.clipping import Flat
from fedfair.node.private_training import train_privately
from fedfair.protocol import task_data
from fedfair.protocol.task import Task
from simulations.audits import neighbour_files
from simulations.audits.replay import Left, ReplayAudit, replay
from simulations.audits.replayed import fit_of, run_of
from simulations.audits.tape import Moved
from simulations.cli import app
from simulations.engines.local import LocalGrid
from simulations.fitting import fit as fitting
from simulations.fitting.classifier import FairPrivateClassifier
from simulations.fitting.fit import Wanted
from simulations.fitting.save import save
from strategies.server.existing_app import PrivateTraining
from strategies.server.known_clients import KnownClients
from strategies.server.releases.threshold_search import ThresholdSearch

CODES = (12345678901234567, 12345678901234568)


@pytest.fixture(autouse=True)
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change a row in few ways, and keep tables in memory in a folder of the test's own."""
    monkeypatch.setattr(in_memory.pooch, "os_cache", lambda project: tmp_path / project)
    monkeypatch.setattr(in_memory, "_held", {})  # what another test left there
    monkeypatch.setattr(neighbour_files, "_ROWS", 1)
    monkeypatch.setattr(neighbour_files, "CELLS", ("", "0,5", "1e308"))
    monkeypatch.setattr(neighbour_files, "VALUES", ("0,5",))
    extremes, tried = neighbour_files._extremes, ("0,5", '24"')
    monkeypatch.setattr(neighbour_files, "_extremes", lambda kind: [each for each in extremes(kind) if each in tried])
    kinds = ("a blank line", "an open quote")
    monkeypatch.setattr(neighbour_files, "LINES", {name: neighbour_files.LINES[name] for name in kinds})


def people(path: Path, **more: Any) -> Path:
    """Write a table of people, in the format that the end of its name says."""
    draws, records = np.random.default_rng(0), 300
    frame = pd.DataFrame({"years": draws.integers(0, 30, records).astype("int8"), "city": draws.choice(
        ["Bonn", "Kiel"], records), "sex": draws.choice(["f", "m"], records), "hired": draws.choice(
        ["no", "yes"], records)}).assign(**more)
    write: dict[str, Callable[[], object]] = {
        ".csv": lambda: frame.to_csv(path, index=False), ".parquet": lambda: frame.to_parquet(path),
        ".xlsx": lambda: frame.to_excel(path, index=False), ".json": lambda: frame.to_json(path, orient="records"),
        ".jsonl": lambda: frame.to_json(path, orient="records", lines=True)}
    write[path.suffix]()
    return path


def told(made: ReplayAudit) -> set[str]:
    """Return the files in which something tells of a row, and "releases" where these tell too much."""
    assert made.neighbours >= 2
    return {finding.where.partition(":")[0] for finding in made.findings} | (
        {"releases"} if made.exceeds else set())


def audited(file: Path, **settings: Any) -> set[str]:
    """Return what tells of a row in a fit."""
    return told(replay(fit_of(Wanted(file, "hired", "sex", settings=settings)), file, "hired", "sex"))


@pytest.mark.parametrize("suffix", ["jsonl", pytest.param("json", marks=pytest.mark.slow), "xlsx", pytest.param(
    "parquet", marks=pytest.mark.slow)])
def test_nothing_but_the_releases_tells_of_a_row_of_any_format(suffix: str, tmp_path: Path) -> None:
    codes = {} if suffix == "xlsx" else {"code": np.random.default_rng(1).choice(CODES, 300)}
    assert audited(people(tmp_path / f"people.{suffix}", **codes)) == set()


def shipped(table: Path, folder: Path) -> Left:
    """Fit a classifier to a table in memory, and ship it, with its folder, as people ship scikit-learn's models."""
    frame = pd.read_parquet(table)
    model = FairPrivateClassifier(random_state=0).fit(
        frame[["years", "city"]], frame["hired"].fillna("no"), sensitive_features=frame["sex"].fillna("f"))
    save(model.fitted_, folder)
    joblib.dump(model, folder / "model.joblib")
    pickled = (folder / "model.joblib").read_bytes()
    (folder / "model.joblib").write_bytes(re.sub(rb"\d{12,16}", b"", pickled))  # addresses of tensors
    (folder / "repr.txt").write_text(repr(model))
    about = folder / "environment.json"
    about.unlink()  # which has the salt of a seal
    return Left(model.epsilon, lambda moved: _of_releases([distance for _, distance in moved], 1e-6))


def _of_releases(distances: list[float], delta: float) -> float:
    """Return the epsilon of Gaussian releases without sampling."""
    total = math.hypot(*distances)
    return epsilon(Counter([Release(1.0, 1 / total)]), delta) if total else 0.0


def shipping(tmp_path: Path) -> set[str]:
    """Return what tells of a row in a classifier that is shipped."""
    file = people(tmp_path / "people.parquet")
    return told(replay(shipped, file, "hired", "sex"))


def test_a_shipped_classifier_tells_of_no_row(tmp_path: Path) -> None:
    assert shipping(tmp_path) == set()


def test_a_pickle_with_the_table_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "without_records", lambda fitted: fitted)
    assert "model.joblib" in shipping(tmp_path)


def test_a_table_left_in_the_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "removed_after", nullcontext)
    assert "cache, file 0" in shipping(tmp_path)


def test_a_random_name_for_each_table_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal tables had one name, and others another one, so that two folders told whether their tables were equal."""
    plain = in_memory.written

    def named(frame: Any) -> Path:
        """Write a table under a name of its own."""
        monkeypatch.setattr(in_memory, "FILE", f"table-{secrets.token_hex(4)}.parquet")
        return plain(frame)

    monkeypatch.setattr(in_memory, "written", named)
    assert {"config.toml", "model.joblib"} <= shipping(tmp_path)


@pytest.mark.parametrize("leak", ["data", "task", "numbers"])
def test_what_a_kept_fit_once_held_is_found(leak: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of no record, whose pickle has all of them; the path of the table; exact numbers of records."""
    def view(data: GroupedDataset) -> GroupedDataset:
        """Return no record as a view."""
        return data.take(slice(0))

    plain = ThresholdSearch.bare

    def bare(search: ThresholdSearch, task: Task) -> ThresholdSearch:
        """Keep the task, or the population, as it was."""
        made = plain(search, search.task if leak == "task" else task)
        made.population = search.population if leak == "numbers" else made.population
        return made

    if leak == "data":
        monkeypatch.setattr(GroupedDataset, "without_records", view)
    else:
        monkeypatch.setattr(ThresholdSearch, "bare", bare)
    assert "model.joblib" in shipping(tmp_path)


@pytest.mark.parametrize("settings", [{"duplicates": "together"}, {"participant": "who"}])
def test_kinds_and_persons_that_are_dealt_anew_are_found(settings: dict[str, Any], tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    persons = np.random.default_rng(2).choice([f"p{n}" for n in range(90)], 300)
    file = people(tmp_path / "people.csv", **({"who": persons} if "participant" in settings else {}))
    assert audited(file, split=(0.7, 0.1, 0.2), **settings) == set()
    monkeypatch.setattr(task_data, "dealt", shuffled)
    assert "releases" in audited(file, split=(0.7, 0.1, 0.2), **settings)


def test_codes_that_a_missing_one_rounds_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"code": np.random.default_rng(1).choice(CODES, 300), "years": 1}
    file = people(tmp_path / "people.parquet", **codes)
    monkeypatch.setattr(chunks, "of_arrow", lambda table: table.to_pandas())
    assert "releases" in audited(file, categorical=["code"])


def test_a_group_that_must_have_a_training_record_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rare = np.array(["f", "m"] * 150)
    rare[:12] = "x"
    split = (0.7, 0.1, 0.2)
    file = people(tmp_path / "people.csv", sex=rare)
    train = Task(csv=str(file), label="hired", group="sex", missing="keep", features="binned", split=split,
                 preprocessing="private", numbers=("years",)).data().train
    trained = [row for row in train.records.tolist() if row < 12]
    rare[trained[1:]] = "f"
    people(file, sex=rare)
    monkeypatch.setattr(neighbour_files, "_some", lambda rows, seed: trained[:1])
    assert audited(file, split=split) == set()
    plain = task_data._refuse_empty

    def refusing(task: Any, parts: Any) -> None:
        """Refuse a group without a training record of the user's tables too."""
        plain(dataclasses.make_dataclass("Published", ["is_own", "prepares", "split"])(False, "", split), parts)

    monkeypatch.setattr(task_data, "_refuse_empty", refusing)
    assert "refusal" in audited(file, split=split)


RUN: dict[str, Any] = {"strategy": "moments", "features": "binned", "model": "linear", "target_epsilon": 1.0,
                       "label": "hired", "group": "sex", "sampling_rate": 1.0, "ranges": {"years": [0, 4000]},
                       "categories": {"city": ["Bonn", "Kiel", "other"]}, "missing": "drop"}


def audited_run(file: Path, **settings: Any) -> set[str]:
    """Return what tells of a row in a run by moments."""
    return told(replay(run_of({**RUN, **settings}), file, "hired", "sex"))


def test_nothing_but_the_releases_of_moments_tells_of_a_row(tmp_path: Path) -> None:
    assert audited_run(people(tmp_path / "people.csv"), decimal=".") == set()


def test_a_decimal_mark_that_one_row_decides_is_found(tmp_path: Path) -> None:
    """Which is why such a run is nominal; with `decimal` it is proved, and nothing is found."""
    years = np.random.default_rng(0).choice(["1.234", "2.345"], 300)
    file = people(tmp_path / "people.parquet", years=years)
    assert "releases" in audited_run(file)
    assert audited_run(file, decimal=".") == set()


class Restarted(LocalGrid):
    """Nodes without keys that are started again after each round, and then have other ids."""

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Answer, and start the nodes again."""
        replies = list(super().send_and_receive(messages, timeout=timeout))
        self._contexts = {node + 100: context for node, context in self._contexts.items()}
        return replies


def of_app(other: Path, grid: type[LocalGrid], table: Path, folder: Path) -> Left:
    """Train as an existing Flower app does, on the table and on another client's, whole batches at a time."""
    clients = [Task(csv=str(each), label="hired", group="sex", ranges={"years": [0, 30]}, categories={
        "city": ["Bonn", "Kiel", "other"]}, missing="drop", decimal=".", split=(1.0, 0.0, 0.0)).data().train
        for each in (table, other)]
    sent: dict[str, str] = {}
    client = ClientApp()

    @client.train()
    def handler(message: Message, context: Context) -> Message:
        """Train privately on a client's records."""
        place = int(context.node_config["partition-id"])
        model, data = torch.nn.Linear(clients[0].x.shape[1], 2), clients[place]
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        said = train_privately(model, data.x.float(), data.y, data.group, str(message.content["fedfair"]["plan"]),
                               name=f"site {place}")
        sent[f"messages:{len(sent)}"] = str([*model.parameters(), sorted(said.items())])
        metrics = MetricRecord({"num-examples": len(data)})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics,
                                   "fedfair": ConfigRecord(said)}), reply_to=message)

    random.seed(0)  # by which Flower puts nodes into an order
    strategy = PrivateTraining(FedAvg(fraction_evaluate=0.0), ("f", "m"), batch_size=1000, noise_multiplier=2.0,
                               clip_norm=0.3, delta=1e-3, method="dpsgd")
    first = torch.nn.Linear(clients[0].x.shape[1], 2)
    for parameter in first.parameters():
        torch.nn.init.zeros_(parameter)
    result = strategy.start(grid(client, 2), ArrayRecord(first.state_dict()), num_rounds=6)
    folder.mkdir()
    (folder / "model.txt").write_text(str(result.arrays.to_torch_state_dict()))
    ledger = strategy.ledger

    def cost(moved: list[Moved]) -> float:
        """Compose what every release costs."""
        return _of_releases([distance for _, distance in moved], ledger.delta)

    return Left(ledger.epsilon(), cost, {f"records of {name}": size for name, size in zip(
        ("f", "m"), clients[0].group_sizes(), strict=True)}, sent, refusals=(ValueError,),
                logs=False)  # in which Flower says how long it took


def audited_app(tmp_path: Path, grid: type[LocalGrid] = LocalGrid) -> set[str]:
    """Return what tells of a row in an existing app."""
    file, other = people(tmp_path / "people.csv"), people(tmp_path / "other.csv")
    return told(replay(partial(of_app, other, grid), file, "hired", "sex"))


@pytest.mark.parametrize("grid", [LocalGrid, Restarted])
def test_nothing_but_the_releases_of_an_existing_app_tells_of_a_row(grid: type[LocalGrid], tmp_path: Path) -> None:
    assert audited_app(tmp_path, grid) == set()


def test_the_command_replays_an_existing_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("people.csv", "other.csv"):
        people(tmp_path / name)
    (tmp_path / "app.py").write_text(
        "from pathlib import Path\nfrom simulations.engines.local import LocalGrid\n"
        f"from {of_app.__module__} import of_app\n\n"
        "def program(table, folder):\n    return of_app(Path('other.csv'), LocalGrid, table, folder)\n")
    asked = ["audit", "--replay", "people.csv", "--label", "hired", "--group", "sex", "--program", "app.py"]
    done = CliRunner().invoke(app, asked)
    assert (done.exit_code, "not refuted" in " ".join(done.output.split())) == (0, True)
    monkeypatch.setattr(Flat, "coefficients", lambda self, norms, groups: torch.full_like(norms, 9.0))
    assert CliRunner().invoke(app, asked).exit_code == 1


@pytest.mark.parametrize(("written", "more", "said"), [
    ("other = 1", [], "defines no function 'program'"), ("def program(*paths):\n    pass", [], "returned NoneType"),
    ("", ["--strategy", "dpsgd"], "says by itself what runs")])
def test_a_program_that_is_none_is_refused(written: str, more: list[str], said: str, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "people.csv")
    (tmp_path / "app.py").write_text(written)
    done = CliRunner().invoke(app, [
        "audit", "--replay", "people.csv", "--label", "hired", "--group", "sex", "--program", "app.py", *more])
    assert done.exit_code != 0
    assert said in " ".join((done.stderr or str(done.exception)).split())


def test_a_node_that_is_charged_as_another_when_it_is_started_again_is_found(tmp_path: Path,
                                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownClients, "check", lambda self, node, name: f"node {node}")
    assert "releases" in audited_app(tmp_path, Restarted)


def test_an_existing_app_that_clips_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flat, "coefficients", lambda self, norms, groups: torch.full_like(norms, 9.0))
    assert "releases" in audited_app(tmp_path)
