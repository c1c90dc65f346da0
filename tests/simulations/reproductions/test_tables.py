"""A small published table from beginning to end, and the runs that are kept for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image as Pillow
from typer.testing import CliRunner

from simulations.cli import app
from simulations.engines import stacked
from simulations.engines.run import Progress, run
from simulations.files.atomic_files import alone_in
from simulations.plans.compare import compare, experiments
from simulations.plans.kept_runs import RUNS, RunFile
from simulations.reproductions import request as requests
from simulations.reproductions.cells import Statistics, compared
from simulations.reproductions.markdown import report
from simulations.reproductions.published import load, plan, why_missing
from simulations.reproductions.request import Kept, Request, kept_runs
from simulations.reproductions.tables import reproduce
from simulations.results.environment import program_version
from simulations.results.result import identified
from simulations.settings.experiment import Experiment
from tests.simulations.watched_runs import forbid_runs, watch_runs

NAME = "nobody2026-table1"
OF_TABLE = {"dataset": "digits", "hidden": [6], "epochs": 1, "imbalance": "", "eval_every": 5}
SETTINGS = {**OF_TABLE, "split": [0.5, 0.0, 0.5]}

TOML = """
title = "Nobody 2026, Table 1"
preset = "digits"
seeds = 2
published_seeds = 3
spread = "standard deviation"
percent = ["accuracy"]
orders = ["privacy_cost_gap"]
departures = ["Another network."]
pairs = { Digits = ["2", "8"] }
[datasets]
Digits = { dataset = "digits", hidden = [6], epochs = 1, imbalance = "", eval_every = 5 }
Nowhere = { missing = "it is lost" }
[methods]
Plain = { strategy = "sgd" }
"Private (C = 1)" = { strategy = "dpsgd" }
"Private (C = 2)" = { strategy = "dpsgd", clip_norm = 2.0 }
[[claims]]
better = "Private (C = 1)"
worse = ["Plain", "Private (C = 2)"]
metric = ["privacy_cost_gap", "accuracy"]
[quick]
text = "Half an epoch."
seeds = 1
settings = { epochs = 0.5 }
[[notes]]
method = "Private (C = 2)"
text = "We do not know."
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / f"{NAME}.toml").write_text(TOML)
    rows = [("Digits", "Plain", "all", "accuracy", "50.0", "40.0"), ("Digits", "Plain", "8", "loss", "99", ""),
            ("Digits", "Private (C = 1)", "gap", "privacy_cost_gap", "0.10", ""),
            ("Digits", "Private (C = 2)", "gap", "privacy_cost_gap", "0.11", ""),
            ("Digits", "Private (C = 2)", "all", "epsilon", "9999", ""),
            ("Nowhere", "Plain", "all", "accuracy", "50.0", "")]
    cells = pd.DataFrame(rows, columns=["dataset", "method", "group", "metric", "published", "spread"])
    cells.to_csv(tmp_path / "tables" / f"{NAME}.csv", index=False)
    return tmp_path / "tables"


def kept(experiment: Experiment, folder: Path, progress: Progress = lambda *_: None) -> Kept:
    """Return one experiment's run, from `folder` if it is there."""
    return kept_runs([experiment], folder, lambda done, runs, name, rounds, of: progress(rounds, of))[0]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """Return the list in which every experiment that is run from now on is noted."""
    begun: list[Experiment] = []
    watch_runs(monkeypatch, begun.append)
    return begun


def in_this_process(work: Callable[[Experiment], Any], items: Sequence[Experiment], jobs: int
                    ) -> Iterator[tuple[int, Any]]:
    """Stand in for `in_processes`, so that the work can be watched."""
    yield from ((place, work(item)) for place, item in enumerate(items))


