"""Whether the sensitive attribute is a feature is a choice, and is said wherever a model is."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfair.protocol.task import Task
from simulations import Experiment, run
from simulations.cli import app
from simulations.report.contents import found
from simulations.results.classifier import TrainedClassifier
from simulations.results.model_metadata import descriptions
from simulations.results.run_folder import read_folder
from simulations.settings.presets import preset
from tests.for_each import for_each


@pytest.fixture
def file(tmp_path: Path) -> str:
    pd.DataFrame({"age": range(200), "sex": ["f", "m"] * 100, "town": ["x", "x", "y", "z"] * 50,
                  "good": [0, 0, 1] * 66 + [1, 1]}).to_csv(tmp_path / "own.csv", index=False)
    return str(tmp_path / "own.csv")


@pytest.mark.parametrize("group", ["sex", "sex,town"])
def test_attributes_are_features_only_where_that_is_chosen(file: str, group: str) -> None:
    plain, chosen = (Task(csv=file, label="good", group=group, attribute_in_model=use).data().train
                     for use in (False, True))
    assert {*plain.columns} == {"age", "sex", "town"} - {*group.split(",")}
    assert {*chosen.columns} == {"age", "sex", "town"}
    assert plain.names == chosen.names
    twice = Task(csv=file, label="good", group=group, without=("sex",)).data().train
    assert twice.columns == plain.columns


def test_a_table_without_another_column_says_what_to_do(file: str) -> None:
    with pytest.raises(ValueError, match=r"no column is left to learn from without .*sex.*attribute_in_model = true"):
        Task(csv=file, label="good", group="sex", without=("age", "town")).data()


@for_each(("name", "dataset", "attribute", "used"), [
    ("yang2024", "compas", "race", True), ("yang2024", "bank", "marital", True), ("esipova2023", "dutch", "sex", True),
    ("xu2021", "dutch", "sex", False), (None, "dutch", "sex", False), (None, "credit", "SEX", False),
    (None, "law", "race", False), (None, "adult", "sex", False)])
def test_papers_keep_the_attributes_that_they_have(data_dir: Path, name: str | None, dataset: str, attribute: str,
                                                   used: bool) -> None:
    settings = {"dataset": dataset, **(preset(name, dataset, "dpsgd") if name else {})}
    assert (attribute in Experiment(**settings).task.data().train.columns) == used


def test_it_is_said_in_the_terminal_the_model_and_the_report(file: str, tmp_path: Path) -> None:
    command = ["run", "--csv", file, "--label", "good", "--group", "sex", "--set", "model=logistic", "--strategy",
               "sgd", "--set", "steps=2", "--set", "batch_size=20"]
    for option, words in ((None, "is not a feature"), ("--attribute-in-model", "is a feature"),
                          ("--no-attribute-in-model", "is not a feature")):
        out = tmp_path / str(option)
        shown = CliRunner().invoke(app, [*command, *filter(None, [option]), "--out", str(out)])
        assert f"The sensitive attribute sex {words} of the model" in " ".join(shown.output.split()), shown.output
        (described,) = descriptions(out / "model.safetensors").values()
        assert described.attributes_used == {"sex": option == "--attribute-in-model"}
        _, (comparison,) = read_folder(out)
        assert found(comparison)[0].startswith("The sensitive attribute sex") or any(
            line.startswith(f"The sensitive attribute sex {words}") for line in found(comparison))
        rows = pd.DataFrame({"age": [3], "town": ["x"]})
        if not described.attributes_used["sex"]:  # the rows need not have it
            assert len(TrainedClassifier.load(out).predict(rows)) == 1
    assert run(Experiment(strategy="sgd", steps=1, hidden=(4,))).description.attributes_used == {}
