"""A node's policy: where it is found, and what is wrong with one, in a sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedfair.mechanisms.clipping import CLIP_RULES
from fedfair.mechanisms.counting import COUNT_QUERIES
from fedfair.models.published import MODELS
from fedfair.node.exchanges import is_of_fedfair
from fedfair.node.policy import FILE, VARIABLE, Data, Policy, find_policy, read_policy
from tests.for_each import for_each

DATA: dict[str, Any] = {"name": "digits", "largest_epsilon": 1.0, "delta": 1e-5, "smallest_noise_multiplier": 1.0}


def policy(folder: Path, **content: Any) -> Policy:
    path = folder / "node.toml"
    path.write_text(tomli_w.dumps({"data": [{**DATA, "task": {"dataset": "digits"}}], **content}))
    return read_policy(path)


def test_every_field_describes_itself() -> None:
    for model in (Policy, Data):
        for name, field in model.model_fields.items():
            assert field.description, name
            assert field.description.endswith("."), name


def test_a_policy_is_found_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_policy({}) is None
    Path(FILE).symlink_to("missing")  # a broken link is no permission
    assert find_policy({"partition-id": 0}) == Path(FILE)
    monkeypatch.setenv(VARIABLE, "/by/environment")
    assert find_policy({}) == Path("/by/environment")
    assert find_policy({"policy": "/by/flower"}) == Path("/by/flower")


def test_what_is_not_listed_is_not_allowed(tmp_path: Path) -> None:
    made = policy(tmp_path)
    assert made.ledger == tmp_path / "fedfair-node-ledger.jsonl"
    given = {"ledger", "data"}
    assert not any(value for name, value in made.model_dump().items() if name not in given)


@for_each(("content", "said"), [
    ({"rule": ["flat"]}, "unknown key of a policy 'rule': did you mean 'rules'"),
    ({"data": [{**DATA, "epsilon": 1}]}, "unknown key of a policy 'epsilon': did you mean 'largest_epsilon'"),
    ({"data": [{"name": "a"}]}, r"data.0.largest_epsilon is missing"),
    ({"data": []}, "data is"),
    ({"data": [{**DATA, "largest_epsilon": 0}]}, "data.0.largest_epsilon is 0"),
    ({"data": [{**DATA, "largest_epsilon": float("inf")}]}, "data.0.largest_epsilon is inf"),
    ({"data": [{**DATA, "smallest_noise_multiplier": 0.0}]}, "data.0.smallest_noise_multiplier is 0.0"),
    ({"data": [{**DATA, "delta": 1}]}, "data.0.delta is 1"),
    ({"data": [{**DATA, "task": {"model": "mlp"}}]}, "task has model, which a server chooses"),
    ({"data": [{**DATA, "task": {"dataset": "adult", "preprocessing": "private"}}]}, "its ledger cannot charge for it"),
    ({"data": [{**DATA, "task": {"dataset": "digit"}}]}, "unknown data set 'digit'"),
    ({"evaluated_parts": ["all"]}, "evaluated_parts.0 is 'all'"),
    ({"data": [DATA, {**DATA, "largest_epsilon": 2.0}]}, "called 'digits' with different limits"),
    ({"data": [{**DATA, "task": {"dataset": "digits"}}, {
        **DATA, "name": "b", "task": {"dataset": "digits", "seed": 1}}]},
     "called 'digits' and 'b': give both the same name"),
])
def test_what_is_wrong_is_said(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        policy(tmp_path, **content)


def test_a_file_under_two_paths_has_one_budget(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y,z\n")
    (tmp_path / "b.csv").symlink_to("a.csv")
    task = {"label": "y", "group": "z"}
    entries = [{**DATA, "name": name, "task": {**task, "csv": str(tmp_path / f"{name}.csv")}} for name in "ab"]
    with pytest.raises(ValueError, match="give both the same name"):
        policy(tmp_path, data=entries)


def test_a_changed_policy_is_read_anew(tmp_path: Path) -> None:
    assert policy(tmp_path).rules == ()
    assert policy(tmp_path, rules=["flat"]).rules == ("flat",)


def test_what_is_no_toml_is_said(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("no toml [")
    with pytest.raises(ValueError, match=r"node.toml is not TOML"):
        read_policy(tmp_path / "node.toml")


def test_the_policy_of_the_documentation_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "node-policy.md").read_text()
    (sample,) = re.findall(r"```toml title=.*?\n(.*?)```", page, re.DOTALL)
    (tmp_path / FILE).write_text(sample)
    made = read_policy(tmp_path / FILE)
    assert made.data[0].name == "patients"
    for name in (*made.exchanges, *made.exact_exchanges):
        assert is_of_fedfair(name), name
    assert set(made.rules) <= set(CLIP_RULES)
    assert set(made.queries) <= set(COUNT_QUERIES)
    assert set(made.models) <= set(MODELS)
