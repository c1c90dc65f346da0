"""A peer in the frontier: from the probabilities that it states to points and pages; a small fake one stands in."""

from __future__ import annotations

import math
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import tomli_w
import torch
import typer
from typer.testing import CliRunner

from fedfair.datasets import GroupedDataset, Parts
from fedfair.datasets.features.encoding import Encoding, Feature
from fedfair.fairness.reject_option import score
from simulations.benchmarks import frontier_dp_ebm
from simulations.benchmarks.frontier_dp_ebm import BLIND, BY_GROUP, KNOWN, SETTINGS, asked_plan, known, raw, trained
from simulations.benchmarks.peer_points import Stated, by_group, one_threshold
from simulations.engines.run import run
from simulations.reproductions import frontier
from simulations.settings.experiment import Experiment

FAKE = """#!{python}
# Says more the more categories of a row are the first of their lists, the group among them where it may be seen.
import json, sys
from pathlib import Path
import numpy as np, pandas as pd
folder = Path(sys.argv[2])
task = json.loads((folder / "task.json").read_text())
train, held_out = (pd.read_parquet(folder / f"{{name}}.parquet") for name in ("train", "held_out"))
assert {{*task["ranges"], *task["kinds"], task["label"]}} == {{*train}}, (task, train)
scores = {{}}
for name, asked in task["asked"].items():
    seen = [column for column in task["kinds"] if column not in asked["without"]]
    kinds = sum((held_out[column] == task["kinds"][column][0]).to_numpy() for column in seen)
    scores[name] = 1 / (1 + np.exp(held_out[list(task["ranges"])[0]] / 10 - kinds + 2.5 * asked["epsilon"] / 3))
pd.DataFrame(scores).to_parquet(folder / "scores.parquet")
print(json.dumps({{"seconds": {{name: 1.5 for name in scores}}}}))
"""


@pytest.fixture
def fake(tmp_path: Path) -> str:
    """Write a peer's python, which trains nothing."""
    file = tmp_path / "python"
    file.write_text(FAKE.format(python=sys.executable))
    file.chmod(0o755)
    return str(file)


def made_parts(seed: int = 0, records: int = 400) -> tuple[Parts, Stated]:
    """Return records of two groups with scores that favour the second."""
    draws = torch.Generator().manual_seed(seed)

    def part() -> tuple[GroupedDataset, torch.Tensor]:
        group = torch.randint(0, 2, (records,), generator=draws)
        scores = (torch.rand(records, generator=draws, dtype=torch.float64) * 0.8 + 0.2 * group).clamp(0.01, 0.99)
        y = (torch.rand(records, generator=draws) < scores).long()
        return GroupedDataset(torch.zeros(records, 1), y, group, ("a", "b"), 2), scores

    (train, _), (valid, of_valid), (test, of_test) = part(), part(), part()
    return Parts(train, valid, test), Stated("x", {"valid": of_valid, "test": of_test})


def test_points_of_one_threshold_are_counted_one_record_at_a_time() -> None:
    parts, stated = made_parts()
    points = {(point.setting, point.split): point.figures for point in one_threshold(parts, stated)}
    assert len(points) == 14
    for setting, threshold in (("x", 0.5), ("x, threshold 0.3", 0.3)):
        for split in ("valid", "test"):
            data, right, chosen = getattr(parts, split), {0: 0, 1: 0}, {0: 0, 1: 0}
            sizes = data.group_sizes()
            for p, y, group in zip(stated.scores[split].tolist(), data.y.tolist(), data.group.tolist(), strict=True):
                right[group] += (p > threshold) == (y == 1)
                chosen[group] += p > threshold
            accuracies, rates = ([of[k] / sizes[k] for k in (0, 1)] for of in (right, chosen))
            assert points[setting, split] == pytest.approx({
                "accuracy": sum(right.values()) / sum(sizes), "demographic_parity": abs(rates[0] - rates[1]),
                "accuracy_parity": abs(accuracies[0] - accuracies[1]), "worst_group": min(accuracies)})


