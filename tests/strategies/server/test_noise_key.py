"""The noise key takes in everything that defines a seeded experiment, so that no two experiments share a draw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from torch import Tensor

from fedfair.mechanisms import noise
from fedfair.protocol.fields import marked
from fedfair.protocol.task import Task
from simulations import Experiment, run
from simulations.engines.checkpoint import Checkpoint
from simulations.results.result import Result
from strategies import STRATEGIES, file_of, find_strategy
from strategies.server.training import Training
from tests.strategies.test_contract import OPTIONS
from tests.strategies.two_groups import two_groups

SMALL: dict[str, Any] = {"split": (0.3, 0.2, 0.5), "hidden": (30,), "steps": 2, "batch_size": 32, "delta": 1e-4}
STAY_OUT = {"answer_timeout", "device", "figures", "metrics", "eval_every", "risk_every", "risk_records",
            "risk_vectors", "secure_aggregation", "theta"}
VALUES: list[Any] = [True, False, 3, 4, 0.123, 0.456, "x", ["x"], {"x": 1}, [0.5, 0.25, 0.25], [0.5, 0.5],
                     {"x": [0, 1]}, ["a", "b"], [3, 4], ["f1_macro"],
                     {"x": "date"}]


def key_of(made: Experiment) -> str:
    key = find_strategy(made.strategy).key_of(made.task, made.training)
    assert key is not None
    return key


def weights(result: Result) -> Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def others(field: FieldInfo) -> Iterator[Any]:
    """Yield values that a field allows, other than its default."""
    allowed = TypeAdapter(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
    named = str(field.annotation).split("'")  # the values of a Literal are among the parts
    for value in [*VALUES, *named, "local", "rdp", "discrete", "adam", "float64"]:
        try:
            made = allowed.validate_python(value)
        except ValidationError:
            continue
        if made != field.default:
            yield made


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("part", [Task, Training])
def test_every_setting_is_in_the_key_unless_it_changes_no_release(part: type[BaseModel]) -> None:
    """Also one that is added later. What stays out is in `STAY_OUT`, too: to leave a setting out is a decision."""
    parts = {Task: Task(), Training: Training()}
    before = STRATEGIES["dpsgd"].key_of(parts[Task], parts[Training])  # type: ignore[arg-type]
    for name in {*part.model_fields} - {"options", "randomness"}:
        changed = list(others(part.model_fields[name]))
        assert changed, name
        for value in changed:
            now = {**parts, part: parts[part].model_copy(update={name: value})}
            same = STRATEGIES["dpsgd"].key_of(now[Task], now[Training]) == before  # type: ignore[arg-type]
            assert same == (name in STAY_OUT or (name == "sync" and value == "step")), (name, value)


def test_what_stays_out_is_what_is_marked() -> None:
    assert {*marked(Task, "same_releases"), *marked(Training, "same_releases")} == STAY_OUT


def test_every_strategy_and_every_option_has_a_key_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one in a file whose class is called like a published one."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "yours"):
        Path(f"{name}.py").write_text("from strategies import dpsgd\nclass Dpsgd(dpsgd.Dpsgd):\n    ...\n")
        assert file_of(name) is not None
    keys = []
    for name in [*STRATEGIES, "mine", "yours"]:
        method, given = find_strategy(name), OPTIONS.get(name, {})
        plain = method.key_of(Task(), Training(options=given))
        keys.append(plain)
        for option, field in method.Options.model_fields.items():
            now = [{**given, option: value} for value in others(field) if value != given.get(option)]
            assert now
            assert plain not in [method.key_of(Task(), Training(options=options)) for options in now], option
            if option not in given:
                assert method.key_of(Task(), Training(options={**given, option: field.default})) == plain
    assert len(set(keys)) == len(keys) > 2


def test_a_key_is_of_128_bits_the_same_in_every_process_and_on_every_machine() -> None:
    """A run that goes on from a checkpoint draws what the first one would have drawn."""
    assert key_of(Experiment()) == "02238650ca436e66bc06e486bd1f842d"
    assert len(bytes.fromhex(key_of(Experiment()))) == 16
    assert key_of(Experiment(strategy="dpsgd-p")) == key_of(Experiment(threshold="roc"))
    assert key_of(Experiment(options={})) == key_of(Experiment(sync="step")) == key_of(Experiment())


def test_there_is_no_key_where_the_operating_system_draws() -> None:
    assert STRATEGIES["dpsgd"].key_of(Task(), Training(randomness="system")) is None


def test_a_measured_run_is_the_run_without_the_measurement() -> None:
    made = Experiment(strategy="dpsgd", **SMALL)
    plain = weights(run(made))
    for more in ({"eval_every": 0.01}, {"risk_every": 1, "risk_records": 7, "risk_vectors": 5}):
        assert torch.equal(weights(run(Experiment(strategy="dpsgd", **SMALL, **more))), plain)


def drawn_by(made: Experiment, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Run an experiment, and return all noise that it draws, by draw."""
    drawn: list[Tensor] = []
    normal = noise.normal

    def noted(*asked: Any) -> Tensor:
        values = normal(*asked)
        drawn.append(values.clone())
        return values

    with monkeypatch.context() as patch:
        patch.setattr(noise, "normal", noted)
        run(made)
    return drawn


