"""A sweep runs every trial once, whatever interrupts it, and its table is that of single runs."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.mechanisms.randomness import generator
from simulations.engines.run import run
from simulations.plans.compare import compare
from simulations.plans.kept_runs import refuse_changed, trial_name
from simulations.plans.search import Range, Search, Spent, cost, refuse_unmeasured
from simulations.plans.sweep import Sweep, collect, prepare_folder, trials
from simulations.results.result import summary
from simulations.settings.experiment import Experiment, SettingsError
from tests.for_each import for_each
from tests.guard import wait_until
from tests.simulations.engines.test_checkpoint import own_table
from tests.simulations.kills import killed_in_the_middle

SMALL: dict[str, Any] = {
    "strategies": ["sgd", "dpsgd-f"], "seeds": 2, "settings": {"steps": 4, "hidden": [8], "accountant": "rdp"},
    "vary": {"learning_rate": [0.1, 0.5]}}
SEARCH: dict[str, Any] = {
    "strategies": ["dpsgd"], "settings": {"steps": 40, "hidden": [8], "accountant": "rdp", "eval_every": 0.5,
                                            "split": [0.6, 0.2, 0.2]},
    "search": {"space": {"learning_rate": {"low": 1e-4, "high": 1.0, "log": True}}, "trials": 6}}


def searching(**changed: Any) -> Sweep:
    """Return the search, with some things of it changed."""
    return Sweep(**{**SEARCH, "search": {**SEARCH["search"], **changed}})


@pytest.fixture
def command(forked: Path, tmp_path: Path) -> Callable[[Sweep], list[str]]:
    """Return a function that returns the command of a sweep into the folder `out`."""
    def of(described: Sweep) -> list[str]:
        (tmp_path / "sweep.toml").write_text(described.to_toml())
        return [str(forked / "fedfair"), "sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out")]

    return of


def test_trials_are_all_combinations_each_once_and_named_by_all_that_matters() -> None:
    found = trials(Sweep(**SMALL))
    assert len(found) == 2 * 2 * 2
    assert {(e.strategy, e.seed, e.learning_rate) for e in found.values()} == {
        (s, n, r) for s in ("sgd", "dpsgd-f") for n in (0, 1) for r in (0.1, 0.5)}
    own = Sweep(**{**SMALL, "vary": {"dpsgd-f.options.max_bound": [2.0, 4.0]}})
    assert len(trials(own)) == 2 + 4  # sgd does not know that setting, and is run once for both
    assert [len(cell.experiments) for cell in own.cells()] == [4, 4]


def test_a_finished_trial_of_a_file_that_has_changed_is_noticed(tmp_path: Path) -> None:
    table = own_table(tmp_path / "own.csv")
    made = Experiment(csv=str(table), label="label", group="group", strategy="sgd", steps=2, batch_size=32, hidden=(4,))
    run(made).save(tmp_path / "trial")
    refuse_changed(tmp_path / "trial", made)
    table.write_text(table.read_text() + "\n1,a,1")
    with pytest.raises(ValueError, match=r"own\.csv has changed since .*trial was made"):
        refuse_changed(tmp_path / "trial", made)


def test_methods_and_models_of_ones_own_are_files_that_a_trial_depends_on(tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    method, model = tmp_path / "half_clip.py", tmp_path / "models" / "two_layers.py"
    method.write_text("from strategies.dpsgd import Dpsgd\n\nclass HalfClip(Dpsgd):\n    pass\n")
    model.write_text("from fedfair.models.published import mlp\n\ndef two_layers(shape, hidden, classes):\n"
                     "    return mlp(shape, hidden, classes)\n")
    made = Experiment(strategy="half-clip", model="two-layers", hidden=(4, 4), steps=2, batch_size=32)
    run(made).save(tmp_path / "trial")
    saved = json.loads((tmp_path / "trial" / "environment.json").read_text())["own_files_sha256"]
    assert saved == {"half_clip.py": sha256(method.read_bytes()).hexdigest(),
                     "models/two_layers.py": sha256(model.read_bytes()).hexdigest()}
    for file in (method, model):
        refuse_changed(tmp_path / "trial", made)
        before = file.read_text()
        file.write_text(before + "\n# changed\n")
        with pytest.raises(ValueError, match=rf"{file.name} has changed since .*trial was made"):
            refuse_changed(tmp_path / "trial", made)
        file.write_text(before)


def test_a_description_survives_toml(tmp_path: Path) -> None:
    for settings in (SMALL, SEARCH):
        made = Sweep(**settings)
        (tmp_path / "sweep.toml").write_text(made.to_toml())
        assert Sweep.read(tmp_path / "sweep.toml") == made


@for_each(("change", "message"), [
    ({"strategies": ["dpsgdf"]}, "unknown strategy 'dpsgdf'"),
    ({**SEARCH, "settings": {}, "vary": {}, "seeds": 1}, r"chooses by the validation part, but split is \[0.8, 0.0, 0"),
    ({"strategies": []}, "strategies is"),
    ({"seed": 3}, "unknown setting 'seed': did you mean 'seeds'"),
    ({"vary": {"learning_rat": [1]}}, "unknown setting 'learning_rat'"),
    ({"vary": {"learning_rate": [0.1, 0.2, 0.1]}}, r"learning_rate has 0\.1 twice: give each once"),
    ({"seeds": [1, 1]}, "seeds has 1 twice"),
    ({"seeds": 0}, "seeds"),
    ({"vary": {"learning_rate": []}}, "vary.learning_rate"),
    ({"settings": {"dataset": "compas"}}, "dataset is 'compas' among the settings, but it is chosen by .* datasets in"),
    ({"settings": {"strategy": "sgd"}}, "strategy is 'sgd' among the settings, but it is chosen by .* strategies in"),
    ({"settings": {"seed": 3}}, "seed is 3 among the settings, but it is chosen by .* seeds in a sweep"),
    ({"vary": {"dataset": ["compas", "law"]}}, r"dataset is \['compas', 'law'\] among the settings"),
    ({"vary": {"strategy": ["sgd", "dpsgd"]}}, "strategy is 'sgd' among the settings"),
    ({"vary": {"csv": ["a.csv"]}, "datasets": ["adult", "law"]}, "csv is given, and so is datasets, adult, law: leave"),
    ({"search": {"space": {"learning_rate": {"low": 1}}}, "vary": {}}, "a searched setting has either values"),
    ({"search": {"space": {"learning_rate": {"low": 0.1, "high": 1}}}}, "name one of each"),
])
def test_a_wrong_description_is_refused_before_anything_runs(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        trials(Sweep(**{**SMALL, **change}))


def test_a_changed_sweep_is_noticed_and_an_extended_one_keeps_what_is_there(tmp_path: Path) -> None:
    assert prepare_folder(tmp_path / "out", Sweep(**SMALL)) == 0
    assert prepare_folder(tmp_path / "out", Sweep(**SMALL)) == 0
    with pytest.raises(FileExistsError, match=r"differs in settings: 8 of its 8 trials are not in this one"):
        prepare_folder(tmp_path / "out", Sweep(**{**SMALL, "settings": {"steps": 5}}))
    assert prepare_folder(tmp_path / "out", Sweep(**{**SMALL, "seeds": 3})) == 8
    with pytest.raises(FileExistsError, match="4 of its 12 trials are not in this one"):
        prepare_folder(tmp_path / "out", Sweep(**SMALL))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(FileExistsError, match="holds no sweep"):
        prepare_folder(tmp_path / "other", Sweep(**SMALL))


def test_a_search_is_not_extended_by_another_rule_where_trials_were_stopped(tmp_path: Path) -> None:
    prepare_folder(tmp_path, searching(scheduler="asha"))
    assert prepare_folder(tmp_path, searching(scheduler="asha", grace=20, trials=8)) == 6
    note = tmp_path / "trials" / "one" / "stopped.json"
    note.parent.mkdir(parents=True)
    note.write_text("{}")
    with pytest.raises(FileExistsError, match=r"another rule, which differs in metric, scheduler of \[search\]"):
        prepare_folder(tmp_path, searching(grace=20, trials=9, metric="loss", scheduler="median"))
    assert prepare_folder(tmp_path, searching(scheduler="asha", grace=20, trials=9)) == 8


@pytest.mark.parametrize(("change", "message"), [
    ({"metric": "acuracy"}, "unknown metric of all to search by 'acuracy': did you mean 'accuracy'"),
    ({"metric": "accuracy_parity", "group": "3"}, "unknown metric of 3 to search by 'accuracy_parity'"),
    ({"group": "three"}, "unknown group to search by 'three'"),
    ({"metric": "demographic_parity"}, "demographic_parity of all is not a number on the validation part"),
])
def test_a_search_by_what_no_run_measures_is_refused(change: dict[str, Any], message: str) -> None:
    described = searching(**change)
    made = next(described.cells()).experiments[0]
    assert described.search is not None
    with pytest.raises(ValueError, match=message):
        refuse_unmeasured(described.search, made)
    for metric in ("accuracy", "loss", "gradient_norm"):
        refuse_unmeasured(described.search.model_copy(update={"metric": metric, "group": "3"}), made)


@given(low=st.floats(1e-3, 10), width=st.floats(0, 10), log=st.booleans(), seed=st.integers(0, 99))
def test_draws_stay_within_their_range(low: float, width: float, log: bool, seed: int) -> None:
    drawn = Range(low=low, high=low + width, log=log).draw(generator(seed, "search"))
    assert low * (1 - 1e-12) <= drawn <= (low + width) * (1 + 1e-12)


def test_whole_numbers_and_choices_are_drawn_evenly() -> None:
    for within in (Range(low=2, high=4), Range(values=(2, 3, 4))):
        drawn = [within.draw(generator(0, "search", 0, n)) for n in range(3000)]
        assert {type(value) for value in drawn} == {int}
        assert all(900 < drawn.count(value) < 1100 for value in (2, 3, 4))


def test_draws_do_not_depend_on_how_many_there_are() -> None:
    space = {"learning_rate": Range(low=0.0, high=1.0)}
    assert list(Search(space=space, trials=3).draws()) == list(Search(space=space, trials=9).draws())[:3]


def test_a_search_costs_the_sum_of_its_trials() -> None:
    found = cost([Spent(1.5, 1e-6, False), Spent(2.0, 1e-6, False)])
    assert (found["epsilon_of_the_search"], found["delta_of_the_search"]) == (3.5, 2e-6)
    assert found["epsilon_of_the_search_is"].startswith("guaranteed in advance")
    assert cost([Spent(1.5, 1e-6, True)])["epsilon_of_the_search_is"].startswith("what was spent")


def ended(described: Sweep, folder: Path, failed: Mapping[str, str]) -> Any:
    """End a sweep of which some trials failed, for a reason each, and return what the folder says of its search."""
    for name, made in trials(described).items():
        if name not in failed:
            run(made).save(folder / "trials" / name)
    collect(described, folder, failed)
    return json.loads((folder / "search.json").read_text()) if described.search else None


def test_a_failed_trial_is_charged_what_it_can_have_released(tmp_path: Path) -> None:
    described = searching(trials=2)
    found = ended(described, tmp_path, {[*trials(described)][1]: "its process died"})
    table = pd.read_csv(tmp_path / "trials.csv")
    assert (found["trials"], found["stopped_early"]) == (2, 0)
    assert found["epsilon_of_the_search"] == pytest.approx(2 * found["epsilon_of_the_best_run"])
    assert found["epsilon_of_the_search"] == pytest.approx(table["epsilon"].sum())
    assert found["epsilon_of_the_search_is"].startswith("guaranteed in advance")


def test_a_failed_trial_whose_plan_proves_nothing_is_charged_without_bound(tmp_path: Path) -> None:
    """What noise at the base clip norm costs follows from the clip norms to come."""
    settings = {**SEARCH["settings"], "options": {"noise_at": "base"}, "noise_multiplier": 2.0}
    described = Sweep(strategies=["dpsgd-f"], settings=settings, search={**SEARCH["search"], "trials": 1})
    found = ended(described, tmp_path, dict.fromkeys(trials(described), "its process died"))
    assert found["epsilon_of_the_search"] is None


def test_a_trial_that_could_not_begin_costs_nothing_and_one_without_a_plan_everything(tmp_path: Path) -> None:
    described = Sweep(**{**SEARCH, "settings": {**SEARCH["settings"], "batch_size": 10**6}})
    with pytest.raises(ValueError, match="batch_size is 1000000") as refused:
        run(next(iter(trials(described).values())))
    for reason, charged, is_ in ((str(refused.value), 0, "guaranteed"), ("its process died", None, "without bound")):
        found = ended(described, tmp_path, dict.fromkeys(trials(described), reason))
        assert (found["best"], found["epsilon_of_the_search"]) == (None, charged)
        assert found["epsilon_of_the_search_is"].startswith(is_)


def test_a_metric_that_is_not_a_number_makes_no_trial_the_best(tmp_path: Path) -> None:
    described = searching(trials=1, metric="demographic_parity")
    assert ended(described, tmp_path, {})["best"] is None


def test_a_varied_setting_that_the_summary_has_anyway_is_one_column(tmp_path: Path) -> None:
    vary = {"delta": [1e-4, 1e-5], "hidden": [[4]]}
    described = Sweep(**{**SMALL, "strategies": ["dpsgd"], "seeds": 1, "vary": vary})
    ended(described, tmp_path, {})
    table = pd.read_csv(tmp_path / "summary.csv")
    assert list(table)[:4] == ["delta", "hidden", "dataset", "strategy"]
    assert table["delta"].tolist() == [1e-4, 1e-5]


@pytest.mark.slow
def test_a_sweep_killed_at_random_moments_gives_the_table_of_single_runs(
        command: Callable[[Sweep], list[str]], tmp_path: Path) -> None:
    described = Sweep(**SMALL)

    def finished() -> int:
        """Return how many trials have ended."""
        return len(list((tmp_path / "out" / "trials").glob("*/summary.csv")))

    assert killed_in_the_middle(command(described), 2, finished, random.Random(1)) > 0  # noqa: S311
    tables = [summary(compare(cell.experiments)).assign(learning_rate=cell.chosen["learning_rate"])
              for cell in described.cells()]
    found = pd.read_csv(tmp_path / "out" / "summary.csv")
    pd.testing.assert_frame_equal(found, pd.concat(tables, ignore_index=True)[list(found.columns)], check_dtype=False)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "trials").glob("*/summary.csv")}
    assert len(times) == 8
    again = subprocess.run(command(described), check=True, capture_output=True, text=True)
    assert "8 trials, of which 8 are finished" in again.stderr
    assert all(path.stat().st_mtime_ns == when for path, when in times.items())


@pytest.mark.slow
def test_an_interrupted_search_ends_so_and_takes_no_trial_for_finished_that_is_not(
        command: Callable[[Sweep], list[str]], tmp_path: Path) -> None:
    described = searching(space={"steps": {"values": [2, 10**6]}}, trials=2, seed=6)
    folder = tmp_path / "out" / "trials"
    with subprocess.Popen(command(described), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_until(lambda: any(folder.glob("*/summary.csv")) and any(folder.glob("*/checkpoint.pt")), process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 130
    assert "saved" not in output
    files = ("summary.csv", "checkpoint.pt", "stopped.json")
    assert [len(list(folder.glob(f"*/{file}"))) for file in files] == [1, 1, 0]
    assert not (tmp_path / "out" / "search.json").exists()


def test_an_interrupt_before_any_trial_has_started_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.tune import ResultGrid, Tuner  # here, because importing Ray takes a second

    from simulations.plans.trials import Resources, run_trials

    monkeypatch.setattr("simulations.plans.trials._refuse_too_large", lambda resources: None)
    monkeypatch.setattr("simulations.plans.trials._parts", lambda left, *_: {(name,): False for name in left})
    monkeypatch.setattr(Tuner, "fit", lambda tuner: ResultGrid(SimpleNamespace(trials=[])))
    with pytest.raises(KeyboardInterrupt):
        run_trials(trials(Sweep(**SMALL)), 0, tmp_path, Resources())


MISTAKEN = """
from pathlib import Path
from strategies import Strategy

