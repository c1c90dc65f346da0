"""An audit by replay of every mistake of `tests.hazards.test_hazards`: it finds those that show in what leaves.

The others are in `UNSEEN`, each with the reason why no replay can tell it from the program as it is.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from fedfair.accounting.contents import Part
from fedfair.accounting.log import EventLog
from fedfair.mechanisms import noise
from fedfair.mechanisms.randomness import poisson
from fedfair.models.published import MODELS
from fedfair.node import node as host
from simulations.audits import neighbour_files
from simulations.audits.replay import Left, Program, ReplayAudit, replay
from simulations.audits.replayed import fit_of, run_of
from simulations.engines.run import run
from simulations.fitting.fit import Wanted
from simulations.results import folder_files
from simulations.settings.experiment import Experiment
from strategies.dpsgd_global import DpsgdGlobalAdapt
from tests.hazards.test_hazards import MUTATIONS, ORIGINAL_LEARN
from tests.hazards.test_mixing import Standardise
from tests.simulations.engines.test_checkpoint import Stopped, place, stopping_at

RUN: dict[str, Any] = {
    "strategy": "dpsgd", "target_epsilon": 1.0, "label": "hired", "group": "sex", "steps": 8, "hidden": (4,),
    "clip_norm": 0.02, "batch_size": 100, "ranges": {"years": [0, 30]}, "decimal": ".",
    "missing": "drop"}
SHARES = {"trust": "distributed", "clients": 3}
COUNTS = {"strategy": "dpsgd-f"}

FROM_DICT = EventLog.from_dict

SETTINGS: dict[str, dict[str, Any]] = {
    "noise_at_the_base_clip_norm": COUNTS, "no_noise_on_counts": COUNTS, "counts_left_out_of_the_ledger": COUNTS,
    "counts_left_out_of_the_calibration": {**COUNTS, "count_noise_multiplier": 12.0, "clip_norm": 0.9},
    "division_by_the_realised_batch": {"batch_size": 32, "steps": 40},
    "batch_norm_accepted": {"model": "mixing"},
    "interaction_sought_by_outputs_in_evaluation": {"model": "mixing"},
    "a_state_that_the_first_batch_shows_or_nothing": {"model": "keeping", "steps": 3},
    "scaling_by_the_records_called_proved": {"ranges": None, "preprocessing": "records"},
    "a_seeded_run_called_proved": {}, "fairlens_called_proved": {"strategy": "fairlens"},
    "a_nan_that_passes_the_clip": {"model": "undefined"}, "a_zero_gradient_divided_by_its_norm": {"model": "flat"},
    "shares_of_one_in_n": SHARES, "shares_of_lost_clients_counted": SHARES, "one_stream_for_sampling_and_noise": SHARES,
    "a_search_that_is_not_charged": {"threshold": "toc", "threshold_epsilon": 1.0, "split": (0.5, 0.3, 0.2)},
    "noise_in_floating_point": {"noise": "discrete", "dtype": "float64"}, "clipping_layer_by_layer": {},
    "the_sensitivity_of_theta_forgotten": {"strategy": "naive"}, "shuffled_batches": {},
    "noise_over_the_groups_that_are_present": {**COUNTS, "batch_size": 4, "trust": "local", "clients": 2},
    "an_adaptive_bound_divided_by_the_realised_batch": {"strategy": "dpsgd-global-adapt"},
    "results_without_labels": {"seed": 6},
}
"""Settings of the run in which each is found."""


def two_settings(table: Path, folder: Path) -> Left:
    """Run with two clip norms."""
    folder.mkdir()
    for number, clip_norm in enumerate((0.02, 0.03)):
        made = Experiment(**{**RUN, "noise_multiplier": 30.0, "target_epsilon": None, "clip_norm": clip_norm,
                             "csv": str(table), "randomness": "seeded"})
        (folder / f"{number}.txt").write_text(str(run(made).model.state_dict()))
    return Left(math.inf, lambda moved: 0.0, {"rows": len(made.task.data().train)}, logs=False)


def in_two_goes(table: Path, folder: Path) -> Left:
    """Run, stop, and go on."""
    made = Experiment(**{**RUN, "csv": str(table), "randomness": "seeded"})
    checkpoint = place(made, folder / "checkpoint")
    with pytest.raises(Stopped):
        run(made, progress=stopping_at(4), checkpoint=checkpoint)
    ledger = run(made, checkpoint=checkpoint).ledger
    shutil.rmtree(folder / "checkpoint")
    return Left(ledger.epsilon(), lambda moved: 0.0, {"rows": len(made.task.data().train)}, logs=False,
                listed=ledger.events.total())


PROGRAMS: dict[str, Callable[[Path], Program]] = {
    "a_seed_after_all": lambda file: fit_of(Wanted(file, "hired", "sex", settings={"ranges": {"years": [0, 30]}})),
    "a_seed_alone_as_the_key_of_the_noise": lambda file: two_settings,
    "a_ledger_that_starts_from_zero": lambda file: in_two_goes,
}
"""Programs in which others are."""

REFUSED = {"batch_norm_accepted": "its examples interact",
           "interaction_sought_by_outputs_in_evaluation": "its examples interact"}
NOMINAL = {"fairlens_called_proved", "scaling_by_the_records_called_proved", *REFUSED}
"""Where the program as it is says that nothing is proved, or refuses."""

UNSEEN: dict[str, tuple[str, dict[str, Any]]] = {
    "a_small_client_divides_by_the_batch_size_of_all": (
        "what is divided after the noise was added shows no record, and costs none anything",
        {"sync": "epoch", "steps": None, "epochs": 1, "clients": 10}),
    "a_client_in_two_replies": (
        "nodes that answer for one client are refused by what they say of their clients before", {"clients": 2}),
    "an_inverted_bit": ("what is made of a noisy count shows no record", {"strategy": "dp-fedavg"}),
    "clipping_after_the_noise": ("what is clipped after the noise was added shows no record", {}),
}
"""Those that no replay can tell from the program as it is: why, and settings of a run that has them."""


class Undefined(nn.Module):
    """Has no number for an extreme first feature."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, 2)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(torch.where(x[:, :1] == 1, torch.nan, x))