def gs(**settings: object) -> Experiment:
    """Return a short run of the frontier's method with thresholds by group."""
    return Experiment(**{"strategy": "gs-dp-sgd-to", "dataset": "compas", "features": "bounded", "model": "linear",
                         "steps": 3, "batch_size": 500, "learning_rate": 10.0, "noise_multiplier": 1.0, "theta": 0.05,
                         "sync": "step", "attribute_in_model": True, "eval_every": 1000.0, "preprocessing": "public",
                         "split": (0.7, 0.1, 0.2), **settings})


def test_a_peer_that_says_what_the_frontiers_own_method_says_has_its_figures(data_dir: Path) -> None:
    result = run(gs())
    scores = {}
    for split in ("valid", "test"):
        with torch.no_grad():
            output = result.model(getattr(result.data, split).features())
        scores[split] = score(output, 1)[0]
    points = {point.split: point.figures for point in by_group(result.data, Stated("own", scores), gs())}
    of_run = frontier._figures(result.metrics)
    for split in ("valid", "test"):
        assert points[split] == pytest.approx(of_run[split])
    plain = {point.split: point.figures for point in one_threshold(result.data, Stated("own", scores))
             if point.setting == "own"}
    assert plain["test"]["demographic_parity"] > points["test"]["demographic_parity"] + 0.02


def test_noise_of_the_search_is_that_of_the_epsilon_and_each_settings_own() -> None:
    parts, stated = made_parts(records=4000)

    def gap(epsilon: float | None, setting: str = "x") -> float:
        found = list(by_group(parts, stated._replace(setting=setting), gs(threshold_epsilon=epsilon, theta=0.01)))
        assert found[0].setting == f"{setting}, theta 0.01"
        return found[0].figures["demographic_parity"]

    assert gap(None) <= 0.011
    assert gap(10.0) < 0.05
    assert gap(0.1) == gap(0.1)
    assert len({gap(0.05, name) for name in "abcd"}) > 1
    assert max(gap(0.02, name) for name in "abcd") > gap(None)


def test_cells_are_those_that_features_were_made_of() -> None:
    features = (Feature("age"), Feature("job", "cook"), Feature("job", "nurse"))
    x = torch.tensor([[30.0, 0, 1], [40.0, 1, 0], [50.0, 0, 0]])
    data = GroupedDataset(x, torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), ("a", "b"), 2,
                          encoding=Encoding(features))
    wanted = pd.DataFrame({"age": [30.0, 40.0, 50.0], "job": ["nurse", "cook", "missing"],
                           "favoured": ["no", "yes", "yes"]})
    pd.testing.assert_frame_equal(raw(data), wanted, check_dtype=False)


def entry_of_compas() -> frontier.Entry:
    """Return a run of the frontier."""
    plan = asked_plan(("compas",), (1.0,), 1, 1)
    of_moments = plan.model_copy(update={"methods": {"moments": plan.methods["moments"]}})
    return next(frontier.runs_of(of_moments, "cpu"))


def test_what_a_peer_says_of_a_row_is_kept_with_its_record(fake: str, data_dir: Path) -> None:
    entry = entry_of_compas()
    table, parts = known(entry), entry.experiment.task.data()
    said, seconds = trained(fake, table, entry, [3.0])
    assert len(said) == len(seconds) == 2 * len(SETTINGS)
    for (_, knows, _), scores in said.items():
        for split in ("valid", "test"):
            for record, p in zip(getattr(parts, split).records.tolist(), scores[split].tolist(), strict=True):
                row = table.rows.iloc[record]
                firsts = sum(row[name] == listed[0] for name, listed in table.kinds.items() if knows or name != "race")
                assert p == pytest.approx(1 / (1 + math.exp(row["priors_count"] / 10 - firsts + 2.5)))


