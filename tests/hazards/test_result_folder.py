"""Hazard 28: attacks on the result folder, each seen to succeed where the ledger says that it can.

The attacker has the folder and knows every record but one, or all but one record's label.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import tomllib
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

from fedfair.models.published import loss
from simulations import Experiment, Result, run
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import run as run_with
from simulations.engines.tracking import TRACKERS, tracking
from simulations.plans.sweep import Sweep, collect, trials

GOVERNOR = "Governor of Kansas"


def staff(folder: Path) -> dict[str, Any]:
    """Write a table in which one person is told by the job and by the salary; return settings for it."""
    draws, n = np.random.default_rng(0), 400
    job = draws.choice(["nurse", "clerk", "driver"], n).astype(object)
    salary = draws.integers(30, 70, n).astype(float)
    job[5], salary[5] = GOVERNOR, 99999.25
    table = pd.DataFrame({"job": job, "salary": salary, "sex": draws.choice(["f", "m"], n),
                          "hired": (salary + draws.normal(0, 9, n) > 50).astype(int)})
    table.to_csv(folder / "staff.csv", index=False)
    return {"csv": str(folder / "staff.csv"), "label": "hired", "group": "sex"}


def saved(folder: Path, **settings: Any) -> tuple[Result, Path]:
    """Run with the system's randomness unless told otherwise; save into a folder; return the result and the folder."""
    made = Experiment(**{**staff(folder), "model": "logistic", "strategy": "dpsgd", "steps": 3, "batch_size": 64,
                         "target_epsilon": 0.1, "delta": 1e-6, "randomness": "system", **settings})
    result = run(made)
    return result, result.save(folder / "out")


def encoding(folder: Path) -> list[Any]:
    """Return the features of the saved model as its file describes them."""
    with safe_open(str(folder / "model.safetensors"), "pt") as file:
        features: list[Any] = json.loads(next(iter(file.metadata().values())))["encoding"][0]
    return features


def listed(folder: Path, file: str, protection: str) -> list[str]:
    """Return what the ledger says that a file holds under one kind of protection."""
    parts = json.loads((folder / "ledger.json").read_text())["files"][file]
    return [part["holds"] for part in parts if part["protection"] == protection]


def reasons(folder: Path) -> str:
    """Return why the ledger says that the folder cannot be published, for the privacy of training records."""
    values = json.loads((folder / "ledger.json").read_text())["cannot_be_published_because"]
    return "; ".join(values["training records"])


def label_read_from_the_loss(result: Result, folder: Path, target: int) -> int | None:
    """Return the label with which the loss of the target's group is what the folder says; None if it says nothing."""
    table = pd.read_parquet(folder / "metrics.parquet")
    losses = table[(table["split"] == "train") & (table["metric"] == "loss")].set_index("group")["value"]
    if losses.empty:
        return None
    train = result.data.train
    with torch.no_grad():
        each = loss(result.model(train.features()), train.y).double()
        output = result.model(train.features(torch.tensor([target])))
    of_group = train.group == train.group[target]
    others = each[of_group].sum() - each[target]
    guesses = [float((others + loss(output, torch.tensor([label]))[0].double()) / of_group.sum()) for label in (0, 1)]
    truth = float(losses[train.names[int(train.group[target])]])
    return min((0, 1), key=lambda label: abs(guesses[label] - truth))


def test_the_loss_of_the_training_part_reveals_a_label_only_where_the_ledger_says_so(tmp_path: Path) -> None:
    for figures, guarantee in (("exact", "training"), (None, None)):
        result, folder = saved(tmp_path, figures=figures, ranges={"salary": [0, 200]}, categories={},
                               without=("job",))
        target = 17
        guess = label_read_from_the_loss(result, folder, target)
        assert guess == (int(result.data.train.y[target]) if guarantee else None)
        exact = listed(folder, "metrics.parquet", "training")
        assert exact == (["counts, losses and norms of the training part"] if guarantee else [])
        assert ("metrics.parquet" in reasons(folder)) is (guarantee is not None)
        assert bool(reasons(folder)) is (guarantee is not None)  # otherwise it can be published
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_no_figure_of_training_records_is_in_a_folder_but_public_numbers(tmp_path: Path) -> None:
    _, folder = saved(tmp_path, eval_every=0.05, steps=8)
    table = pd.read_parquet(folder / "metrics.parquet")
    assert set(table.loc[table["split"] == "train", "metric"]) == {"records"}
    assert {"valid", "test", "rule"} < set(table["split"])


