"""What a folder holds, and what the table and the summary say."""

from __future__ import annotations

import io
import json
import math
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console, RenderableType
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedfair.accounting import Event, Ledger
from simulations import Experiment, run
from simulations.cli import app
from simulations.commands.options import settings_of
from simulations.plans.compare import compare, experiments
from simulations.results.environment import environment
from simulations.results.result import compared, summary
from simulations.results.result_folder import replaced
from simulations.results.terminal_table import comparison_table, results_table
from simulations.settings.presets import merged
from simulations.statistics.summary import gap, summarise

FILES = {"config.toml", "metrics.parquet", "summary.csv", "ledger.json", "model.safetensors", "environment.json"}
QUICK = {"hidden": (8,), "epochs": 2, "delta": 1e-4}


def test_a_folder_is_all_that_is_needed_to_run_again(tmp_path: Path) -> None:
    result = run(Experiment(strategy="dpsgd-f", **QUICK))
    result.save(tmp_path / "run")
    assert {file.name for file in (tmp_path / "run").iterdir()} == FILES
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    again = run(Experiment(**tomllib.loads((tmp_path / "run" / "config.toml").read_text())))
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(stored[name], value) for name, value in again.model.named_parameters())
    ledger = Ledger.from_dict(json.loads((tmp_path / "run" / "ledger.json").read_text()))
    assert ledger.epsilon() == pytest.approx(again.ledger.epsilon())
    metrics = pd.read_parquet(tmp_path / "run" / "metrics.parquet")
    assert {"round", "split", "group", "metric", "value"} <= set(metrics.columns)


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(Experiment(**QUICK))
    monkeypatch.setattr("simulations.results.result.save_tensors",
                        lambda *_: (_ for _ in ()).throw(OSError("disk is full")))
    with pytest.raises(OSError, match="disk is full"):
        result.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_save_broken_off_between_two_renames_keeps_the_old_folder(error: type[BaseException], tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = tmp_path / "out", Path.rename
    folder.mkdir()
    (folder / "checkpoint.pt").write_text("the ledger so far")

    def rename(path: Path, target: Path) -> Path:
        if path.name.endswith("-new"):
            raise error
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(error), replaced(folder) as new:
        (new / "checkpoint.pt").write_text("a new one")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (folder / "checkpoint.pt").read_text() == "the ledger so far"


def test_two_replacements_at_once_lose_nothing(tmp_path: Path) -> None:
    """The second one would remove what the first has written so far."""
    with replaced(tmp_path / "out") as new:
        (new / "first").touch()
        with pytest.raises(BlockingIOError, match="out is in use by another run"), replaced(tmp_path / "out"):
            pass
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["first"]


def test_the_summary_has_a_row_for_each_strategy_and_costs_against_sgd_of_the_same_seed() -> None:
    results = compare(experiments(["sgd", "dpsgd"], [0, 1], None, {"hidden": [8], "epochs": 2}))
    table = summary(results).set_index("strategy")
    assert list(table.index) == ["sgd", "dpsgd"]
    accuracy = {(r.experiment.strategy, r.experiment.seed): r.metrics.query(
        "split == 'test' and metric == 'accuracy' and group == '3' and round == round.max()").value.item()
        for r in results}
    expected = sum(accuracy["sgd", s] - accuracy["dpsgd", s] for s in (0, 1)) / 2
    assert table.loc["dpsgd", "privacy_cost_3_mean"] == pytest.approx(expected)
    assert table.loc["sgd", "privacy_cost_3_mean"] == 0
    assert (table.loc["sgd", "guarantee"], table.loc["dpsgd", "guarantee"]) == ("none", "simulated")
    required = ["dataset", "seeds", "epsilon", "delta", "guarantee", "accuracy_mean", "accuracy_sd",
                "accuracy_parity_mean", "accuracy_parity_sd", "demographic_parity_mean", "demographic_parity_sd"]
    assert set(required) <= set(table.columns)


def test_participants_privacy_costs_what_they_lose_against_fedavg_and_the_folder_says_what_is_not_private() -> None:
    results = compare(experiments(["sgd", "fedavg", "dp-fedavg"], [0], None, {
        "hidden": [8], "steps": 2}))
    table = summary(results).set_index("strategy")
    assert table.loc["dp-fedavg", "privacy_cost_3_mean"] == pytest.approx(
        table.loc["fedavg", "accuracy_3_mean"] - table.loc["dp-fedavg", "accuracy_3_mean"])
    assert table.loc["fedavg", "privacy_cost_3_mean"] == 0
    said = environment([Experiment(), Experiment(dataset="adult", preprocessing="records")])["not_private"]
    assert "means and deviations" in str(said)
    assert "means and deviations" not in str(environment([Experiment(dataset="adult")])["not_private"])


def test_compare_prints_a_table_of_80_columns_and_saves(tmp_path: Path, data_dir: Path) -> None:
    result = CliRunner().invoke(app, [
        "compare", "--dataset", "adult", "--preset", "yang2024", "--seeds", "2", "--out", str(tmp_path / "out"),
        "--strategies", "sgd,dpsgd,dpsgd-f,dpsgd-global,dpsgd-global-adapt,gs-dp-sgd", "--set", "epochs=0.1",
        "--set", "hidden=[8]", "--set", "gs-dp-sgd.epochs=1", "--set", "dpsgd-f.options.max_bound=4"],
        env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines()[:14])) <= 80
    for word in ("Female (10,269)", "Male (21,386)", "accuracy parity", "demographic parity", "epsilon", "nominal"):
        assert word in result.stdout
    assert {file.name for file in (tmp_path / "out").iterdir()} == FILES | {"statistics.csv"}
    assert len(pd.read_csv(tmp_path / "out" / "summary.csv")) == 6