TABLE: dict[str, Any] = {**two_groups(600), **SMALL, "strategy": "dpsgd-f", "threshold": "toc",
                         "threshold_epsilon": 1.0}
CHANGES: list[dict[str, Any]] = [
    {}, {"seed": 1}, {"noise_multiplier": 2.0}, {"noise_multiplier": 1 + 1e-12}, {"target_epsilon": 1.0},
    {"target_epsilon": 1.0, "delta": 1e-5}, {"target_epsilon": 1.0, "accountant": "rdp"}, {"clip_norm": 1.0},
    {"learning_rate": 0.02}, {"batch_size": 33}, {"steps": 3}, {"weight_decay": 0.1}, {"momentum": 0.5},
    {"count_noise_multiplier": 9.0}, {"threshold_epsilon": 2.0}, {"strategy": "dpsgd-f-quantile"},
    {"options": {"bounds": "authors"}}, {"trust": "local"}, {"trust": "distributed"}, {"sync": "epoch"},
    {"partition": "site", "clients": 2}, {"clients": 3}, {"split": (0.31, 0.2, 0.49)}, {"without": ["p"]},
    {"dtype": "float64"}, {"round_sizes": 2}, {"dropouts": 1}, {"hidden": (31,)}]


def test_no_noise_of_an_experiment_is_that_of_one_that_differs_in_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: look for a tensor of one run in all others, and among its own: equal, negative or correlated."""
    runs = [drawn_by(Experiment(**{**TABLE, **change}), monkeypatch) for change in CHANGES]
    long = torch.stack([values[:190].double() for drawn in runs for values in drawn if len(values) >= 190])
    assert len(long) > 2 * len(CHANGES)
    assert float(torch.corrcoef(long).fill_diagonal_(0).abs().max()) < 6 / 190**0.5
    numbers = torch.cat([values.double() for drawn in runs for values in drawn]).abs()
    shared = len(numbers) - len(numbers.unique())
    assert shared < 1e-2 * len(numbers)  # what single precision leaves to chance


def test_a_resumed_run_draws_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    made = Experiment(**{**TABLE, "steps": 6})

    def stop(done: int, rounds: int) -> None:
        if done == 4:
            raise InterruptedError

    checkpoint = Checkpoint(tmp_path / "out", made.settings(), 3)
    with pytest.raises(InterruptedError):
        run(made, checkpoint=checkpoint, progress=stop)
    resumed, undisturbed = run(made, checkpoint=checkpoint, nodes=2), run(made)
    assert torch.allclose(weights(resumed), weights(undisturbed), rtol=0, atol=1e-6)
    assert torch.equal(resumed.search.scores, undisturbed.search.scores)


def test_a_table_under_other_names_is_one_experiment_and_another_table_is_not(tmp_path: Path) -> None:
    """As a file whose two columns are the groups, and one in which they are one column."""
    rows = [(i % 2, "fm"[i // 2 % 2], "ns"[i // 4 % 2], i, 3 * i % 7) for i in range(80)]
    (tmp_path / "two.csv").write_text("y,sex,town,a,b\n" + "".join(f"{y},{s},{t},{a},{b}\n" for y, s, t, a, b in rows))
    (tmp_path / "one.csv").write_text("y,g,a,b\n" + "".join(f"{y},{s}{t},{a},{b}\n" for y, s, t, a, b in rows))
    strategy = find_strategy("dpsgd")

    def key(file: str, **settings: Any) -> str | None:
        """Return the key of a run on a file."""
        made = Experiment(csv=str(tmp_path / file), label="y", strategy="dpsgd", **settings)
        return strategy.key_of(made.task, made.training)

    same = key("two.csv", group="sex,town")
    assert key("one.csv", group="g") == same
    others = [key("two.csv", group="sex"), key("two.csv", group="sex,town", without=["a"]),
              key("two.csv", group="sex,town", without=["b"]), key("two.csv", group="sex,town", seed=1),
              key("two.csv", group="sex,town", split=[0.6, 0.2, 0.2])]
    assert len({same, *others}) == 6