class Mistaken(Strategy):
    def rule(self):
        with Path("calls.txt").open("a") as calls:
            calls.write("called")
        return 1 / 0
"""


@pytest.mark.slow
def test_trials_that_fail_for_reasons_of_their_own_are_named_and_made_once_and_the_others_finish(
        command: Callable[[Sweep], list[str]], tmp_path: Path) -> None:
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    described = Sweep(strategies=["sgd", "mistaken"], vary={"learning_rate": [1e30, 0.1]},
                      settings={"steps": 20, "hidden": [8], "weight_decay": 10.0})
    done = subprocess.run(command(described), check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "has a gradient that is not finite" in done.stderr
    assert "ZeroDivisionError: division by zero (" in done.stderr
    assert "died" not in done.stderr
    ended = pd.read_csv(tmp_path / "out" / "trials.csv").set_index(["strategy", "learning_rate"])["ended"]
    assert ended["sgd", 0.1] == "finished"
    assert "not finite" in ended["sgd", 1e30]
    assert ended["mistaken"].str.contains("line 9, in rule: ZeroDivisionError").all()
    calls = (tmp_path / "calls.txt").read_text().count("called")
    assert calls == 3 * 2  # by both trials, by their stacks, and to charge them


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["none", "asha"])
def test_a_search_finds_the_best_trial_and_says_what_all_of_them_cost(
        scheduler: str, command: Callable[[Sweep], list[str]], tmp_path: Path) -> None:
    described = searching(scheduler=scheduler)
    for _ in range(2):  # the second time nothing is left to run
        subprocess.run(command(described), check=True, capture_output=True)
    found = json.loads((tmp_path / "out" / "search.json").read_text())
    table = pd.read_csv(tmp_path / "out" / "trials.csv")
    assert found["trials"] == len(table) == 6
    assert found["epsilon_of_the_search"] == pytest.approx(table["epsilon"].sum())
    assert found["best"] in set(table.loc[table["ended"] == "finished", "trial"])
    if scheduler == "none":
        runs = compare([made for cell in described.cells() for made in cell.experiments])
        accuracy = {trial_name(r.experiment): r.metrics.query(
            "split == 'valid' and metric == 'accuracy' and group == 'all' and round == 40").value.item() for r in runs}
        assert accuracy[found["best"]] == max(accuracy.values())
        assert found["stopped_early"] == 0