def shown(summary: pd.DataFrame, sizes: dict[str, int]) -> str:
    """Return the table of a comparison, as a terminal of 80 columns shows it."""
    return printed(comparison_table(summary, sizes))


def printed(shown: RenderableType) -> str:
    """Return what a terminal of 80 columns shows."""
    file = io.StringIO()
    Console(file=file, width=80).print(shown)
    return file.getvalue()


def test_a_group_that_was_not_measured_neither_pays_most_nor_makes_a_gap(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("\n".join(["x,hired,group", *(f"{i % 7},{i % 7 // 4},{'C' if i % 3 else 'B'}" for i in range(90)),
                              "1,1,A"]) + "\n")
    settings = {"csv": str(file), "label": "hired", "group": "group", "hidden": [8], "steps": 40, "batch_size": 16,
                "delta": 1e-4, "noise_multiplier": 20, "attribute_in_model": True, "learning_rate": 0.5,
                "split": [0.7, 0, 0.3]}
    results = compare(experiments(["sgd", "dpsgd", "dpsgd-f"], [2], None, settings))
    table, sizes = summary(results), dict(zip("ABC", results[0].data.train.group_sizes(), strict=True))
    private = table.set_index("strategy").loc["dpsgd"]
    paid = {group: private[f"privacy_cost_{group}_mean"] for group in "ABC"}
    assert math.isnan(paid["A"])
    assert paid["B"] != paid["C"]
    assert private["privacy_cost_gap_mean"] == pytest.approx(abs(paid["B"] - paid["C"]))
    said = printed(results_table(compared(results)))
    assert "The cost of group A is unknown: it has no test record." in said
    assert f"Under dpsgd, group {max('BC', key=paid.__getitem__)} (" in said
    assert "nan" not in said
    most = [row[[f"privacy_cost_{group}_mean" for group in "BC"]].max() for _, row in table.iterrows()]
    cost, = (line.split()[2:] for line in shown(table, sizes).splitlines() if line.startswith("its cost"))
    assert cost == [f"{paid:.3f}".removeprefix("0") if paid > 0 else "-" for paid in most]
    assert private["privacy_cost_gap_mean"] != pytest.approx(most[1])


def test_one_measured_group_has_no_gap() -> None:
    costs = pd.DataFrame({"A": [math.nan, 0.1], "B": [0.2, 0.3], "all": [0.2, 0.9]})
    assert gap(costs).tolist() == pytest.approx([math.nan, 0.2], nan_ok=True)


def test_names_of_groups_are_no_markup(tmp_path: Path) -> None:
    names = ("[other]", "[/x]", ":car:")
    file = tmp_path / "people.csv"
    file.write_text("\n".join(["x,hired,group", *(f"{i % 7},{i % 2},{names[i % 3]}" for i in range(90))]) + "\n")
    results = compare(experiments(["sgd", "dpsgd"], [0], None, {
        "csv": str(file), "label": "hired", "group": "group", "hidden": [8], "steps": 2, "batch_size": 16}))
    sizes = dict(zip(results[0].data.train.names, results[0].data.train.group_sizes(), strict=True))
    assert all(f"{name} ({sizes[name]})" in shown(summary(results), sizes) for name in names)


def test_a_setting_can_be_meant_for_one_strategy() -> None:
    made = experiments(["sgd", "dpsgd-f"], [0], None, {"dpsgd-f.options.max_bound": 3, "dpsgd-f.learning_rate": 2.0})
    assert [e.learning_rate for e in made] == [0.5, 2.0]
    assert [e.options for e in made] == [{}, {"max_bound": 3}]


@pytest.mark.parametrize("order", [1, -1])
def test_the_settings_of_one_strategy_win_wherever_they_stand(order: int) -> None:
    for general in ({"options": {"max_bound": 9.0}}, {"options.max_bound": 9.0}):
        for particular in ({"dpsgd-f.options.max_bound": 3.0}, {"dpsgd-f.options": {"max_bound": 3.0}}):
            settings = dict([*{**general, "clip_norm": 2.0, **particular, "dpsgd-f.clip_norm": 1.0}.items()][::order])
            made = experiments(["dpsgd-f", "dpsgd-f-quantile"], [0], "xu2021", settings)
            assert [e.options["max_bound"] for e in made] == [3.0, 9.0]
            assert [e.clip_norm for e in made] == [1.0, 2.0]


def test_a_setting_of_ones_own_wins_over_what_a_preset_says_in_another_way() -> None:
    """A noise multiplier over the preset's target epsilon, and steps over its epochs."""
    noisy, = experiments(["dpsgd"], [0], "yang2024", {"dataset": "compas", "noise_multiplier": 50.0, "steps": 3})
    assert (noisy.target_epsilon, noisy.noise_multiplier, noisy.steps) == (None, 50.0, 3)
    longer = merged({"steps": 30, "target_epsilon": 3.0}, {"epochs": 2})
    assert longer == {"target_epsilon": 3.0, "epochs": 2}
    both = {"steps": 3, "epochs": 2}
    assert merged({}, both) == both
    for settings, name in ((both, "steps is 3, .* epochs"), ({"target_epsilon": 3.0, "noise_multiplier": 50.0},
                                                             "target_epsilon is 3, .* noise_multiplier")):
        with pytest.raises(ValueError, match=rf"{name}, but that is given as well, \d+: leave one of the two out"):
            Experiment(**settings)


def test_options_that_are_given_stay_as_they_are() -> None:
    settings = {"options": {"max_bound": 9.0}, "dpsgd-f.options.max_bound": 3.0}
    experiments(["dpsgd-f"], [0], None, settings)
    assert settings == {"options": {"max_bound": 9.0}, "dpsgd-f.options.max_bound": 3.0}


@pytest.mark.parametrize("settings", [{"csv": "d/digits.csv"}, {"csv": "people.csv", "dataset": "digits"},
                                      {"csv": "adult.csv"}])
@pytest.mark.parametrize("preset", [None, "yang2024"])
def test_a_file_of_ones_own_gets_nothing_that_is_meant_for_a_data_set(settings: dict[str, str], preset: str | None
                                                                      ) -> None:
    columns = {"label": "hired", "group": "sex"}
    name = Path(settings["csv"]).stem
    other = experiments(["dpsgd-f"], [0], preset, {"csv": "other.csv", **columns})[0]
    assert experiments(["dpsgd-f"], [0], preset, {**settings, **columns}) == [
        other.model_copy(update={"csv": settings["csv"], "dataset": name})]
    assert preset or other.settings() == Experiment(csv="other.csv", strategy="dpsgd-f", **columns).settings()


def test_a_file_takes_the_place_of_the_data_set_however_it_is_named() -> None:
    assert settings_of(["csv=people.csv"]) == {"csv": "people.csv"}
    assert settings_of([], csv=Path("people.csv")) == {"csv": "people.csv"}
    assert settings_of([], dataset="adult") == {"dataset": "adult"}
    assert settings_of([]) == {"dataset": "digits"}
    assert settings_of([], default="adult") == {"dataset": "adult"}


@pytest.mark.parametrize("given", [{"csv": Path("people.csv")}, {}])
def test_a_file_and_a_data_set_are_not_given_together(given: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"csv is people\.csv, and dataset is adult: leave one of them out"):
        settings_of([] if given else ["csv=people.csv"], dataset="adult", **given)


def test_a_summary_is_of_all_seeds_of_a_method_on_one_data_set() -> None:
    """Means, sample deviations, the largest epsilons, and gaps by seed before their mean."""
    accuracy = {("sgd", 0): (0.9, 0.9), ("sgd", 1): (0.9, 0.9), ("dpsgd", 0): (0.8, 0.87), ("dpsgd", 1): (0.9, 0.87)}
    rows = [("adult", strategy, seed, 1, "test", group, metric, value if metric == "accuracy" else 2 * (1 - value))
            for (strategy, seed), (few, many) in accuracy.items()
            for group, value in (("few", few), ("many", many), ("all", (few + many) / 2))
            for metric in ("accuracy", "loss", "accuracy_parity", "demographic_parity", "equal_opportunity",
                           "equalised_odds")]
    metrics = pd.DataFrame(rows, columns=["dataset", "strategy", "seed", "round", "split", "group", "metric", "value"])
    ledgers = {(dataset, strategy, seed): Ledger(("few", "many"), 1e-5, accountant="rdp") for dataset in
               ("dutch", "adult") for strategy, seed in accuracy}
    for steps, (_, ledger) in enumerate(sorted(ledgers.items(), reverse=True)):
        ledger.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, 1.0)), 10 * (steps + 1))
        ledger.record_held_out("valid", 10.0 + steps)
    found = summarise(metrics, ledgers).set_index("strategy").loc["dpsgd"]
    own = [ledgers["adult", "dpsgd", seed] for seed in (0, 1)]
    assert found["epsilon"] == own[0].epsilon() > own[1].epsilon()
    assert found["validation_epsilon"] == own[1].held_out_epsilon("valid") > own[0].held_out_epsilon("valid")
    expected = {"accuracy_mean": 0.86, "accuracy_sd": 0.05 / math.sqrt(2), "accuracy_few_mean": 0.85,
                "accuracy_few_sd": 0.1 / math.sqrt(2), "accuracy_many_sd": 0.0, "privacy_cost_few_mean": 0.05,
                "privacy_cost_many_mean": 0.03, "excessive_risk_few_mean": 0.1, "excessive_risk_many_mean": 0.06,
                "privacy_cost_gap_mean": 0.05, "excessive_risk_gap_mean": 0.1}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["equal_cost"]
    copies = [f"copy {number:02}" for number in range(20)]
    many = summarise(pd.concat([metrics.assign(dataset=name) for name in copies]),
                     {(name, *run): ledger for name in copies for (_, *run), ledger in ledgers.items()})
    assert list(zip(many["strategy"], many["dataset"], strict=True)) == [
        (strategy, name) for strategy in ("sgd", "dpsgd") for name in copies]
    worse = metrics.assign(value=metrics["value"].where(metrics["value"] != 0.8, 0.79))
    assert not summarise(worse, ledgers).set_index("strategy").loc["dpsgd", "equal_cost"]