def test_a_table_from_beginning_to_end(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    cells = reproduce(NAME, out, folder=folder)
    assert list(cells["agrees"])[:2] == ["yes", "no"]
    assert list(cells["agrees"])[4:] == ["no", "not run"]
    assert {file.name for file in out.iterdir()} == {"cells.csv", "README.md", "config.toml", RUNS, "statistics.csv",
                                                     "environment.json"}
    assert len(pd.read_parquet(out / RUNS)) == 6
    page = (out / "README.md").read_text()
    for words in ("# Nobody 2026, Table 1", "1 were not run", "Digits Plain loss of 8 (99, ours", "Not explained.",
                  "We do not know.", "## Order of the methods", "| Plain | all | accuracy |", "- Another network.",
                  "2 seeds can show none of them, since p is at least 0.25", "corrected for all 3 (Holm)",
                  "- Digits: ", "2 seeds cannot tell methods apart"):
        assert words in page
    assert "quick version" not in page
    assert f"Runs of fedfair {program_version()}." in page
    expected = compare(experiments(["sgd"], [0, 1], "digits", OF_TABLE))
    rows = identified(expected).query("split == 'test' and group == 'all' and metric == 'accuracy'")
    last = rows[rows["round"] == rows["round"].max()]["value"]
    assert cells["ours"][0] == pytest.approx(100 * last.mean())
    assert cells["ours_deviation"][0] == pytest.approx(100 * last.std())

    forbid_runs(monkeypatch, "ran again")
    again = reproduce(NAME, out, folder=folder)
    pd.testing.assert_frame_equal(cells, again)


def test_reproductions_share_the_runs_that_they_have_in_common(folder: Path, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "nobody2027-table1.toml").write_text(TOML.replace("C = 2", "C = 3").replace("norm = 2.0", "norm = 3.0"))
    cells = (folder / f"{NAME}.csv").read_text()
    (folder / "nobody2027-table1.csv").write_text(cells.replace("C = 2", "C = 3"))
    begun = counted(monkeypatch)
    request = Request(seeds=1, runs=tmp_path / "runs")
    for name in (NAME, "nobody2027-table1"):
        reproduce(name, tmp_path / name, request, folder=folder)
        assert not (tmp_path / name / RUNS).exists()
    assert [made.clip_norm for made in begun] == [1, 1, 2, 3]


def test_the_epsilons_of_cells_are_composed_as_the_description_says(folder: Path, tmp_path: Path) -> None:
    request = Request(seeds=1, quick=True, runs=tmp_path / "runs")
    usual = reproduce(NAME, tmp_path / "usual", request, folder=folder)
    (folder / f"{NAME}.toml").write_text(f'accountant = "rdp-classic"\n{TOML}')
    classic = reproduce(NAME, tmp_path / "classic", request, folder=folder)
    planned = plan(load(NAME, folder)[0], request)
    ledger = kept(next(p.experiment for p in planned if p.method == "Private (C = 2)"), tmp_path / "runs").ledger
    assert usual["ours"][4] == ledger.epsilon() < ledger.epsilon(accountant="rdp-classic") == classic["ours"][4]
    pages = [(tmp_path / name / "README.md").read_text() for name in ("usual", "classic")]
    assert ["Epsilons are composed by rdp-classic." in page for page in pages] == [False, True]


def test_losses_are_of_the_part_that_the_description_names(folder: Path, tmp_path: Path) -> None:
    metrics = identified(compare(experiments(["sgd"], [0], "digits", {**OF_TABLE, "epochs": 0.5})))
    last = metrics[metrics["round"] == metrics["round"].max()].set_index(["metric", "group", "split"])["value"]
    measured = {}
    for split in ("test", "train"):
        (folder / f"{NAME}.toml").write_text(f'losses = "{split}"\n{TOML}')
        cells = reproduce(NAME, tmp_path / "out", Request(quick=True), folder=folder)
        assert cells["ours"][1] == pytest.approx(last["loss", "8", split])
        assert cells["ours"][0] == pytest.approx(100 * last["accuracy", "all", "test"])
        assert ("of the training part" in (tmp_path / "out" / "README.md").read_text()) == (split == "train")
        tests = pd.read_csv(tmp_path / "out" / "statistics.csv").set_index(["metric", "better", "worse"])["difference"]
        measured[split] = tests
    other = measured["test"].ne(measured["train"]).groupby(level="metric").any()
    assert set(other[other].index) == {"loss", "excessive_risk_gap"}


@pytest.mark.parametrize(("replaced", "by", "quick", "words"), [
    ("", "", True, ["This is the quick version. Half an epoch.", "one seed, so without a deviation of ours"]),
    ('spread = "standard deviation"', "", True, ["cells agree if they print the same digits"]),
    ("\nDigits = .*", '\nDigits = { missing = "it is lost, too" }', False, ["0 of 0 cells agree. 6 were not run."])])
def test_a_page_says_why_there_is_less_to_see(replaced: str, by: str, quick: bool, words: list[str], folder: Path,
                                              tmp_path: Path) -> None:
    (folder / f"{NAME}.toml").write_text(re.sub(replaced, by, TOML))
    reproduce(NAME, tmp_path / "out", Request(quick=quick), folder=folder)
    page = (tmp_path / "out" / "README.md").read_text()
    assert all(each in page for each in words)


def test_a_kept_ledger_is_short_and_says_what_was_spent(tmp_path: Path) -> None:
    made = Experiment(strategy="dpsgd-f", **SETTINGS | {"epochs": 8})
    whole, short = run(made).ledger, kept(made, tmp_path).ledger
    assert len(whole.log.entries) > 10
    assert len(short.log.entries) == 1
    assert short.guaranteed_by_group() == whole.guaranteed_by_group()
    described = (RunFile(tmp_path / RUNS).find(made.settings()) or {})["ledger"]
    assert described["spent_by_group"] == whole.epsilon_by_group() != whole.guaranteed_by_group()


def test_numbers_of_the_clip_rule_are_kept_of_so_many_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert requests._RULE_ROUNDS == 600
    monkeypatch.setattr(requests, "_RULE_ROUNDS", 60)
    made = Experiment(strategy="dpsgd-f", **SETTINGS | {"epochs": 20, "steps": 70, "hidden": [2], "eval_every": 400})
    whole, short = run(made).metrics, kept(made, tmp_path).metrics
    rule, thinned = whole[whole["split"] == "rule"], short[short["split"] == "rule"]
    assert (rule["round"].nunique(), thinned["round"].nunique()) == (70, 60)
    assert thinned["round"].agg(["min", "max"]).tolist() == [1, 70]
    assert (thinned.groupby("round")["group"].nunique() == 10).all()
    assert thinned["round"].drop_duplicates().diff().max() == 2
    for found, expected in ((thinned, rule[rule["round"].isin(thinned["round"])]),
                            (short[short["split"] != "rule"], whole[whole["split"] != "rule"])):
        pd.testing.assert_frame_equal(found.reset_index(drop=True), expected.reset_index(drop=True))


def test_a_kept_ledger_with_a_budget_is_whole(tmp_path: Path) -> None:
    made = Experiment(strategy="dpsgd-f", group_epsilon=9.0, **SETTINGS)
    whole, short = run(made).ledger, kept(made, tmp_path).ledger
    assert short.events == whole.events
    assert short.epsilon() == whole.epsilon()


def test_a_seed_and_a_job_more_are_added_to_the_runs_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                    ) -> None:
    first = kept_runs(experiments(["sgd", "dpsgd"], [0], "digits", SETTINGS), tmp_path)
    begun = counted(monkeypatch)
    more = kept_runs(experiments(["sgd", "dpsgd"], [0, 1], "digits", SETTINGS), tmp_path)
    assert [(made.strategy, made.seed) for made in begun] == [("sgd", 1), ("dpsgd", 1)]
    for place, run_again in ((0, more[0]), (1, more[2])):
        pd.testing.assert_frame_equal(run_again.metrics, first[place].metrics, check_exact=True)
    assert more[1].metrics["value"].tolist() != more[0].metrics["value"].tolist()
    assert len(pd.read_parquet(tmp_path / RUNS)) == 4


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_that_ended_are_there_when_another_fails(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                      ) -> None:
    made = experiments(["dpsgd"], [0, 1, 2], "digits", SETTINGS)

    def failing(experiment: Experiment) -> None:
        if experiment.seed == 2:
            pytest.fail("the disk is full")

    watch_runs(monkeypatch, failing)
    monkeypatch.setattr(stacked, "MOST", 1)
    monkeypatch.setattr("simulations.plans.compare.in_processes", in_this_process)
    with pytest.raises(pytest.fail.Exception, match="the disk is full"):
        kept_runs(made, tmp_path, jobs=jobs)
    kept_there = RunFile(tmp_path / RUNS)
    assert [kept_there.find(each.settings()) is None for each in made] == [False, False, True]


