"""A run that is stopped anywhere and resumed gives the weights, ledger and metrics of an undisturbed run."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from simulations import Experiment, run
from simulations.benchmarks.kills import different
from simulations.engines import resume as module
from simulations.engines.checkpoint import Checkpoint
from simulations.results.result import Result
from strategies import STRATEGIES
from strategies.server.releases.threshold_search import ThresholdSearch
from tests.for_each import for_each
from tests.simulations.kills import killed_in_the_middle
from tests.strategies.test_contract import ONE_ROUND

OPTIONS: dict[str, dict[str, Any]] = {
    "dpsgd-global": {"bound": 5.0}, "dpsgd-global-adapt": {"bound": 5.0}, "dp-fedavg": {"quantile": 0.5},
    "fair-dp": {"late_share": 0.5}}
TWO_GROUPS = ("fairlens",)
MODES = [(name, sync) for name in STRATEGIES if name not in (*TWO_GROUPS, *ONE_ROUND)
         for sync in STRATEGIES[name].modes]


class Stopped(BaseException):
    """Exception that stops a run; nothing in the program catches it."""


def experiment(strategy: str, **settings: Any) -> Experiment:
    return Experiment(**{"strategy": strategy, "split": (0.2, 0.0, 0.8), "imbalance": "8:5", "hidden": (8,),
                         "clip_norm": 1.0, "steps": 6, "batch_size": 32, "delta": 1e-4, "learning_rate": 0.1,
                         "options": OPTIONS.get(strategy, {}), "eval_every": 0.2, "accountant": "rdp", **settings})


def place(made: Experiment, folder: Path, every: int = 2) -> Checkpoint:
    return Checkpoint(folder, made.settings(), every)


def own_table(file: Path, records: int = 400) -> Path:
    """Write a table of records with one number, and return its file."""
    rows = [f"{i % 7},{'ab'[i % 2]},{i % 3 % 2}" for i in range(records)]
    file.write_text("\n".join(["x,group,label", *rows]))
    return file


def stopping_at(round_: int) -> Any:
    def progress(done: int, rounds: int) -> None:
        if done == round_:
            raise Stopped

    return progress


def stopped(made: Experiment, checkpoint: Checkpoint, *rounds: int) -> None:
    """Stop a run in each of these rounds, one after another, each time going on from the checkpoint."""
    for each in rounds:
        with pytest.raises(Stopped):
            run(made, progress=stopping_at(each), checkpoint=checkpoint)


def same(a: Result, b: Result) -> bool:
    pd.testing.assert_frame_equal(a.metrics, b.metrics)
    return a.ledger.events == b.ledger.events and all(
        torch.equal(p, q) for p, q in zip(a.model.parameters(), b.model.parameters(), strict=True))


@pytest.mark.parametrize(("strategy", "sync"), MODES)
def test_a_run_stopped_twice_and_resumed_equals_one_that_was_not(strategy: str, sync: str, tmp_path: Path) -> None:
    kept = {("dpsgd", "step"): {"optimizer": "adam"}, ("dpsgd-f", "step"): {"optimizer": "rmsprop"},
            ("sgd", "step"): {"momentum": 0.5}}.get((strategy, sync), {})
    made = experiment(strategy, sync=sync, **kept)
    stopped(made, place(made, tmp_path / "run"), 3, 5)
    rounds: list[int] = []
    resumed = run(made, progress=lambda done, _: rounds.append(done), checkpoint=place(made, tmp_path / "run"))
    assert rounds == [5, 6]
    assert same(resumed, run(made))


def test_wherever_a_run_is_stopped(tmp_path: Path) -> None:
    made = experiment("dpsgd-global-adapt")
    undisturbed = run(made)
    for stop in range(1, 7):
        stopped(made, place(made, tmp_path / str(stop), every=1), stop)
        assert same(run(made, checkpoint=place(made, tmp_path / str(stop), every=1)), undisturbed)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("randomness", ["seeded", "system"])
def test_the_result_takes_the_place_of_the_checkpoint_also_in_an_empty_folder(randomness: str, there: bool,
                                                                              tmp_path: Path) -> None:
    made, folder = experiment("dpsgd", randomness=randomness), tmp_path / "run"
    if there:
        folder.mkdir()
    stopped(made, place(made, folder), 5)
    assert {file.name for file in folder.iterdir()} == {"config.toml", "checkpoint.pt"}
    run(made, checkpoint=place(made, folder)).save(folder)
    assert (folder / "summary.csv").is_file()
    assert not (folder / "checkpoint.pt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_whose_replacement_was_killed_half_way_comes_back_with_its_checkpoint(tmp_path: Path) -> None:
    made, folder = experiment("dpsgd"), tmp_path / "out"
    stopped(made, place(made, folder), 5)
    folder.rename(tmp_path / ".out.fedfair-old")
    found = place(made, folder).read()
    assert found is not None
    assert found[0] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_stays_a_link_to_the_folder_of_the_results(tmp_path: Path) -> None:
    made = experiment("dpsgd")
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk/real")
    for _ in range(2):
        run(made, checkpoint=place(made, tmp_path / "link")).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "real" / "summary.csv").is_file()
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_dir()) == ["disk", "link", "real"]


def test_what_somebody_put_in_a_folder_or_beside_it_stays_and_the_checkpoint_goes(tmp_path: Path) -> None:
    made, folder = experiment("dpsgd"), tmp_path / "run"
    run(made).save(folder)
    for beside in (".run.old", ".run.new", "run/figures"):
        (tmp_path / beside).mkdir()
    (folder / "raw").symlink_to("/nowhere")
    for name, text in (("notes.txt", "mine"), ("figures/one.svg", "drawn"), ("checkpoint.pt", "old"),
                       ("summary.csv", "spoilt")):
        (folder / name).write_text(text)
    before = sorted(path.name for path in folder.iterdir())
    run(made).save(folder)
    assert sorted(path.name for path in folder.iterdir()) == [name for name in before if name != "checkpoint.pt"]
    assert (folder / "raw").is_symlink()
    assert (folder / "notes.txt").read_text() + (folder / "figures" / "one.svg").read_text() == "minedrawn"
    assert (folder / "summary.csv").read_text() != "spoilt"
    assert {path.name for path in tmp_path.iterdir()} == {"run", ".run.old", ".run.new"}


def test_two_runs_at_one_folder_never_go_on_from_each_others_checkpoint(tmp_path: Path) -> None:
    quiet, loud = experiment("dpsgd", noise_multiplier=4.0), experiment("dpsgd", noise_multiplier=0.5)
    begun = place(loud, tmp_path / "run")
    assert begun.read() is None
    stopped(quiet, place(quiet, tmp_path / "run"), 3)
    with pytest.raises(FileExistsError, match="holds a different experiment"):
        begun.write(2, {})
    stopped(loud, place(loud, tmp_path / "other"), 3)
    (tmp_path / "other" / "checkpoint.pt").replace(tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(ValueError, match="was written by a run with other settings, at the same time"):
        run(quiet, checkpoint=place(quiet, tmp_path / "run"))


def test_a_run_does_not_go_on_with_a_file_that_has_changed(tmp_path: Path) -> None:
    table = own_table(tmp_path / "own.csv")
    made = experiment("dpsgd", csv=str(table), label="label", group="group", imbalance="")
    stopped(made, place(made, tmp_path / "run"), 3)
    table.write_text(table.read_text().replace("1,a,0", "1,a,1"))
    with pytest.raises(ValueError, match=r"own\.csv has changed since"):
        run(made, checkpoint=place(made, tmp_path / "run"))


def test_a_checkpoint_of_another_experiment_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    made = experiment("dpsgd")
    run(made, checkpoint=place(made, tmp_path / "run"))
    other = experiment("dpsgd", learning_rate=0.2)
    with pytest.raises(FileExistsError, match="holds a different experiment"):
        run(other, progress=stopping_at(1), checkpoint=place(other, tmp_path / "run"))


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not on the server's machine has no digest there; its groups and numbers of records reveal it."""
    monkeypatch.setattr(Checkpoint, "_csv", "")
    table = own_table(tmp_path / "own.csv")
    made = Experiment(csv=str(table), label="label", group="group", batch_size=16, steps=4)
    run(made, checkpoint=place(made, tmp_path / "run"))
    own_table(table, 410)
    with pytest.raises(ValueError, match="the checkpoint was written for other data"):
        run(made, checkpoint=place(made, tmp_path / "run"))