def test_a_peer_has_the_records_of_the_run_and_what_is_public_of_them(data_dir: Path) -> None:
    entry = entry_of_compas()
    table = known(entry)
    parts = entry.experiment.task.data()
    for _, part in parts:
        rows = table.rows.iloc[part.records.tolist()]
        assert (rows["favoured"] == "yes").tolist() == (part.y == 1).tolist()
        assert rows["race"].tolist() == [part.names[group] for group in part.group.tolist()]
    assert {*table.ranges, *table.kinds, "favoured"} == {*table.rows}
    assert table.ranges == {"priors_count": (0, 30)}
    assert table.group == "race"
    assert all({*table.rows[name]} <= {*listed} for name, listed in table.kinds.items())


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the frontier be one of a short run of moments, with few limits."""
    config = tomllib.loads(frontier.CONFIG.read_text(encoding="utf-8"))
    kept = {name: config["methods"][name] for name in ("moments", "moments, group known", "gs-dp-sgd-to")}
    for name in ("moments", "moments, group known"):
        kept[name] = {**kept[name], "grid": {}}
    config |= {"methods": kept, "limits": {name: limits[-2:] for name, limits in config["limits"].items()}}
    file = tmp_path / "small.toml"
    file.write_text(tomli_w.dumps(config))
    load = frontier.load
    monkeypatch.setattr(frontier, "load", lambda *request: load(*request, file=file))


@pytest.mark.usefixtures("small", "data_dir")
def test_the_command_writes_pages_and_makes_nothing_twice(fake: str, tmp_path: Path) -> None:
    out, app = tmp_path / "out", typer.Typer()
    app.command()(frontier_dp_ebm.main)
    asked = [str(out), "--datasets", "compas", "--epsilon", "1", "--epsilon", "3", "--seeds", "1"]
    first = CliRunner().invoke(app, [*asked, "--pictured-seeds", "2", "--peers", fake], catch_exceptions=False)
    assert first.exit_code == 0, first.output
    assert first.output.splitlines()[:2] == ["compas, seed 0: DP-EBM at 1, 3", "compas, seed 1: DP-EBM at 1"]
    assert "Epsilon 1, gap of demographic parity: no front passes that of moments" in first.output
    points = pd.read_csv(out / "points.csv")
    assert {*points["method"]} == {"moments", "moments, group known", BLIND, KNOWN, BY_GROUP}
    theirs = points[points["method"].isin([BLIND, KNOWN, BY_GROUP])]
    assert theirs.groupby("method")["setting"].nunique().to_dict() == {
        BLIND: 7 * len(SETTINGS), KNOWN: 7 * len(SETTINGS), BY_GROUP: 3 * len(SETTINGS)}
    assert theirs.groupby("epsilon")["seed"].unique().map(list).to_dict() == {1.0: [0, 1], 3.0: [0]}
    ours = points[points["method"] == "moments"].groupby("seed")["majority"].first()
    assert theirs.groupby("seed")["majority"].first().to_dict() == pytest.approx(ours.to_dict())
    page = (out / "README.md").read_text()
    assert ("`python -m simulations.benchmarks.frontier_dp_ebm DIR --peers PYTHON --datasets compas --epsilon 1 "
            "--epsilon 3 --seeds 1 --pictured-seeds 2`") in page
    assert f"| {BLIND} | compas | 18 | 1.50 |" in page
    assert f"| {BY_GROUP} |" in page
    assert {"accuracy-parity.md", "worst-group-error.md", "compas-1.svg"} <= {file.name for file in out.iterdir()}
    again = CliRunner().invoke(app, [*asked, "--pictured-seeds", "2", "--peers", "/nowhere"], catch_exceptions=False)
    assert again.exit_code == 0, again.output
    assert (out / "README.md").read_text() == page


def test_a_plan_has_tables_and_finite_epsilons_alone() -> None:
    plan = asked_plan((), (), 5, 20)
    assert plan.epsilons == (0.1, 0.3, 1.0, 3.0)
    assert "mnist" not in plan.datasets
    assert plan.rivals("moments") == [BLIND]
    assert plan.rivals("moments, group known") == [KNOWN, BY_GROUP]
    assert not any(map(math.isinf, plan.epsilons))
