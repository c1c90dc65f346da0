"""Bad input gets one clear sentence, and no traceback."""

from __future__ import annotations

import errno
import os
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.protocol import task_data
from fedfair.protocol.task import Task
from simulations import Experiment
from simulations.cli import app
from simulations.settings.experiment import SettingsError
from tests.for_each import for_each
from tests.simulations.watched_runs import forbid_runs

FAST = ["--set", "epochs=0.5", "--set", "hidden=[8]"]


def error_of(*arguments: str) -> str:
    """Return what a command prints when it fails, after how far it came: one sentence, with exit code 2."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    message = " ".join(line for line in result.stderr.splitlines() if " %" not in line and line[:9] != "preparing")
    message = " ".join(message.split())
    assert message.startswith("Error: ")
    return message


@for_each(("arguments", "expected"), [
    (["--dataset", "adlt"], "unknown data set 'adlt': did you mean 'adult'?"),
    (["--strategy", "dpsgdf"], "unknown strategy 'dpsgdf': did you mean 'dpsgd-f'"),
    (["--engine", "lokal"], "unknown engine 'lokal': did you mean 'local'?"),
    (["--preset", "yang"], "unknown preset 'yang': did you mean 'yang2024'?"),
    (["--set", "model=mpl"], "unknown model 'mpl': did you mean 'mlp'?"),
    (["--set", "learning_rat=1"], "unknown setting 'learning_rat': did you mean 'learning_rate' or 'sampling_rate'?"),
    (["--set", "options.bound=5"], "options of dpsgd-f: unknown setting 'bound': did you mean 'bounds'"),
    (["--set", "options.bounds=mine"], "options of dpsgd-f: bounds is 'mine': it should be 'paper', 'authors', "
     "'printed' or 'floored'"),
    (["--set", "options=5"], "options is 5: give a strategy's own settings by name"),
    (["--set", f"epochs={'[' * 5000}{']' * 5000}"], "epochs is '[[[["),
    (["--set", f"epochs={'[' * 20}{']' * 20}"], "epochs is [[[["),
    (["--set", "options=" + "{a=" * 40 + "1" + "}" * 40], "options is '{a={a="),
    (["--set", "clip_norm=-1"], "clip_norm is -1: it should be greater than 0"),
    (["--set", "clip_norm=nan"], "clip_norm is nan: it should be"),
    (["--set", "noise_multiplier=-0.5"], "noise_multiplier is -0.5: it should be greater than or equal to 0"),
    (["--set", "noise_multiplier=nan"], "noise_multiplier is nan"),
    (["--set", "learning_rate=0"], "learning_rate is 0: it should be greater than 0"),
    (["--set", "learning_rate=nan"], "learning_rate is nan"),
    (["--set", "momentum=1"], "momentum is 1: it should be less than 1"),
    (["--set", "momentum=0.5", "--set", "optimizer=adam"], "optimizer is 'adam', which has none: take sgd"),
    (["--set", "pixels=[0.1, 0.3]"], "pixels is [0.1, 0.3], but the records of digits are not images: leave it out"),
    (["--set", "pixels=[0.1, 0]"], "pixels.1 is 0: it should be greater than 0"),
    (["--set", "favourable=-1"], "favourable is -1: give the number of a class, 0, 1, ..., or the name that"),
    (["--set", "favourable=1.5"], "favourable is 1.5: give the number of a class"),
    (["--set", "favourable=ten"], "unknown favourable class 'ten': known are 0, 1, 2"),
    (["--set", "favourable=10"], "favourable is 10, but there are 10 classes: it must be one of 0..9, or a class's"),
    (["--set", "delta=0"], "delta is 0: it should be greater than 0"),
    (["--set", "delta=1"], "delta is 1: it should be less than 1"),
    (["--set", "split=[0.5, 0.5, 0.5]"], "the shares of train, valid and test must sum to 1"),
    (["--set", "split=[0.5, 0.5]"], "split is [0.5, 0.5]: a value is missing"),
    (["--set", "hidden=8"], "hidden is 8: it should be a list, for example hidden = [8]"),
    (["--set", "imbalance=8"], 'imbalance is 8: it should be a text, for example imbalance = "8"'),
    (["--set", "trust=everybody"], "trust is 'everybody': it should be 'central', 'distributed' or 'local'"),
    (["--set", "device=abacus"], "device 'abacus' cannot be used here"),
    (["--set", "balance=even"], "unknown balance of digits 'even'"),
    (["--set", "epochs"], "'epochs' is not a setting: write key=value"),
    (["--set", "batch_size=9999"], "batch_size is 9999, but there are only"),
    (["--set", "target_epsilon=0.1", "--set", "count_noise_multiplier=0.5"], "target_epsilon 0.1 cannot be reached"),
    (["--set", "target_epsilon=3", "--set", "noise_multiplier=5"], "is given as well, 5: leave one of the two out"),
    (["--set", "noise_multiplier=5", "--set", "target_epsilon=3"], "is given as well, 5: leave one of the two out"),
    (["--set", "epochs=3", "--set", "steps=5"], "steps is 5, which takes the place of epochs, but that is given as"),
    (["--set", "imbalance=8:0"], "group '8' has no record in the training part"),
    (["--set", "imbalance=eight"], "imbalance is 'eight': write GROUP:RECORDS"),
    (["--set", "imbalance=11:5"], "unknown group '11'"),
    (["--set", "model=lenet", "--set", "hidden=[]"], "this model needs images of at least 16 x 16 pixels"),
    (["--set", "model=logistic"], "model logistic has no hidden layers, but hidden is [8]"),
    (["--csv", "nowhere.csv", "--label", "y", "--group", "g"], "there is no file nowhere.csv"),
    (["--csv", "nowhere.csv"], "give label and group"),
])
def test_a_wrong_setting(arguments: list[str], expected: str) -> None:
    assert expected in error_of("run", *FAST, *arguments)


def test_of_several_strategies_those_whose_settings_are_wrong_are_named() -> None:
    threshold = ["--set", "threshold_epsilon=9", "--set", "split=[0.7,0.1,0.2]"]
    message = error_of("compare", "--strategies", "sgd,dpsgd-p,dpsgd-f", "--seeds", "1", *threshold)
    assert message.count("threshold_epsilon is 9") == 2
    assert "Error: sgd: threshold_epsilon is 9" in message
    assert "; dpsgd-f: threshold_epsilon is 9" in message
    assert "dpsgd-p:" not in message
    alike = error_of("compare", "--strategies", "sgd,dpsgd-p", "--seeds", "1", "--set", "delta=0")
    assert alike.startswith("Error: delta is 0: it should be greater than 0")
    assert alike.count("delta is 0") == 1


@for_each("command", ["run", "compare", "curve", "audit"])
@for_each(("setting", "expected"), [
    ("seed=3", "seed is 3 among the settings, but it is chosen by --seed or --seeds, or by seeds in a sweep"),
    ("strategy=sgd", "strategy is 'sgd' among the settings, but it is chosen by --strategy or --strategies"),
    ("dpsgd.dataset=compas", "dataset is 'compas' among the settings, but it is chosen by --dataset, or by datasets"),
    ("options=3", "options is 3: give a strategy's own settings by name, for example options.max_bound=4"),
    ("dpsgd=3", "unknown setting 'dpsgd'"),
])
def test_a_setting_that_is_chosen_in_another_way(command: str, setting: str, expected: str) -> None:
    named = "--strategy" if command in ("run", "audit") else "--strategies"
    assert expected in error_of(command, named, "dpsgd", "--set", setting)


@pytest.mark.parametrize("attack", ["canaries", "membership"])
def test_a_run_without_steps_cannot_be_attacked(attack: str) -> None:
    assert "steps is 0: a run without steps releases nothing that could be attacked" in error_of(
        "audit", "--attack", attack, "--set", "steps=0")


@pytest.mark.parametrize("command", ["compare", "curve"])
def test_what_does_not_fit_one_method_is_said_before_any_runs(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_runs(monkeypatch, "a run began")
    assert "batch_size is 99999, but there are only" in error_of(
        command, "--dataset", "digits", "--preset", "digits", "--strategies", "sgd,dpsgd", "--set",
        "dpsgd.batch_size=99999")


@pytest.mark.parametrize("command", ["run", "compare", "curve"])
def test_a_data_set_is_named_once(command: str) -> None:
    assert "but it is chosen by --dataset" in error_of(command, "--set", "dataset=compas")


@pytest.mark.parametrize("command", ["run", "compare"])
def test_the_number_of_nodes_is_no_setting_of_an_engine(command: str) -> None:
    assert "nodes is 2 among the engine's settings, but it is chosen by --nodes" in error_of(
        command, "--engine-set", "nodes=2")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a small file of the user's own."""
    path = tmp_path / "own.csv"
    rows = [f"{i % 7},{'ab'[i % 2]},{'xyz'[i % 3]},{int(i % 5 > 1)}" for i in range(120)]
    path.write_text("\n".join(["size,kind,group,label", *rows]))
    return path