class Level(nn.Module):
    """Has no slope for an extreme first feature."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(x * (x[:, :1] != 1))


class Keeping(nn.Module):
    """Divides by a large number once it has seen an extreme first feature."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, 2)
        self.register_buffer("most", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        self.most.copy_(torch.where((x.detach()[:, 0] == 1).any(), 1e3, self.most))
        return self.head(x / self.most)


def mixing(features: int) -> nn.Module:
    """Return a model whose examples see each other."""
    return nn.Sequential(nn.Linear(features, 4), Standardise(), nn.Linear(4, 2))


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a table, of which a row is changed in few ways, and register models."""
    monkeypatch.setattr(neighbour_files, "_ROWS", 1)
    monkeypatch.setattr(neighbour_files, "CELLS", ("", "9999"))
    monkeypatch.setattr(neighbour_files, "LINES", {})
    for name, make in {"mixing": mixing, "keeping": Keeping, "undefined": Undefined, "flat": Level}.items():
        def built(shape: Sequence[int], hidden: Sequence[int], classes: int, make: Any = make) -> nn.Module:
            return nn.Sequential(nn.Flatten(), make(math.prod(shape)))

        monkeypatch.setitem(MODELS._values, name, built)
    draws, records = np.random.default_rng(0), 300
    pd.DataFrame({"years": draws.integers(1, 30, records), "sex": draws.choice(["f", "m"], records),
                  "hired": draws.choice(["no", "yes"], records)}).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


def audited(name: str, file: Path) -> ReplayAudit:
    """Replay the program in which a mistake shows."""
    settings = UNSEEN[name][1] if name in UNSEEN else SETTINGS.get(name, {})
    program = PROGRAMS[name](file) if name in PROGRAMS else run_of({**RUN, **settings})
    return replay(program, file, "hired", "sex")


def test_every_mistake_is_found_or_has_a_reason() -> None:
    planted = {mutation.plant.__name__ for mutation in MUTATIONS}
    assert planted == {*SETTINGS, *PROGRAMS, *UNSEEN}
    assert len(planted) == len(SETTINGS) + len(PROGRAMS) + len(UNSEEN)


def planted(name: str, patch: pytest.MonkeyPatch) -> None:
    """Plant a mistake; four, which the table has in a test's or a reader's own code, where a run has it."""
    next(mutation.plant for mutation in MUTATIONS if mutation.plant.__name__ == name)(patch)
    if name == "noise_in_floating_point":
        patch.setattr(noise, "add_discrete_gaussian", noise.add_gaussian)
    if name == "a_ledger_that_starts_from_zero":
        patch.setattr(EventLog, "from_dict", staticmethod(lambda values: FROM_DICT({**values, "events": []})))
    if name == "results_without_labels":  # exact figures, of which the ledger says that they have noise
        patch.setattr(folder_files, "_held_out", lambda run: (Part("figures", "releases"),))
    if name == "an_adaptive_bound_divided_by_the_realised_batch":
        sizes = [1]

        def drawn(*args: Any) -> Tensor:
            """Draw a batch, and note its size."""
            batch = poisson(*args)
            sizes.append(max(len(batch), 1))
            return batch

        patch.setattr(host, "poisson", drawn)
        patch.setattr(DpsgdGlobalAdapt, "learn", lambda self, counts, expected: ORIGINAL_LEARN(self, counts, sizes[-1]))


def slow(name: str) -> Any:
    """Mark a program that trains a model example by example."""
    return pytest.param(name, marks=pytest.mark.slow) if "state" in name else name


@pytest.mark.parametrize("name", map(slow, [*SETTINGS, *PROGRAMS]))
def test_a_planted_mistake_is_found(name: str, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(name, monkeypatch)
    assert audited(name, people).refuted


@pytest.mark.slow
@pytest.mark.parametrize("name", UNSEEN)
def test_a_mistake_that_no_replay_sees_is_not_found(name: str, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is no longer one of these."""
    planted(name, monkeypatch)
    assert not audited(name, people).refuted


def apart(names: Iterable[str]) -> list[str]:
    """Return one name of each program: some mistakes are planted in the same."""
    return [*{str(SETTINGS.get(name, name)): name for name in sorted(names)}.values()]


@pytest.mark.slow
@pytest.mark.parametrize("name", apart({*SETTINGS, *PROGRAMS} - NOMINAL))
def test_nothing_is_found_in_the_same_programs_as_they_are(name: str, people: Path) -> None:
    assert not audited(name, people).refuted


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_not_be_proved_is_refused_as_it_is(name: str, people: Path) -> None:
    with pytest.raises(ValueError, match=REFUSED[name]):
        audited(name, people)
