"""What the server asks of the clients in one round: a frozen description that travels as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from fedfair.mechanisms.clipping import CLIP_RULES, ClipRule
from fedfair.mechanisms.counting import COUNT_QUERIES, CountQuery
from fedfair.mechanisms.noise import NoiseName, Trust

OptimizerName = Literal["sgd", "adam", "rmsprop"]


class LocalEpoch(NamedTuple):
    """One client's local epoch: so many steps, each with every record at a sampling rate, and the expected batch size.

    Of N records in batches of b: max(1, int(N / b)) steps at the rate min(1, b / N), and batches of min(b, N). Nothing
    without records.
    """

    steps: int
    rate: float
    batch_size: int

    @staticmethod
    def of(records: int, batch_size: int) -> LocalEpoch:
        """That of a client with this public number of records."""
        if records == 0:
            return LocalEpoch(0, 0.0, 0)
        return LocalEpoch(max(1, records // batch_size), min(1.0, batch_size / records), min(batch_size, records))


@dataclass(frozen=True)
class LocalTraining:
    """How each client trains by itself for one local epoch (sync = "epoch").

    `noise_multipliers`, `weights` and `sizes` have one entry for each client of the run: its own noise multiplier, its
    share in the average of the trained weights, and its public number of records, from which sampling rate and number
    of steps follow.
    """

    batch_size: int
    optimizer: OptimizerName
    learning_rate: float
    weight_decay: float
    momentum: float
    noise_multipliers: tuple[float, ...]
    weights: tuple[float, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class LocalSgd:
    """How a participant trains before its update is clipped as a whole: plain SGD in shuffled batches, without noise.

    Each of the `epochs` goes over all its records; `weight_decay` is that of `torch.optim.SGD`.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class Round:
    """One round: which batch, how its gradients are clipped and counted, and who adds which noise.

    `rates` are the sampling rates by group. `noise_multiplier` is relative to the rule's sensitivity,
    `count_noise_multiplier` to the query's (1). `clients` is the number over which distributed noise is shared. Without
    a `seed`, batches and noise come from the operating system, and `label`, which no other round has, tells a client
    that two exchanges of a round mean the same batch.
    """

    seed: int | None
    step: int
    rates: tuple[float, ...]
    noise_multiplier: float
    count_noise_multiplier: float
    trust: Trust
    clients: int
    rule: ClipRule | None = None
    query: CountQuery | None = None
    local: LocalTraining | None = None
    noise: NoiseName = "gaussian"
    label: str = ""
    local_sgd: LocalSgd | None = None

    def to_json(self) -> str:
        """The round as text, its rule and query by name."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.rule is not None:
            parts["rule"] = {"kind": CLIP_RULES.name_of(self.rule), **vars(self.rule)}
        if self.query is not None:
            parts["query"] = {"kind": COUNT_QUERIES.name_of(self.query), **vars(self.query)}
        for name in ("local", "local_sgd"):
            if parts[name] is not None:
                parts[name] = asdict(parts[name])
        return json.dumps(parts)

    @staticmethod
    @lru_cache(maxsize=2)
    def from_json(text: str) -> Round:
        """The round that `to_json` wrote; raises `ValueError` for an unknown rule or query."""
        parts = json.loads(text)
        parts["rates"], parts["trust"] = tuple(parts["rates"]), Trust(parts["trust"])
        for name, registry in (("rule", CLIP_RULES), ("query", COUNT_QUERIES)):
            if parts[name]:
                described = _tuples(parts[name])
                parts[name] = registry[described.pop("kind")](**described)
        if parts["local"]:
            parts["local"] = LocalTraining(**_tuples(parts["local"]))
        if parts["local_sgd"]:
            parts["local_sgd"] = LocalSgd(**parts["local_sgd"])
        return Round(**parts)


def refuse_distrust(round_: Round, purpose: str) -> None:
    """Raise `ValueError` if the server must not see sums without noise, which `purpose` needs."""
    if round_.trust is not Trust.CENTRAL:
        raise ValueError(f"sums for {purpose} leave a client without noise, but trust is {round_.trust.value!r}: only "
                         "central trust allows it")


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """JSON's lists as the tuples that frozen descriptions hold."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