@for_each(("spoil", "message"), [
    (lambda file: file.write_bytes(file.read_bytes()[:500]), "is damaged: remove it to start the run again"),
    (lambda file: torch.save({"round": 2, "state": {}}, file),
     "was written by another version of fedfair: go on with that")])
def test_a_checkpoint_that_cannot_be_read_says_why(spoil: Callable[[Path], object], message: str, tmp_path: Path
                                                   ) -> None:
    made = experiment("dpsgd")
    file = tmp_path / "run" / "checkpoint.pt"
    file.unlink(missing_ok=True)
    run(made, checkpoint=place(made, tmp_path / "run"))
    spoil(file)
    with pytest.raises(ValueError, match=rf"checkpoint\.pt {message}"):
        run(made, checkpoint=place(made, tmp_path / "run"))


@pytest.mark.parametrize(("every", "expected"), [(None, [100]), (100, [100, 200, 300]), (150, [150, 300])])
def test_slow_checkpoints_are_rare_unless_their_number_is_asked_for(
        every: int | None, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write takes a second here, so another one is not worth it in the 49 rounds that follow."""
    made, now, written = experiment("dpsgd", steps=400, eval_every=1000), [0.0], []

    def write(self: Checkpoint, done: int, saved: Mapping[str, Any]) -> None:
        written.append(done)
        now[0] += 1

    monkeypatch.setattr(Checkpoint, "write", write)
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    run(made, progress=lambda *_: now.__setitem__(0, now[0] + 0.1),
        checkpoint=Checkpoint(tmp_path / "run", made.settings(), every))
    assert written == expected


def test_a_method_that_keeps_what_a_checkpoint_cannot_hold_is_told_so(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(self: Any) -> None:
        self.friend = Stopped()

    monkeypatch.setattr(STRATEGIES["dpsgd"], "prepare", prepare)
    monkeypatch.setattr(STRATEGIES["dpsgd"], "state", ("friend",))
    made = experiment("dpsgd")
    with pytest.raises(ValueError, match="plain values and tensors, but the strategy's `state` names something else"):
        run(made, checkpoint=place(made, tmp_path / "run"))


def test_a_second_run_in_the_same_folder_is_refused_until_the_first_is_over(tmp_path: Path) -> None:
    """Both would release noise of their own, and one ledger would be kept."""
    made, refused = experiment("dpsgd", randomness="system"), []

    def second(done: int, rounds: int) -> None:
        """Start a second run in the middle of the first."""
        with pytest.raises(BlockingIOError, match="run is in use by another run: wait until that is done, or choose"):
            run(made, checkpoint=place(made, tmp_path / "run"))
        refused.append(done)

    run(made, checkpoint=place(made, tmp_path / "run"), progress=second)
    assert refused == [1, 2, 3, 4, 5, 6]
    run(made, checkpoint=place(made, tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_lock_of_a_run_that_was_killed_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / ".run.lock").touch()
    made = experiment("dpsgd")
    run(made, checkpoint=place(made, tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.simulations.engines.test_checkpoint import experiment, place, run
made = experiment("dpsgd", hidden=(int(sys.argv[2]),))
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))  # stands for the end of the disk
try:
    run(made, checkpoint=place(made, Path(sys.argv[1])))
except OSError as error:
    print(error)
"""


def test_a_full_disk_ends_the_run_in_one_sentence_and_keeps_the_latest_checkpoint(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path / "run"), "400"], capture_output=True,
                          text=True, check=False)
    assert "could not be written" in done.stdout, done.stderr
    assert "is the disk full? The run stopped; run it again" in done.stdout
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.toml"]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "kills"), [
    (["local"], 2),
    (["ray", "--nodes", "2", "--engine-set", "cpus=0.5"], 1)])