def test_another_command_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with alone_in(tmp_path / RUNS), pytest.raises(BlockingIOError, match=r"runs\.parquet is in use by another run"):
        kept(Experiment(strategy="dpsgd", **SETTINGS), tmp_path)


def test_a_run_with_another_default_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Experiment(strategy="dpsgd", **SETTINGS)
    first = kept(made, tmp_path)
    then = {**made.settings(), "momentum": 0.9}  # what an earlier version would have written
    (tmp_path / RUNS).unlink()
    RunFile(tmp_path / RUNS).add(then, first.metrics.assign(value=0.0), first.ledger.to_dict())
    begun = counted(monkeypatch)
    pd.testing.assert_frame_equal(kept(made, tmp_path).metrics, first.metrics)
    pd.testing.assert_frame_equal(kept(made, tmp_path).metrics, first.metrics)
    assert begun == [made]


def test_a_run_that_was_broken_off_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    made = Experiment(strategy="dpsgd-f", split=(0.2, 0.0, 0.8), model="cnn", hidden=(1, 1), steps=130, batch_size=8,
                      eval_every=20)  # convolutions do not stack, and runs of a stack have no checkpoints
    seen: list[int] = []

    def breaking(rounds: int, of: int) -> None:
        seen.append(rounds)
        if rounds == 120 and len(seen) == 120:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(made, tmp_path, breaking)
    again, alone = kept(made, tmp_path, breaking), kept(made, tmp_path / "alone")
    assert seen == [*range(1, 121), *range(101, 131)]
    pd.testing.assert_frame_equal(again.metrics, alone.metrics)
    assert again.ledger.to_dict() == alone.ledger.to_dict()
    assert {path.name for path in tmp_path.iterdir()} == {RUNS, "alone"}


