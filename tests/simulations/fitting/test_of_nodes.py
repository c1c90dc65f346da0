"""A fit over nodes: the folder of a fit, within one epsilon, from records that no server saw."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flwr.app import Message
from typer.testing import CliRunner

from fedfair import client_app
from fedfair.accounting.ledger_words import objections
from fedfair.node.node import ClientError
from simulations.cli import app
from simulations.engines.engines import Connected, Engine, Local
from simulations.engines.local import LocalGrid
from simulations.fitting.fit import Fitted, Wanted
from simulations.fitting.fit_folder import Story
from simulations.fitting.of_nodes import fit_nodes
from simulations.fitting.save import save
from simulations.flower_run import wanted_of
from simulations.results.run_folder import RunFolder
from simulations.settings.experiment import SettingsError
from strategies.server.rounds import Rounds
from tests.for_each import for_each
from tests.simulations.fitting.tables import people

SCHEMA = """source = "the study's protocol"
label = "hired"
group = "sex"
[ranges]
age = [18, 80]
hours = [0, 80]
[categories]
school = ["primary", "secondary", "college", "university"]
sex = ["f", "m"]
hired = ["no", "yes"]
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Write the tables of three nodes, beside the schema."""
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "study.toml").write_text(SCHEMA)
    for number in range(3):
        people(3000 + 1000 * number, number).assign(remark="of Zaphod").to_csv(folder / f"site{number}.csv",
                                                                               index=False)
    return tuple(str(folder / f"site{number}.csv") for number in range(3))


def fitted(files: tuple[str, ...], engine: Engine | None = None, gap: float | None = None, epsilon: float = 1.0,
           folder: Path | None = None, **settings: Any) -> Fitted:
    schema = str(Path(files[0]).with_name("study.toml"))
    wanted = Wanted(None, "", "", epsilon, gap=gap, settings={"schema_file": schema, "missing": "drop", **settings})
    return fit_nodes(wanted, engine or Local(files=files), folder)


@pytest.fixture(scope="module")
def folder(files: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit."""
    out = tmp_path_factory.mktemp("out") / "people"
    save(fitted(files, gap=0.05), out)
    return out


def test_every_record_stays_within_the_epsilon_also_against_the_server(folder: Path) -> None:
    ledger = RunFolder(folder).ledgers[""]
    assert ledger.guarantee == "proved"
    spent = (ledger.by_observer()["server"], ledger.held_out_epsilon("valid"), ledger.held_out_epsilon("test"))
    assert all(0.99 < each <= 1.0 for each in spent), spent
    assert ledger.by_observer()["client"] < 1


def test_the_folder_is_that_of_a_fit_and_says_who_held_the_records(folder: Path) -> None:
    ledger = RunFolder(folder).ledgers[""]
    assert objections(ledger) == {"training records": [], "held-out records": []}
    assert {path.name for path in folder.iterdir()} <= ledger.files.keys()
    for name in ("card.md", "report.html"):
        text = (folder / name).read_text().replace("&#39;", "'")
        assert "3 nodes, each a file of its own, which did not leave it" in text
        assert "every client adds all of it, before anything leaves" in text
        assert "numbers of records by group and client" in text
    assert 'trust = "local"' in (folder / "fit.toml").read_text()


def test_nothing_of_the_files_is_in_the_folder(folder: Path, files: tuple[str, ...]) -> None:
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    for word in ("Zaphod", "postcode", "site0", str(Path(files[0]).parent)):
        assert word.encode() not in written, word


def test_it_decides_and_another_point_is_taken(folder: Path, tmp_path: Path) -> None:
    import shutil

    copy, runner = tmp_path / "people", CliRunner()
    shutil.copytree(folder, copy)
    people(50, 9).dropna().to_csv(tmp_path / "new.csv", index=False)
    predicted = runner.invoke(app, ["predict", str(copy), str(tmp_path / "new.csv"), "--out",
                                    str(tmp_path / "decided.csv")])
    assert predicted.exit_code == 0, predicted.output
    assert set(pd.read_csv(tmp_path / "decided.csv")["predicted"]) <= {"no", "yes"}
    before = Story.read(copy)
    assert runner.invoke(app, ["choose", str(copy), "--tau", "1"]).exit_code == 0
    after = Story.read(copy)
    assert (after.epsilon, after.nodes) == (before.epsilon, 3)
    assert after.tau(after.chosen) == 1