def test_sigkill_at_random_moments(engine: list[str], kills: int, tmp_path: Path, forked: Path) -> None:
    def command(out: str) -> list[str]:
        return [str(forked / "fedfair"), "run", "--dataset", "digits", "--set", "steps=200", "--set", "hidden=[8]",
                "--out", str(tmp_path / out), "--checkpoint-every", "20", "--engine", *engine]

    def progress() -> int:
        """Return when the latest checkpoint was written; 0 if there is none, as before the first and after the end."""
        with suppress(FileNotFoundError):
            return (tmp_path / "killed" / "checkpoint.pt").stat().st_mtime_ns
        return 0

    subprocess.run(command("whole"), check=True, capture_output=True)
    assert killed_in_the_middle(command("killed"), kills, progress, random.Random(0)) > 0  # noqa: S311
    assert different(tmp_path / "whole", tmp_path / "killed") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


@pytest.mark.parametrize("sync", ["step", "epoch"])
@pytest.mark.parametrize("strategy", ["dpsgd", "dpsgd-f", "gs-dp-sgd"])
def test_with_other_noise_a_round_that_may_be_lost_is_charged_twice(strategy: str, sync: str, tmp_path: Path) -> None:
    """Hazard 12: stopped in the first round and in the third, whose updates may have been seen."""
    made = experiment(strategy, sync=sync, randomness="system", steps=4)
    checkpoint = place(made, tmp_path / "run", every=4)
    stopped(made, checkpoint, 1, 3)
    resumed, whole = run(made, checkpoint=checkpoint), run(made)
    assert sum(resumed.ledger.events.values()) == pytest.approx(sum(whole.ledger.events.values()) * 6 / 4)
    assert resumed.ledger.epsilon() > whole.ledger.epsilon()
    for group, value in resumed.ledger.guaranteed_by_group().items():
        assert value > whole.ledger.guaranteed_by_group()[group]


