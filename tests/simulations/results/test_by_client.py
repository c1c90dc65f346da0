"""Metrics by site: those of each client's own records, on every number of nodes, in metrics, summary and report."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import sklearn.metrics
import torch

from fedfair.fairness.group_counts import log_odds
from simulations import Experiment, run
from simulations.engines.engines import make_engine
from simulations.report.tables import sites_table
from simulations.results.result import summary
from simulations.results.run_folder import read

SITES = {"hidden": [8], "steps": 3, "partition": "site", "clients": 3, "alpha": 0.3, "strategy": "dpsgd",
         "batch_size": 64, "favourable": 8, "metrics": ["hamming_loss"]}


def by_site(metrics: pd.DataFrame) -> pd.DataFrame:
    return metrics[metrics["split"] == "test by client"].set_index(["group", "metric"])["value"].unstack()


def test_each_site_has_the_metrics_of_its_own_records() -> None:
    result = run(Experiment(**SITES))
    found, held = by_site(result.metrics), result.experiment.task.clients_data()
    for number in range(3):
        test = held[number].test
        with torch.no_grad():
            output = result.model(test.features())
        own = found.loc[f"site {number}"]
        assert own["records"] == len(test)
        assert own["accuracy"] == pytest.approx(float((output.argmax(1) == test.y).double().mean()))
        assert own["hamming_loss"] == pytest.approx(1 - own["accuracy"])
        odds, favourable = log_odds(output.double(), 8), test.y == 8
        if favourable.any():
            exact = sklearn.metrics.roc_auc_score(favourable, odds)
            assert abs(own["auc"] - exact) <= own["auc_error"] + 1e-9
        else:
            assert pd.isna(own["auc"])
    everything = result.metrics.query("split == 'test' and group == 'all' and metric == 'accuracy'")["value"].iloc[-1]
    assert found.loc["all", "accuracy"] == pytest.approx(everything)


def test_nodes_add_up_to_the_same_metrics() -> None:
    one, three = (run(Experiment(**SITES), make_engine("local", nodes)).metrics for nodes in (1, 3))
    pd.testing.assert_frame_equal(one, three, rtol=1e-5)


def test_a_run_by_group_or_with_very_many_clients_has_none(tmp_path: Path) -> None:
    for settings in ({"partition": "group", "clients": None, "alpha": None}, {"clients": 101}):
        given = {key: value for key, value in {**SITES, **settings}.items() if value is not None}
        assert by_site(run(Experiment(**given)).metrics).empty


def test_the_summary_and_the_report_have_a_row_for_each_site(tmp_path: Path) -> None:
    result = run(Experiment(**SITES))
    row = summary([result]).iloc[0]
    found = by_site(result.metrics)
    for number in range(3):
        assert row[f"site_{number}_accuracy_mean"] == found.loc[f"site {number}", "accuracy"]
    assert row["site_accuracy_gap_mean"] == pytest.approx(found["accuracy"].drop("all").max()
                                                          - found["accuracy"].drop("all").min())
    table = sites_table(read([result.save(tmp_path / "out")])[1][0])
    assert table is not None
    assert [line[0] for line in table.rows] == ["site 0", "site 1", "site 2"]
    assert "metrics of each client" in result.ledger.unprotected