def test_means_that_reveal_a_number_are_named_by_the_ledger(tmp_path: Path) -> None:
    result, folder = saved(tmp_path)
    table, rows = pd.read_csv(tmp_path / "staff.csv"), result.data.train.records.numpy()
    target = rows[3]
    (centre,) = (feature[2][0] for feature in encoding(folder) if feature[0] == "salary")
    known = table.loc[rows[rows != target], "salary"].sum()
    assert centre * len(rows) - known == pytest.approx(table.loc[target, "salary"], abs=0.5)
    assert any("means and deviations" in what for what in listed(folder, "model.safetensors", "training"))
    assert "model.safetensors" in reasons(folder)
    assert "nominal" in reasons(folder)


def test_a_category_of_one_person_is_named_by_the_ledger(tmp_path: Path) -> None:
    """The name, the number of features that tells that there is such a person, and the size of the file."""
    _, folder = saved(tmp_path, ranges={"salary": [0, 200]})
    assert any(GOVERNOR.encode() in path.read_bytes() for path in folder.iterdir())
    assert len(encoding(folder)) == 5
    assert any("categories of job" in what for what in listed(folder, "model.safetensors", "training"))
    assert "model.safetensors" in reasons(folder)


def test_a_column_that_is_left_out_leaves_nothing_of_it(tmp_path: Path) -> None:
    _, folder = saved(tmp_path, ranges={"salary": [0, 200]}, categories={}, without=("job",))
    held = b"".join(path.read_bytes() for path in folder.iterdir())
    assert not any(word.encode() in held for word in (GOVERNOR, "nurse", "clerk", "99999.25"))
    assert reasons(folder) == ""


def candidates(table: Path, row: int) -> Iterator[bytes]:
    """Yield what the table would be with every value that a record could have."""
    frame = pd.read_csv(table)
    for salary, sex, hired in product(np.arange(30.0, 70.0), "fm", (0, 1)):
        frame.loc[row, ["salary", "sex", "hired"]] = [salary, sex, hired]
        yield frame.to_csv(index=False).encode()


def test_no_hash_tells_which_table_was_used(tmp_path: Path) -> None:
    """Dictionary attacks, also with the salt of the seal: the key is not in the folder."""
    for randomness in ("system", "seeded"):
        _, folder = saved(tmp_path, randomness=randomness)
        texts = "".join(path.read_text(errors="replace") for path in folder.iterdir())
        salt = json.loads((folder / "environment.json").read_text())["own_tables_sealed"]["staff.csv"].split(":")[0]
        ways = [hashlib.sha256, hashlib.sha1, hashlib.md5, hashlib.blake2b, hashlib.sha512,
                partial(hashlib.blake2b, digest_size=16), partial(hashlib.blake2b, key=salt.encode()),
                partial(hmac.new, salt.encode(), digestmod="sha256"),
                partial(hmac.new, bytes.fromhex(salt), digestmod="sha256")]
        tables = list(candidates(tmp_path / "staff.csv", 9))
        assert (tmp_path / "staff.csv").read_bytes() in tables  # else the attack could not succeed
        for table in tables:
            inner = hashlib.sha256(table).hexdigest().encode()
            for content, way in product((table, inner, f"{salt}:".encode() + inner), ways):
                assert way(content).hexdigest()[:16] not in texts  # type: ignore[operator]
        assert str(int((tmp_path / "staff.csv").stat().st_mtime)) not in texts
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_the_path_of_a_table_is_kept_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, given in (("a", "a/staff.csv"), ("b", str(tmp_path / "b" / "staff.csv"))):
        Path(name).mkdir()
        _, folder = saved(tmp_path / name, csv=given)
        assert tomllib.loads((folder / "config.toml").read_text())["csv"] == given


