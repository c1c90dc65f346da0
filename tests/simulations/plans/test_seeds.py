"""Every seed of a comparison is checked before the first run."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations.plans.compare import compare, experiments


def test_a_seed_whose_split_lacks_a_group_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    rows = [f"{i % 7},{i % 2},{'C' if i < 2 else 'AB'[i % 3 // 2]}" for i in range(80)]
    file.write_text("\n".join(["x,hired,race", *rows]) + "\n")
    settings = {"csv": str(file), "label": "hired", "group": "race", "model": "logistic", "steps": 1, "batch_size": 16}
    rounds: list[int] = []
    with pytest.raises(ValueError, match=r"seed \d+: group 'C' has no record in the training part"):
        compare(experiments(["sgd"], list(range(40)), None, settings), on_round=lambda *now: rounds.append(now[0]))
    assert rounds == []
