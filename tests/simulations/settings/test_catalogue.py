"""A field describes itself, and is in `fedfair settings`, in the documentation and among the run-config keys."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from fedfair.protocol.fields import marked
from fedfair.protocol.task import Task
from simulations.cli import app
from simulations.flower_run import experiment_of as from_run_config
from simulations.settings.catalogue import lists, options_by_strategy, sections, settings_of
from simulations.settings.experiment import Experiment, SettingsError
from simulations.settings.names import SETTINGS
from simulations.settings.run_config import PYPROJECT, RunSettings, keys, read, with_keys
from strategies.server.training import Training
from tests.for_each import for_each

DOCS = PYPROJECT.parent / "docs"
AddField = Callable[[], None]


@pytest.fixture
def hook() -> ModuleType:
    """Return the hook of mkdocs that writes the tables."""
    described = importlib.util.spec_from_file_location("settings_table", DOCS / "settings_table.py")
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["settings", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_every_setting_describes_itself() -> None:
    for setting in (*settings_of(Experiment), *settings_of(RunSettings)):
        assert setting.meaning[0].isupper(), setting.name
        assert setting.meaning.endswith("."), setting.name
        assert setting.allowed, setting.name
    assert sum(map(len, sections().values())) == len(Experiment.model_fields)


def test_an_added_field_is_in_the_command_the_documentation_and_the_run_config(add_field: AddField, hook: ModuleType
                                                                               ) -> None:
    page = (DOCS / "settings.md").read_text()
    assert "patience" not in printed() + hook.on_page_markdown(page) + "".join(keys())
    add_field()
    assert "Epochs without progress" in printed()
    assert "default: 3.0" in printed("patience")
    assert "| `patience` | `3.0` | number | Epochs without progress" in hook.on_page_markdown(page)
    assert "patience" in keys()
    assert '\npatience = ""\n' in with_keys(PYPROJECT.read_text())
    assert from_run_config({"patience": 2.5}).model_dump()["patience"] == 2.5
    assert from_run_config({"settings": "patience=2.5"}).model_dump()["patience"] == 2.5


def test_the_run_config_of_pyproject_is_the_one_that_is_made() -> None:
    text = PYPROJECT.read_text()
    assert text == with_keys(text), "write it again: python -m simulations.settings.run_config"


def test_a_run_config_has_more_settings_in_one_key() -> None:
    made = from_run_config({"strategy": "dpsgd-f", "epochs": 3, "learning-rate": 0.5, "options": "bounds=authors",
                            "settings": "learning_rate=0.1 options.max_bound=4 hidden=[8,4] seed=5"})
    assert (made.learning_rate, made.epochs, made.hidden, made.seed) == (0.1, 3, (8, 4), 5)
    assert made.options == {"bounds": "authors", "max_bound": 4}
    with pytest.raises(SettingsError, match="unknown setting 'learning_rat': did you mean 'learning_rate'"):
        from_run_config({"settings": "learning_rat=1"})
    with pytest.raises(ValueError, match="'epochs' is not a setting: write key=value"):
        from_run_config({"settings": "epochs"})


def test_a_run_config_says_where_results_go() -> None:
    run, settings = read({"out": "there", "checkpoint-every": 5, "preset": "", "epochs": 2})
    assert (run.out, run.checkpoint_every, run.preset) == ("there", 5, None)
    assert settings == {"epochs": 2, "options": {}}
    with pytest.raises(SettingsError, match="checkpoint_every is 0: it should be greater than or equal to 1"):
        read({"checkpoint-every": 0})


def test_lists_are_read_from_text() -> None:
    assert lists() == {"split", "pixels", "without", "ranges", "categories", "numbers", "hidden", "deprived", "decimal",
                       "missing_marks", "categorical", "bands", "class_weights", "metrics", "edges", "scalings",
                       "quantities", "gap_among", "answers"}


@for_each(("name", "expected"), [
    ("learning_rate", ["Learning rate of the optimiser.", "allowed: number > 0", "default: 0.01"]),
    ("clients", ["allowed: whole number >= 1", "not set by default"]),
    ("noise", ["allowed: gaussian, discrete", "default: gaussian"]),
    ("trust", ["allowed: central, distributed, local", "default: central"]),
    ("split", ["allowed: list of 3 (number >= 0, <= 1)", "default: [0.7, 0.1, 0.2]"]),
    ("ranges", ["allowed: table of two numbers by column, the smaller first"]),
    ("favourable", ["allowed: whole number or text"]),
    ("seed", ["chosen by --seed or --seeds"]),
    ("steps", ["steps replaces epochs"]),
    ("epochs", ["steps replaces epochs"]),
    ("options.max_bound", ["of the strategy dpsgd-f", "of the strategy dpsgd-f-quantile", "number >= 1"]),
    ("dpsgd-f", ["Options of dpsgd-f", "options.bounds", "options.noise_at"]),
    ("gs-dp-sgd-to", ["gs-dp-sgd-to has no options of its own"]),
    ("sgd", ["sgd has no options of its own"]),
    ("options", ["The strategy's own options", "Options of fairlens", "options.gamma1"])])
def test_a_setting_or_a_strategy_is_described(name: str, expected: list[str]) -> None:
    said = printed(name)
    assert [words for words in expected if words not in said] == []


@pytest.mark.parametrize(("name", "expected"), [
    ("lerning_rate", "unknown setting 'lerning_rate': did you mean 'learning_rate'"),
    ("options.max_bond", "unknown setting 'options.max_bond': did you mean 'options.max_bound'"),
    ("dpsgdf", "unknown setting 'dpsgdf'")])
def test_an_unknown_name_gives_the_nearest(name: str, expected: str) -> None:
    result = CliRunner().invoke(app, ["settings", name])
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())


def test_a_method_in_a_file_describes_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half_clip.py").write_text(
        "from pydantic import Field\nfrom strategies.dpsgd import Dpsgd\n\nclass HalfClip(Dpsgd):\n"
        "    class Options(Dpsgd.Options):\n        share: float = Field(default=0.5, "
        "description='Share that is kept.')\n")
    assert "Share that is kept." in printed("half-clip")


def test_marks_name_settings() -> None:
    assert set(marked(Experiment, "replaces").items()) == {
        ("steps", "epochs"), ("target_epsilon", "noise_multiplier"), ("sampling_rate", "batch_size")}
    assert set(marked(Experiment, "chosen_by")) == {"dataset", "strategy", "seed"}
    assert "steps" in marked(Training, "decided_by_app")
    assert "split" in marked(Task, "records")
    assert marked(Task, "unheard-of") == {}


def test_options_stand_by_strategy() -> None:
    options = options_by_strategy()
    assert "sgd" not in options
    assert {setting.name for setting in options["fairlens"]} == {"options.gamma1", "options.gamma2"}


def test_the_names_that_are_completed_are_those_of_all_settings() -> None:
    assert sorted(SETTINGS) == sorted(Experiment.model_fields)