@pytest.mark.parametrize("stop", [1, 3])
def test_a_round_interrupted_many_times_is_charged_as_often(stop: int, tmp_path: Path) -> None:
    made = experiment("dpsgd-f", randomness="system", trust="local", steps=4)
    checkpoint = place(made, tmp_path / "run")
    stopped(made, checkpoint, *[stop] * 5)
    assert sum(run(made, checkpoint=checkpoint).ledger.events.values()) == 4 + 5


def test_a_search_interrupted_many_times_is_charged_as_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search has other noise, and four of them are one with half of it."""
    made = experiment("dpsgd", randomness="system", split=(0.2, 0.4, 0.4), favourable=1, threshold="toc",
                      threshold_epsilon=1.0, steps=2)
    checkpoint = place(made, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(ThresholdSearch, "choose", lambda *_: (_ for _ in ()).throw(Stopped))
        for _ in range(3):
            with pytest.raises(Stopped):
                run(made, checkpoint=checkpoint)
    result = run(made, checkpoint=checkpoint)
    assert result.ledger.held_out["valid"].multiplier == pytest.approx(result.search.multiplier / 2)
    assert result.ledger.held_out_epsilon("valid") > 2 * run(made).ledger.held_out_epsilon("valid")


def test_interrupted_rounds_stay_within_a_budget_by_group_or_end_the_run(tmp_path: Path) -> None:
    made = experiment("dpsgd-f", randomness="system", steps=6, group_epsilon=3.0, noise_multiplier=2.0,
                      options={"max_bound": 4})
    checkpoint = place(made, tmp_path / "run")
    stopped(made, checkpoint, 1, 2, 2, 4)
    ledger = run(made, checkpoint=checkpoint).ledger
    assert sum(ledger.events.values()) == 6 + 4
    assert max(ledger.guaranteed_by_group().values()) <= 3.0
    last = place(made, tmp_path / "last")
    stopped(made, last, 6)
    with pytest.raises(ValueError, match="group_epsilon 3 leaves too little for the 1 still to come"):
        run(made, checkpoint=last)