def own(table: Path) -> list[str]:
    return ["--csv", str(table), "--label", "label", "--group", "group", "--set", "batch_size=16"]


def test_a_file_of_ones_own_runs(table: Path) -> None:
    result = CliRunner().invoke(app, ["run", *FAST, *own(table)])
    assert result.exit_code == 0, result.output
    assert "own: test accuracy by group" in result.output


@pytest.mark.parametrize(("change", "expected"), [
    (lambda text: text[: len(text) // 2] + ',"', "is not a complete CSV file"),
    (lambda text: "", "is not a complete CSV file"),
    (lambda text: text.replace("x", "y").replace("z", "y"), "column 'group' has the single value 'y'"),
    (lambda text: text.replace("3,", ",", 1), "the table has missing values in size"),
    (lambda text: text.replace("group", "grupp", 1), "unknown column 'group': did you mean 'grupp'?"),
])
def test_a_file_that_cannot_be_used(table: Path, change: object, expected: str) -> None:
    table.write_text(change(table.read_text()))  # type: ignore[operator]
    assert expected in error_of("run", *FAST, *own(table))


def test_a_group_with_one_record_and_a_client_without_some_group_are_fine() -> None:
    for strategy in ("sgd", "dpsgd-f", "dpsgd-global-adapt", "gs-dp-sgd"):
        result = CliRunner().invoke(app, ["run", *FAST, "--strategy", strategy, "--set", "imbalance=8:1"])
        assert result.exit_code == 0, result.output


def test_a_data_file_with_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dutch.csv").write_text("sex,occupation\nmale,1\n")
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    task_data.forget()  # what another test read
    assert "is truncated or changed; replace it" in error_of("data", "fetch", "dutch")
    assert "adult.data is not in FEDFAIR_DATA_DIR" in error_of("data", "fetch", "adult")


def test_a_folder_that_holds_a_different_experiment(tmp_path: Path) -> None:
    arguments = ["run", *FAST, "--out", str(tmp_path / "out")]
    for _ in range(2):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    before = (tmp_path / "out" / "config.toml").read_text()
    assert "holds a different experiment" in error_of(*arguments, "--set", "clip_norm=2")
    assert (tmp_path / "out" / "config.toml").read_text() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    assert "holds no experiment" in error_of("run", *FAST, "--out", str(tmp_path / "other"))
    assert (tmp_path / "other" / "letter.txt").exists()


def _refuse_in(folder: Path, dir: Path) -> BytesIO:
    """Take the place of `TemporaryFile` where nothing may be changed in a folder."""
    if dir == folder:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return BytesIO()


@pytest.mark.parametrize("command", [["run"], ["compare", "--strategies", "sgd,dpsgd", "--seeds", "1"], ["curve"],
                                     ["audit"]])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_computed(
        command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "data", lambda task: pytest.fail("this is work"))
    (tmp_path / "file").write_text("")
    expected = f"cannot be written, because {tmp_path / 'file'} is a file: choose another"
    assert expected in error_of(*command, "--out", str(tmp_path / "file" / "x"))
    monkeypatch.setattr("simulations.files.atomic_files.TemporaryFile", partial(_refuse_in, tmp_path))
    expected = f"cannot be written, because nothing may be changed in {tmp_path} (permission denied): choose another"
    assert expected in error_of(*command, "--out", str(tmp_path / "new" / "x"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("command", [["run"], ["compare", "--strategies", "sgd,dpsgd", "--seeds", "1"]])
def test_a_folder_whose_place_no_other_can_take_is_refused_before_anything_is_computed(
        command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "data", lambda task: pytest.fail("this is work"))
    monkeypatch.chdir(tmp_path)
    assert "cannot be the folder that you are in: name one in it" in error_of(*command, "--out", ".")
    (tmp_path / "out").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_mount", lambda path: path == tmp_path / "out")
        assert "cannot be the folder where a disk is mounted: name one in it" in error_of(*command, "--out", "out")
    monkeypatch.setattr("simulations.files.atomic_files.TemporaryFile", partial(_refuse_in, tmp_path))
    assert f"because nothing may be changed in {tmp_path}" in error_of(*command, "--out", "out")


def test_a_file_of_findings_that_cannot_be_written_is_refused_before_anything_is_computed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "data", lambda task: pytest.fail("this is work"))
    assert f"{tmp_path} is a folder: name a file in it" in error_of("audit", "--out", str(tmp_path))


def test_a_client_whose_values_are_not_finite() -> None:
    message = error_of("run", "--strategy", "sgd", "--set", "learning_rate=1e20", "--set", "weight_decay=10", "--set",
                       "epochs=20")
    assert "has a gradient that is not finite" in message
    assert "client " in message


def test_an_experiment_is_frozen_and_says_all_that_is_wrong_with_it() -> None:
    with pytest.raises(SettingsError, match=r"clip_norm is -1.*; .*delta is 2"):
        Experiment(clip_norm=-1, delta=2)
    with pytest.raises(ValueError, match="frozen"):
        Experiment().seed = 3  # type: ignore[misc]


@pytest.mark.parametrize("command", [["report", "DONE", "--out", "/proc/x.html"], ["audit", "--out", "/proc/x/a.json"],
                                     ["run", *FAST, "--out", "/proc/x"], ["report", "DONE", "--figures", "/proc/x"]])
def test_where_nothing_can_be_written_is_a_sentence(command: list[str], tmp_path: Path) -> None:
    """For the superuser the system reports everything as writable, until something is written."""
    if "DONE" in command:
        assert CliRunner().invoke(app, ["run", *FAST, "--out", str(tmp_path)]).exit_code == 0
    said = error_of(*(str(tmp_path) if part == "DONE" else part for part in command))
    assert "in use" not in said
    assert "Errno" not in said
    assert "/proc" in said