class Watched(LocalGrid):
    """Nodes, and what they are asked."""

    asked: list[Message]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Note what is asked."""
        self.asked = [*getattr(self, "asked", []), *(given := list(messages))]
        return list(super().send_and_receive(given, timeout=timeout))


@pytest.mark.parametrize("settings", [{}, {"secure_aggregation": True}], ids=["local", "secure"])
def test_counts_of_single_nodes_carry_all_of_the_noise(settings: dict[str, Any], files: tuple[str, ...]) -> None:
    """A server looks at the counts of one node alone: no mask hides them, so a share of the noise is too little."""
    grid = Watched(client_app.app, 3, files)
    made = fitted(files, Connected(grid=grid), **settings)
    seen = {"valid": 0.0, "test": 0.0}  # of a record at one node: the sum of 1 / multiplier^2
    for message in grid.asked:
        named, content = str(message.content["exchange"]["name"]), message.content
        if named.startswith("private_counts") and message.metadata.dst_node_id == grid.asked[0].metadata.dst_node_id:
            options = content["options"]
            tables = len(content["front"]["weights"].numpy()) if "front" in content else 1
            seen[str(options["split"])] += tables / float(options["deviation"]) ** 2
    for split, release in made.result.ledger.held_out.items():
        assert math.sqrt(1 / seen[split]) == pytest.approx(release.multiplier)


def test_secure_aggregation_gives_less_noise_and_says_what_another_node_could_learn(files: tuple[str, ...],
                                                                                    tmp_path: Path) -> None:
    apart, together = fitted(files), fitted(files, secure_aggregation=True)
    ledger = together.result.ledger
    assert ledger.epsilon() == pytest.approx(apart.result.ledger.by_observer()["server"])
    assert ledger.by_observer()["server"] <= 1 < ledger.by_observer()["client"]
    story = save(together, tmp_path / "out")
    assert f"epsilon {ledger.by_observer()['client']:.3f}"[:12] in (tmp_path / "out" / "card.md").read_text()
    assert story.ledger.secure_aggregation


def test_sites_of_a_node_add_noise_each_and_lose_no_more_than_a_node_of_one(files: tuple[str, ...], tmp_path: Path
                                                                           ) -> None:
    """The column is each node's own, and two of the nodes have one."""
    wards = tuple(str(tmp_path / Path(file).name) for file in files)
    (tmp_path / "study.toml").write_text(SCHEMA)
    for number, (file, copy) in enumerate(zip(files, wards, strict=True)):
        frame = pd.read_csv(file)
        ward = [f"ward{row % (number + 1)}-of-Zaphod" for row in range(len(frame))]
        frame.assign(ward=ward).to_csv(copy, index=False)
    apart, whole = (fitted(wards, Local(files=wards, site=site), epsilon=0.1) for site in ("ward", None))
    assert apart.result.nodes is not None
    assert apart.result.nodes.sites.tolist() == [1, 2, 3]
    assert apart.nodes == whole.nodes == 3
    one, other = (fit.result.ledger.by_observer() for fit in (apart, whole))
    assert one["server"] == pytest.approx(other["server"])
    assert one["model"] < other["model"]
    assert apart.needed is not None
    assert whole.needed is not None
    assert apart.needed.records == pytest.approx(whole.needed.records * (6 / 3) ** 0.5, rel=1e-3)  # six times the noise
    save(apart, tmp_path / "out")
    assert not any(b"Zaphod" in path.read_bytes() for path in (tmp_path / "out").iterdir())


def test_a_file_unlike_the_schema_is_refused_by_the_name_of_its_column(files: tuple[str, ...], tmp_path: Path) -> None:
    frame = pd.read_csv(files[2])
    frame["school"] = frame["school"].replace("college", "academy")
    frame.to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(ClientError, match="school has values that the schema does not list") as refused:
        fitted(files, Local(files=(*files[:2], str(tmp_path / "other.csv"))))
    assert "academy" not in str(refused.value)


@for_each(("settings", "words"), [
    ({"trust": "distributed"}, "trust is 'distributed', so that the server would see"),
    ({"mode": "simulation", "trust": "central"}, "trust is 'central', so that the server would see"),
    ({"trust": "central"}, 'mode is "deployment", but trust is \'central\''),
    ({"strategy": "dpsgd"}, "strategy is among the settings, but a fit chooses it"),
    ({"epochs": 3}, "epochs is among the settings"),
    ({"csv": "own.csv"}, "every node opens a file of its own"),
    ({"preprocessing": "private"}, "preprocessing is 'private'")])
def test_what_a_fit_over_nodes_cannot_be_is_refused(settings: dict[str, Any], words: str, files: tuple[str, ...]
                                                    ) -> None:
    with pytest.raises(ValueError, match=words):
        fitted(files, **settings)


def test_a_run_config_asks_for_a_fit() -> None:
    from simulations.settings.run_config import keys

    wanted = wanted_of({**keys(), "fit": True, "schema": "study.toml", "epsilon": 2, "gap": 0.1, "missing": "drop"})
    assert wanted == Wanted(None, "", "", 2.0, None, 0.1, settings={"schema_file": "study.toml", "missing": "drop"})
    assert wanted_of(keys()) is None
    for config, words in (({"fit": True}, "no schema is given"), ({"epsilon": 1}, "epsilon is given, which is for a"),
                          ({"fit": True, "schema": "s", "preset": "yang2024"}, "preset is 'yang2024'"),
                          ({"fit": True, "schema": "s", "epsilon": 0}, "epsilon is 0: it should be")):
        with pytest.raises(SettingsError, match=words):
            wanted_of({**keys(), **config})


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_a_fit_that_was_interrupted_stays_within_epsilon(lost: int, files: tuple[str, ...], tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """It spent 1.128 where 1 was asked: one of four equal releases, twice."""
    end = Rounds.end

    def stopped(self: Rounds, now: int, *others: Any) -> None:
        """Release a round, and stop before it is kept."""
        end(self, now, *others)
        if now == lost:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "end", stopped)
        with pytest.raises(KeyboardInterrupt):
            fitted(files, folder=tmp_path / "out")
    made = fitted(files, folder=tmp_path / "out")
    assert made.result.ledger.epsilon() <= 1
    assert sum(made.result.ledger.events.values()) == (4 if lost == 4 else 5)
    save(made, tmp_path / "out")
    assert Story.read(tmp_path / "out").epsilon <= 1
