"""A comparison or a curve that is stopped, killed or fails keeps its finished runs, and the same command goes on."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from simulations.benchmarks.kills import FEDFAIR, different
from simulations.cli import app
from simulations.engines import stacked
from simulations.plans.compare import compare, experiments, in_parallel
from simulations.plans.kept_runs import RunFolders, kept_runs
from simulations.results.result import Result, save_comparison
from simulations.results.result_folder import RUNS_SO_FAR
from simulations.settings.experiment import Experiment
from strategies.server.releases.front import MeasuredFront
from tests.guard import wait_until
from tests.simulations.watched_runs import forbid_runs, watch_runs

GATED = """
from multiprocessing import parent_process
from time import sleep
from strategies.dpsgd import Dpsgd

class Gated(Dpsgd):
    def rule(self):
        while parent_process():
            sleep(0.05)
        return super().rule()
"""


class Stopped(BaseException):
    """Exception that stops a comparison; nothing in the program catches it."""


def stopping_at(run: int) -> Any:
    def on_round(done: int, *_: object) -> None:
        if done == run:
            raise Stopped

    return on_round


def same(one: Result, other: Result) -> bool:
    pd.testing.assert_frame_equal(one.metrics, other.metrics)
    return (one.ledger.to_dict() == other.ledger.to_dict() and one.threshold == other.threshold
            and one.description == other.description and same_front(one.front, other.front)
            and all(map(torch.equal, one.model.parameters(), other.model.parameters())))


def same_front(one: MeasuredFront | None, other: MeasuredFront | None) -> bool:
    if one is None or other is None:
        return one is other
    keys = ["point", "split", "group", "metric"]
    first, second = (pd.DataFrame(made.rows).sort_values(keys, ignore_index=True) for made in (one, other))
    pd.testing.assert_frame_equal(first, second)
    return one.front.points == other.front.points and torch.equal(one.front.weights, other.front.weights)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_front_is_kept_and_comes_back_from_another_process(jobs: int, tmp_path: Path) -> None:
    planned = experiments(["moments"], [0, 1], None, {"features": "pixels", "model": "linear", "target_epsilon": 4.0})
    whole = compare(planned)
    assert whole[0].front is not None
    made = in_parallel(planned, jobs=jobs, kept=RunFolders(tmp_path / "out", {}))
    assert all(map(same, made, whole))
    save_comparison(made, {}, tmp_path / "whole")
    again = compare(planned, kept=RunFolders(tmp_path / "out", {}), on_round=lambda *_: pytest.fail("this is a run"))
    assert all(map(same, again, whole))
    save_comparison(again, {}, tmp_path / "out")
    for name in ("front.parquet", "front.safetensors", "metrics.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("strategies", [["sgd", "dpsgd"], ["gs-dp-sgd-to", "dpsgd-p"]])
def test_a_stopped_comparison_goes_on_and_equals_an_undisturbed_one(
        strategies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "MOST", 1)
    settings: dict[str, Any] = {"hidden": [8], "steps": 3, "favourable": "1", "split": [0.6, 0.2, 0.2]}
    planned, folder = experiments(strategies, [0, 1], None, settings), tmp_path / "out"
    with pytest.raises(Stopped):
        compare(planned, on_round=stopping_at(3), kept=RunFolders(folder, settings))
    assert {path.name for path in folder.iterdir()} == {"config.toml", RUNS_SO_FAR}
    assert len(list((folder / RUNS_SO_FAR).iterdir())) == 3
    made: list[int] = []
    results = compare(planned, on_round=lambda done, runs, *_: made.append(runs), kept=RunFolders(folder, settings))
    assert set(made) == {1}
    monkeypatch.undo()
    assert all(map(same, results, compare(planned)))
    save_comparison(results, settings, folder)
    assert not (folder / RUNS_SO_FAR).exists()
    assert RunFolders(folder, settings).are_done(planned)


def test_what_private_preprocessing_learned_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "MOST", 1)
    file = tmp_path / "own.csv"
    file.write_text("\n".join(["x,colour,group,label", *(
        f"{i % 7},{'red' if i % 3 else 'blue'},{'ab'[i % 2]},{i % 5 % 2}" for i in range(4000))]))
    planned = experiments(["dpsgd"], [0, 1], None, {
        "csv": str(file), "label": "label", "group": "group", "model": "logistic", "steps": 2,
        "preprocessing": "private", "target_epsilon": 8.0, "clip_norm": 1.0, "learning_rate": 0.1})
    with pytest.raises(Stopped):
        compare(planned, on_round=stopping_at(1), kept=RunFolders(tmp_path / "out", {}))
    assert all(map(same, compare(planned, kept=RunFolders(tmp_path / "out", {})), compare(planned)))
    file.write_text(file.read_text() + "\n1,red,a,1")
    with pytest.raises(ValueError, match=r"own\.csv has changed since .*dpsgd-0-\w+ was made: restore it"):
        compare(planned, kept=RunFolders(tmp_path / "out", {}))


def test_a_run_that_was_half_kept_is_made_again(tmp_path: Path) -> None:
    planned = experiments(["sgd"], [0, 1], None, {"hidden": [8], "steps": 2})
    compare(planned, kept=RunFolders(tmp_path / "out", {}))
    (task,) = (tmp_path / "out" / RUNS_SO_FAR).glob("digits-sgd-1-*/task.json")
    task.unlink()
    made: list[str] = []
    compare(planned, on_round=lambda done, runs, name, *_: made.append(name), kept=RunFolders(tmp_path / "out", {}))
    assert set(made) == {"sgd, seed 1"}


def test_a_folder_is_for_one_command_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with kept_runs(out, {}), pytest.raises(BlockingIOError, match="is in use by another run"), kept_runs(out, {}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_that_is_done_says_so_and_shows_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare", "--strategies", "sgd,gs-dp-sgd-to", "--seeds", "2", "--set", "steps=2", "--set", "hidden=[8]",
             "--set", "favourable=1", "--set", "split=[0.6,0.2,0.2]", "--out", str(tmp_path / "out"), "--jobs", "1"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    forbid_runs(monkeypatch, "this is a run")
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0, again.output
    assert again.stdout == first.stdout
    assert "holds this comparison, finished: nothing is run again" in again.stderr
    other = CliRunner().invoke(app, [*words, "--set", "steps=3"][:5] + words[7:])
    assert other.exit_code == 2
    assert "holds a different experiment" in other.stderr


def kept_in(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (folder / RUNS_SO_FAR).glob("*/task.json")}


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGINT])
def test_a_comparison_whose_process_is_killed_goes_on(with_signal: signal.Signals, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gated.py").write_text(GATED)
    words = ["compare", "--strategies", "sgd,gated", "--seeds", "2", "--set", "steps=2", "--set", "hidden=[8]"]
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); " + FEDFAIR[2]
    with subprocess.Popen([*FEDFAIR[:2], program, *words, "--jobs", "2", "--out", "out"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as begun:
        wait_until(lambda: len(kept_in(tmp_path / "out")) == 2 or begun.poll() is not None)
        second = CliRunner().invoke(app, [*words, "--out", "out"])
        begun.send_signal(with_signal)
        said = begun.communicate()[0]
    assert second.exit_code == 2
    assert "out is in use by another run" in second.stderr
    assert with_signal is signal.SIGKILL or "2 of 4 runs are kept in out: the same command goes on" in said
    assert len(kept_in(tmp_path / "out")) == 2
    goes_on, whole = (CliRunner().invoke(app, [*words, "--jobs", "1", "--out", name]) for name in ("out", "whole"))
    assert "out holds 2 of 4 runs: going on with the others" in goes_on.stderr
    assert goes_on.stdout.replace("in out", "in whole") == whole.stdout
    assert different(tmp_path / "out", tmp_path / "whole") == []


def test_a_curve_goes_on_and_says_when_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    words = ["curve", "--dataset", "digits", "--preset", "digits", "--strategies", "dpsgd", "--over",
             "dpsgd.learning_rate=[0.1,0.2,0.3]", "--set", "steps=2", "--set", "hidden=[8]", "--out", str(out)]
    whole = CliRunner().invoke(app, [*words[:-1], str(tmp_path / "whole")])
    made: list[float] = []

    def failing(experiment: Experiment) -> None:
        if len(made) == 2:
            raise ValueError("the lights went out")
        made.append(experiment.learning_rate)

    watch_runs(monkeypatch, failing)
    monkeypatch.setattr(stacked, "MOST", 1)
    failed = CliRunner().invoke(app, words)
    assert failed.exit_code == 2
    assert "2 of 3 runs are kept" in failed.stderr
    assert {path.name for path in out.iterdir()} == {"config.toml", "environment.json", "runs.parquet"}
    other = CliRunner().invoke(app, [*words, "--seeds", "2"])
    assert other.exit_code == 2
    assert "holds a different experiment" in other.stderr
    made.clear()
    again = CliRunner().invoke(app, words)
    assert "holds 2 of 3 runs: going on with the others" in again.stderr
    assert made == [0.3]
    assert again.stdout.replace(str(out), str(tmp_path / "whole")) == whole.stdout
    assert (out / "curves.csv").read_bytes() == (tmp_path / "whole" / "curves.csv").read_bytes()
    done = CliRunner().invoke(app, words)
    assert "holds these curves, finished: nothing is run again" in done.stderr
    assert done.stdout == again.stdout
