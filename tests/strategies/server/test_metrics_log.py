"""The clip rule's numbers stand among the metrics, whenever they change."""

from __future__ import annotations

import pandas as pd
import pytest

from simulations import Experiment, run

QUICK = {"hidden": (8,), "steps": 6, "batch_size": 64}


def rule_rows(**settings: object) -> pd.DataFrame:
    metrics = run(Experiment(**QUICK, **settings)).metrics
    return metrics[metrics["split"] == "rule"]


def test_a_constant_clip_norm_is_told_once() -> None:
    rows = rule_rows(strategy="dpsgd", clip_norm=0.7)
    assert rows[["round", "group", "metric", "value"]].to_numpy().tolist() == [[1, "all", "clip_norm", 0.7]]


def test_each_groups_clip_norm_is_told_for_every_round_in_which_it_was_in_force() -> None:
    rows = rule_rows(strategy="dpsgd-f", clip_norm=0.7)
    assert set(rows["metric"]) == {"clip_norms"}
    wide = rows.pivot_table(index="round", columns="group", values="value")
    assert wide.shape == (6, 10)
    assert (wide >= 0.7).all().all()


def test_z_follows_its_update_and_the_base_clip_norm_does_not_move() -> None:
    rows = rule_rows(strategy="dpsgd-global-adapt", options={"bound": 5.0, "eta": 0.1}, noise_multiplier=0)
    bound = rows[rows["metric"] == "bound"].set_index("round")["value"]
    assert bound[1] == 5.0
    assert len(rows[rows["metric"] == "clip_norm"]) == 1
    assert bound[2] == pytest.approx(5.0 * 2.718281828 ** -0.1)  # no gradient is above 5, and nothing is noisy