@pytest.mark.slow
def test_several_jobs_give_the_same_runs(tmp_path: Path) -> None:
    made = experiments(["sgd", "dpsgd"], [0, 1], "digits", SETTINGS)
    alone, together = kept_runs(made, tmp_path / "a"), kept_runs(made, tmp_path / "b", jobs=2)
    for a, b in zip(alone, together, strict=True):
        pd.testing.assert_frame_equal(a.metrics, b.metrics, rtol=1e-4)


def test_equal_runs_do_not_meet_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = experiments(["dpsgd"], [0, 1], "digits", SETTINGS)
    monkeypatch.setattr("simulations.plans.compare.in_processes", in_this_process)
    begun = counted(monkeypatch)
    runs = kept_runs([one, other, one], tmp_path, jobs=2)
    assert begun == [one, other]
    pd.testing.assert_frame_equal(runs[0].metrics, runs[2].metrics)


def test_a_wrong_name_and_another_folder_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "yang2024-table2", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "did you mean 'yang2024-table1'" in result.output
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text('reproduction = "xu2021-table1"\n')
    result = CliRunner().invoke(app, ["reproduce", "yang2024-table1", "--out", str(tmp_path / "other")])
    assert result.exit_code == 2
    assert "different experiment" in result.output


@pytest.mark.parametrize("name", ["xu2021-table3", "fair-fight", "shakespeare", "yang2024-figures2-3"])
def test_kept_runs_that_are_a_file_are_refused_before_work_starts(name: str, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_runs(monkeypatch, "work started")
    (tmp_path / "runs").write_text("")
    runs, out = (str(tmp_path / folder) for folder in ("runs", "out"))
    result = CliRunner().invoke(app, ["reproduce", name, "--runs", runs, "--out", out])
    assert result.exit_code == 2
    assert "is a file: choose another folder" in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_celeba_is_missing_only_where_its_images_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import Dataset, Features, Image, Value  # here: a second to import

    table, cells = load("esipova2023-table3")
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    assert plan(table, Request(seeds=1)) == []
    reasons = {why_missing(table, cell) for cell in cells.to_dict("records")}
    assert reasons == {"there is no folder celeba in FEDFAIR_DATA_DIR"}
    (tmp_path / "here" / "celeba").mkdir(parents=True)
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path / "here")
        elsewhere.delenv("FEDFAIR_DATA_DIR")
        assert plan(table, Request(seeds=1)) == []
    images = [Pillow.new("RGB", (64, 64))] * 20
    flags = {name: [i % step == 0 for i in range(20)] for name, step in (("Male", 2), ("Eyeglasses", 5))}
    features = Features({"image": Image(), "celeb_id": Value("int64"), **dict.fromkeys(flags, Value("bool"))})
    Dataset.from_dict({"image": images, "celeb_id": list(range(20)), **flags}, features).save_to_disk(
        tmp_path / "celeba")
    planned = {run.method: run.experiment for run in plan(table, Request(seeds=1))}
    assert set(planned) == set(cells["method"])
    for made in planned.values():
        assert (made.model, made.noise_multiplier, made.clip_norm, made.epochs, made.batch_size) == (
            "cnn", 0.8, 1.0, 30, 256)
    assert {name: made.learning_rate for name, made in planned.items()} == {
        "SGD": 0.01, "DPSGD": 0.01, "DPSGD-F": 0.01, "DPSGD-Global": 0.1, "DPSGD-Global-Adapt": 0.1}
    assert planned["DPSGD-Global"].options == {"bound": 100.0}
    assert planned["DPSGD-Global-Adapt"].options == {"bound": 100.0, "tau": 0.7}
    assert set(table.groups["CelebA"].values()) == set(planned["SGD"].task.data().train.names)


def test_the_page_of_a_table_that_cannot_be_run_claims_nothing() -> None:
    table, cells = load("esipova2023-table3")
    page = report("esipova2023-table3", table, compared(table, cells, {}), [], Statistics(), Request(), "")
    assert "0 of 0 cells agree. 48 were not run." in page
    assert not set(itertools.chain(*(line.split("|")[-2].split() for line in page.splitlines() if line.startswith("| ")
                                     and "method" not in line))) - {"not", "run"}