def test_two_folders_do_not_tell_whether_their_tables_are_equal(tmp_path: Path) -> None:
    seals = []
    for _ in range(2):
        _, folder = saved(tmp_path)
        seals.append(json.loads((folder / "environment.json").read_text())["own_tables_sealed"]["staff.csv"].split(":"))
    assert all(a != b for a, b in zip(*seals, strict=True))


def test_a_checkpoint_that_was_left_behind_has_no_hash_and_no_figure_of_training_records(tmp_path: Path) -> None:
    made = Experiment(**staff(tmp_path), model="logistic", strategy="dpsgd", steps=3, batch_size=64, eval_every=0.05,
                      randomness="system", target_epsilon=0.1)
    checkpoint = Checkpoint(tmp_path / "out", made.settings())
    run_with(made, checkpoint=checkpoint)
    state = torch.load(checkpoint.file, weights_only=True)
    content = (tmp_path / "staff.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() not in str(state)
    assert {row["split"] for row in json.loads(state["state"]["rows"])} <= {"valid", "test", "rule"}


def test_a_tracker_is_sent_nothing_of_training_records_and_the_ledger_names_it(tmp_path: Path,
                                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, float] = {}

    class Noted:
        def __init__(self, *_: Any) -> None:
            """Accept a name, a folder and settings."""

        def measured(self, values: dict[str, float], round_: int) -> None:
            sent.update(values)

        def finish(self) -> None:
            """Close nothing."""

    monkeypatch.setitem(TRACKERS._values, "noted", Noted)
    made = Experiment(hidden=(8,), epochs=2, randomness="system")
    with tracking("noted", tmp_path, made) as watch:
        result = run(made, watch=watch)
    assert {name for name in sent if name.startswith("train/")} == {
        f"train/records/{group}" for group in ("all", *map(str, range(10)))}
    assert "what noted is sent" in result.ledger.unprotected


@pytest.mark.parametrize("settings", [{"randomness": "system"}, {"figures": "held-out"}])
def test_risk_terms_are_refused_where_training_records_are_not_measured(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"risk_every .* (randomness|figures) is '?\"?(system|held-out)"):
        Experiment(strategy="dpsgd", risk_every=2, **settings)


@pytest.mark.parametrize(("randomness", "quoted"), [("system", False), ("seeded", True)])
def test_an_error_that_quotes_a_cell_is_not_written_beside_protected_results(randomness: str, quoted: bool,
                                                                             tmp_path: Path) -> None:
    sweep = Sweep(strategies=("dpsgd",), settings={"steps": 2, "hidden": [8], "randomness": randomness})
    (name,) = trials(sweep)
    collect(sweep, tmp_path, {name: f"row 5 has {GOVERNOR!r}, which is no number"})
    assert (GOVERNOR in (tmp_path / "trials.csv").read_text()) is quoted
    (tmp_path / "ledger.json").write_text((tmp_path / "files.json").read_text())
    assert bool(listed(tmp_path, "trials.csv", "training")) is quoted


def test_a_client_with_one_record_is_refused_where_nobody_is_trusted(tmp_path: Path) -> None:
    """Its public number of records by group is the group of that record."""
    def made(**settings: Any) -> Experiment:
        return Experiment(**{**staff(tmp_path), "model": "logistic", "strategy": "dpsgd", "steps": 1, "batch_size": 16,
                             "partition": "site", "trust": "local", **settings})

    for settings in ({"clients": 280}, {"clients": 280, "round_sizes": 10}):
        with pytest.raises(ValueError, match=r"a single (record|one).*trust is 'local'.*take fewer clients"):
            run(made(**settings))
    run(made(clients=280, trust="central"))
    run(made(clients=20))
