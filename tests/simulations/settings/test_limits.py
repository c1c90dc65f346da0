"""What no computer can do is refused within seconds, in one sentence, without using memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.main import get_command

from simulations import Experiment
from simulations.cli import app
from simulations.engines.run import refuse_unfit
from simulations.plans.sweep import Sweep
from simulations.settings.experiment import SettingsError

NEVER = {"number": ("-1", "nan", "inf", "1e300", '"x"', "[1]"), "integer": ("-1", "1.5", "nan", '"x"', "[1]", "10e30")}
"""Values that no setting of a kind takes."""

HUGE = {"clip_norm": ("1e16", "5e-324"), "noise_multiplier": ("1e7", "5e-324"), "weight_decay": ("1e39", "5e-324"),
        "learning_rate": ("1e39", "5e-324"), "delta": ("5e-324",), "epochs": ("1e9", "5e-324"),
        "eval_every": ("5e-324", "1e12"), "target_epsilon": ("5e-324",), "count_noise_multiplier": ("1e12",),
        "steps": ("100000000000000000000", "1000000000"), "clients": ("1000000000", "100000000000000000000"),
        "round_sizes": ("1000000000",), "hidden": ("[100000000000]", "[100000, 100000]", "[1000000000, 1000000000]"),
        "risk_every": ("100000000000000000000",), "batch_size": ("100000000000000000000", "9223372036854775808"),
        "dropouts": ("1000000000000",), "answer_timeout": ("1e12",), "device": ("meta", "abacus"),
        "alpha": ("1e300", "5e-324"), "options.max_bound": ("1e300", "inf"), "seed": ("3",)}


def extremes() -> Iterator[str]:
    """Yield bad settings, key=value: all that no setting takes, and what is too large for some."""
    for name, field in Experiment.model_json_schema()["properties"].items():
        kinds = {kind.get("type") for kind in (field, *field.get("anyOf", []))} - {"null", None}
        if kinds in ({"number"}, {"integer"}) and name != "seed":
            yield from (f"{name}={value}" for value in NEVER[kinds.pop()])
    for name, values in HUGE.items():
        yield from (f"{name}={value}" for value in values)


COMMAND = get_command(app)
"""What `fedfair` runs, made once: it takes longer than to refuse most settings."""

COMMANDS: list[list[str]] = [
    ["run", "--nodes", "1000000"], ["compare", "--seeds", "1000000"], ["compare", "--seeds", "1" + "0" * 20],
    ["audit", "--seeds", "1000000"], ["audit", "--canaries", "1" + "0" * 12], ["curve", "--seeds", "1000000"],
    ["run", "--engine", "ray", "--engine-set", "timeout=1e300"],
    ["run", "--engine", "ray", "--engine-set", "restarts=1" + "0" * 12],
    ["run", "--epsilon", "1e300"], ["run", "--epsilon", "nan"], ["run", "--delta", "5e-324"],
    ["run", "--risk", "every=1", "--risk", "vectors=1" + "0" * 12],
    ["run", "--risk", "every=1", "--risk", "records=1" + "0" * 12],
    ["run", "--strategy", "dp-fedavg", "--set", "options.local_epochs=1000000000"],
    ["run", "--set", "epochs=1e8", "--set", "batch_size=1"],
    ["run", "--out", "a\0b"], ["report", "a\0b"], ["run", "--csv", "a\0b", "--label", "a", "--group", "b"]]


def refused(arguments: list[str]) -> str:
    """Run a command in this process, and return what it says; it must end at once, and take no memory."""
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    done = CliRunner().invoke(COMMAND, arguments)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True), (arguments, done.exception)
    assert "Traceback" not in done.output
    assert time.process_time() - begun < 5
    assert after.ru_maxrss - before.ru_maxrss < 500_000  # kB
    return " ".join(done.stderr.split())


def test_there_are_many_bad_settings() -> None:
    assert len([*extremes()]) > 180


def test_a_setting_that_cannot_be_is_refused_at_once() -> None:
    for setting in extremes():
        said = refused(["run", "--set", setting])
        assert said.startswith("Error: "), setting
        assert setting.partition("=")[0].removeprefix("options.") in said, setting


def test_a_command_that_cannot_be_is_refused_at_once() -> None:
    for arguments in COMMANDS:
        refused(arguments)


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for command in (["run", "--out"], ["compare", "--out"], ["ledger"], ["report"], ["audit", "--out"]):
        assert "symbolic links" in refused([*command, str(tmp_path / "loop" / "x")]), command


def test_what_is_refused_is_said_with_what_could_be() -> None:
    said = refused(["run", "--set", "hidden=[100000,100000]"])
    assert "10,007,600,010 parameters" in said or "parameters, which take at least 1" in said
    assert "with at most" in said
    assert "from 1e-20 to 1e+15" in refused(["run", "--set", "clip_norm=1e20"])
    assert "take at most 100,000,000 rounds" in refused(["run", "--set", "epochs=1e8", "--set", "batch_size=1"])
    assert "is larger than any memory" in refused(
        ["run", "--dataset", "digits", "--set", "model=cnn", "--set", "hidden=[1000000000,1000000000]"])


def test_a_sweep_that_no_machine_can_list_is_refused() -> None:
    with pytest.raises(SettingsError, match="seeds is 100000000000000000000: give at most 1,000"):
        Sweep(strategies=("dpsgd",), seeds=10**20)
    with pytest.raises(SettingsError, match="this sweep has 1,000,000 trials"):
        Sweep(strategies=("dpsgd",), seeds=100, vary={"clip_norm": [*range(1, 101)], "epochs": [*range(1, 101)]})


VALUES = st.one_of(st.floats(), st.integers(), st.text(max_size=5), st.booleans(), st.none(), st.just(10**30),
                   st.lists(st.floats() | st.integers() | st.text(max_size=3), max_size=3),
                   st.dictionaries(st.text(max_size=3), st.floats() | st.lists(st.floats(), max_size=2), max_size=2))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted({*Experiment.model_fields} - {"dataset", "csv", "schema_file"})), VALUES,
                       min_size=1, max_size=3))
def test_any_values_make_an_experiment_that_can_be_planned_or_a_sentence(chosen: dict[str, Any]) -> None:
    try:
        refuse_unfit([Experiment(**{"strategy": "dpsgd-f", "delta": 1e-4, **chosen})])
    except ValidationError:  # which is a ValueError, but no sentence
        raise
    except (ValueError, OSError):
        pass
