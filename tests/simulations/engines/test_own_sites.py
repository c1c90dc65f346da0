"""Nodes whose files each hold several sites: every site is a client, and the run is that of one file a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch

from fedfair.node.node import ClientError
from fedfair.node.policy import read_policy
from simulations import Experiment, run
from simulations.commands.node import init
from simulations.engines.engines import Local, make_engine
from simulations.settings.experiment import SettingsError
from tests.fedfair.datasets.test_node_table import SCHEMA, table

WARDS = (3, 1, 2)  # of each node
METHODS: dict[str, dict[str, Any]] = {
    "moments": {"model": "linear", "features": "binned", "batch_size": 30},
    "dpsgd": {"model": "logistic", "steps": 5, "batch_size": 30},
    "dpsgd-f": {"model": "logistic", "steps": 5, "batch_size": 30}}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Write a file with several wards for each node, and the schema, which does not know of wards."""
    (tmp_path / "study.toml").write_text(SCHEMA)
    for number, wards in enumerate(WARDS):
        frame = table(60 + 20 * number, number)
        ward = np.random.default_rng(number).choice([f"ward-{place}-Zaphod" for place in range(wards)], len(frame))
        frame.assign(ward=ward).to_csv(tmp_path / f"node{number}.csv", index=False)
    return tuple(str(tmp_path / f"node{number}.csv") for number in range(len(WARDS)))


def experiment(files: tuple[str, ...], strategy: str, **settings: Any) -> Experiment:
    return Experiment(**{"partition": "nodes", "schema_file": str(Path(files[0]).parent / "study.toml"),
                         "strategy": strategy, "dtype": "float64", "noise_multiplier": 0.0, **METHODS.get(strategy, {}),
                         **settings})


def assert_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for (name, value), (_, same) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.allclose(value, same, rtol=0, atol=1e-10), name


@pytest.mark.parametrize("strategy", METHODS)
def test_without_noise_sites_of_nodes_train_like_one_client_a_node(strategy: str, files: tuple[str, ...]) -> None:
    made = experiment(files, strategy)
    sites, nodes = run(made, Local(files=files, site="ward")), run(made, Local(files=files))
    assert_same(sites.model, nodes.model)
    assert sites.ledger.size == nodes.ledger.size == 47 + 59 + 73


def test_every_site_is_a_client_of_its_own_in_the_figures(files: tuple[str, ...]) -> None:
    result = run(experiment(files, "dpsgd-f", noise_multiplier=1.0, trust="local", sync="epoch", steps=2),
                 Local(files=files, site="ward"))
    apart = result.metrics[result.metrics.split == "test by client"]
    names = {f"node {node} site {place}" for node, wards in enumerate(WARDS) for place in range(wards)}
    assert names <= set(apart.group)
    assert not apart.group.str.contains("Zaphod").any()
    assert result.nodes is not None
    assert result.nodes.sites.tolist() == [*WARDS]
    assert result.nodes.records.tolist() == [47, 59, 73]
    assert result.nodes.answered.tolist() == [2, 2, 2]
    whole = result.metrics[(result.metrics.split == "test") & (result.metrics.group == "all")
                           & (result.metrics.metric == "accuracy")].value.iloc[-1]
    shares = result.nodes.test_records / result.nodes.test_records.sum()
    assert float((shares * result.nodes.accuracy).sum()) == pytest.approx(whole)


def test_local_epochs_of_one_batch_average_to_the_same_step(files: tuple[str, ...]) -> None:
    """An epoch that is one batch of all of a client's records moves the average by the sum over all records."""
    made = experiment(files, "dpsgd", sync="epoch", steps=2, batch_size=168, noise_multiplier=0.0)
    assert_same(run(made, Local(files=files, site="ward")).model, run(made, Local(files=files)).model)


@pytest.mark.parametrize("strategy", ["dp-fedavg", "moments-of-participants"])
def test_methods_for_participants_clip_each_site_by_itself(strategy: str, files: tuple[str, ...]) -> None:
    own = {"dp-fedavg": {"model": "logistic", "steps": 2, "batch_size": 10, "clip_norm": 1e-3},
           "moments-of-participants": {"model": "linear", "features": "binned", "batch_size": 30}}[strategy]
    made = experiment(files, strategy, noise_multiplier=1.0, **own)
    sites, nodes = run(made, Local(files=files, site="ward")), run(made, Local(files=files))
    assert (sites.ledger.size, nodes.ledger.size) == (6, 3)
    assert sites.ledger.protects == "participant"
    assert not torch.equal(next(sites.model.parameters()), next(nodes.model.parameters()))


def test_a_site_of_a_single_record_is_refused_and_not_named(files: tuple[str, ...]) -> None:
    frame = pd.read_csv(files[1])
    frame.assign(ward=["Zaphod-A", *["B"] * (len(frame) - 1)]).to_csv(files[1], index=False)
    made = experiment(files, "dpsgd-f", split=(0.98, 0.0, 0.02))
    with pytest.raises(ClientError, match="one of its sites may have a single training record") as refused:
        run(made, Local(files=files, site="ward"))
    assert "Zaphod" not in str(refused.value)
    assert "ward" not in str(refused.value)


@pytest.mark.parametrize("change", ["gone", "gaps"])
def test_a_column_of_sites_that_is_no_column_is_refused_without_its_name(change: str, files: tuple[str, ...]) -> None:
    frame = pd.read_csv(files[2])
    frame = frame.drop(columns="ward") if change == "gone" else frame.assign(ward=[None, *frame.ward[1:]])
    frame.to_csv(files[2], index=False)
    with pytest.raises(ClientError, match=r"column of sites|in of sites") as refused:
        run(experiment(files, "dpsgd-f"), Local(files=files, site="ward"))
    assert "ward" not in str(refused.value)


def test_a_column_with_another_role_and_sites_without_files_are_refused(files: tuple[str, ...]) -> None:
    with pytest.raises(ClientError, match="the column of label, group"):
        run(experiment(files, "dpsgd-f"), Local(files=files, site="sex"))
    with pytest.raises(SettingsError, match="site is 'ward', a column of nodes' own files"):
        make_engine("local", 2, {"site": "ward"})


def test_an_owner_enters_the_column_into_the_policy_and_the_server_never_names_it(files: tuple[str, ...],
                                                                                  tmp_path: Path) -> None:
    init(Path(files[0]), schema=tmp_path / "study.toml", epsilon=3.0, site="ward", out=tmp_path / "fedfair-node.toml")
    entry = read_policy(tmp_path / "fedfair-node.toml").data[0]
    assert entry.site == "ward"
    assert "ward" not in experiment(files, "dpsgd-f").task.text
    text = (tmp_path / "fedfair-node.toml").read_text().replace('file = "node0.csv"\n', "")
    (tmp_path / "other.toml").write_text(text)
    with pytest.raises(ValueError, match=r"site is 'ward', a column of the node's own file, and there is no file"):
        read_policy(tmp_path / "other.toml")
    assert tomli_w.dumps({"site": "ward"}) in (tmp_path / "fedfair-node.toml").read_text()


def test_sites_share_no_noise(files: tuple[str, ...]) -> None:
    """Their number is the nodes' word: who says too many would leave the others little noise."""
    made = experiment(files, "moments", noise_multiplier=1.0, noise="discrete", randomness="system",
                      trust="distributed", secure_aggregation=True)
    with pytest.raises(ValueError, match='holds 3 sites as clients, and trust is "distributed"'):
        run(made, Local(files=files, site="ward"))
