"""The plan of one round, frozen, which travels as JSON: what nodes compute, which noise is added, what it charges."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

from fedfair.accounting.events import Event, spent_multipliers
from fedfair.mechanisms.clipping import CLIP_RULES, ClipRule, sensitivity
from fedfair.mechanisms.counting import COUNT_QUERIES, CountQuery
from fedfair.mechanisms.noise import NoiseName, Trust, client_share, server_share
from fedfair.mechanisms.rule_numbers import is_number
from fedfair.mechanisms.rule_trial import refuse_broken_query, refuse_broken_rule
from fedfair.models.optimizers import OptimizerName
from fedfair.plugins.text_values import from_json
from fedfair.protocol.local_budget import LocalBudget, LocalEpoch, noise_within


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """Settings by which each client trains by itself for one local epoch, or several (sync = "epoch").

    Args:
        batch_size: Expected batch size.
        optimizer: Name of the client's optimiser.
        learning_rate: Its learning rate.
        weight_decay: Its weight decay.
        momentum: Its momentum.
        noise_multipliers: Noise multiplier of each client of the run.
        weights: Each client's share in the average of the trained weights.
        sizes: Each client's public number of records, from which sampling rate and number of steps follow.
        proximal: Weight mu of the term mu / 2 ||w - w_0||^2 that holds the weights near those that the epoch begins
            with (FedProx; Li et al. 2020, Equation 2).
        bounds_fixed: Whether the bounds of the rule are the same in all rounds, so that each group is guaranteed the
            noise in units of its own bound.
        epochs: Number of local epochs in a round.
    """

    batch_size: int
    optimizer: OptimizerName
    learning_rate: float
    weight_decay: float
    momentum: float
    noise_multipliers: tuple[float, ...]
    weights: tuple[float, ...]
    sizes: tuple[int, ...]
    proximal: float = 0.0
    bounds_fixed: bool = False
    epochs: int = 1

    def __post_init__(self) -> None:
        """Raise `ValueError` for a proximal term that pushes weights away, or to nowhere, or no number of epochs."""
        _refuse_outside("proximal", self.proximal, math.inf)
        if type(self.epochs) is not int or self.epochs < 1:
            raise ValueError(f"epochs of the round is {self.epochs!r}: give a whole number from 1")

    def epoch(self, client: int) -> LocalEpoch:
        """Return what one client does in a round."""
        return LocalEpoch.of(self.sizes[client], self.batch_size, self.epochs)


@dataclass(frozen=True, kw_only=True)
class LocalSgd:
    """Settings of a participant's training before its update is clipped: plain SGD in shuffled batches, without noise.

    Args:
        epochs: Number of passes over all its records.
        batch_size: Size of a batch.
        learning_rate: Learning rate.
        weight_decay: Weight decay, as in `torch.optim.SGD`.
        seed: Seed of the order of the records, which need not be secret.
        proximal: Weight mu of the proximal term, as in `LocalTraining`.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seed: int
    proximal: float = 0.0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a proximal term that pushes weights away, or to nowhere."""
        _refuse_outside("proximal", self.proximal, math.inf)


class Charge(NamedTuple):
    """An entry for the ledger: `steps` equal events, from step `first` on."""

    event: Event
    steps: int
    first: int


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round: its batch, how gradients are clipped and counted, who adds which noise, and what that costs.

    The noise that nodes and server add and the events that the ledger charges follow from this one plan, so they cannot
    differ.

    Args:
        key: What batches and noise follow from, a digest of the experiment; None if both come from the operating
            system.
        step: Number of the round, from 0.
        rates: Sampling rates by group, `[K]`.
        noise_multiplier: Noise of the gradient sum, in units of the rule's sensitivity.
        trust: Who sees sums before they carry noise.
        clients: Number of clients that share distributed noise.
        planned_multipliers: By group, `[K]`, the noise multiplier that was fixed in advance, in units of the most that
            any record can add.
        spent_multipliers: By group, `[K]`, the noise multiplier that is charged, in units of what a record of the group
            can add; None for all the noise that the sum carries.
        certain_multipliers: By group, `[K]`, the least multipliers that were certain before the counts of this round
            were known; None if no count chooses the rule.
        count_noise_multiplier: Noise of the counts on this batch, in units of their sensitivity, 1; None if the method
            does not count.
        rule: The clip rule; None until it is known.
        query: The counts that nodes send with this exchange, or None.
        local: How clients train privately by themselves, in local epochs; None in step mode.
        local_sgd: How participants train before their updates are clipped, or None.
        noise: How noise is sampled.
        label: Name of the batch, where there is no key, for all exchanges of the round; no other round has it. Of balls
            in bins, the name of the epoch, for all its rounds.
        planned_rates: By group, `[K]`, the most that `rates` could be, fixed in advance; None if they were themselves.
        budget: What each client of an existing app finds its noise by; then the plan has none for them, see `of_size`.
        bins: Number of rounds of an epoch, in one of which each record is, by chance; None for Poisson samples.
        needs_name: Whether the client of an existing app must have a name, since its node was not there when the run
            began.

    Examples:
        >>> plan = Round(key=None, step=0, rates=(0.01, 0.01), noise_multiplier=2.0, trust=Trust.CENTRAL, clients=4,
        ...              planned_multipliers=(2.0, 2.0), rule=CLIP_RULES["per-group"]((1.0, 0.5)))
        >>> plan.deviation()
        2.0
        >>> plan.event().spent_multipliers
        (2.0, 4.0)
        >>> [(charge.steps, charge.first) for charge in plan.charges([[60, 40]])]
        [(1, 0)]
        >>> plan.own_event(clients=1, trusts_server=True).guaranteed(0)
        Release(rate=0.01, multiplier=2.0)
        >>> Round.from_json(plan.to_json()) == plan
        True
        >>> local = LocalTraining(batch_size=32, optimizer="sgd", learning_rate=0.1, weight_decay=0.0, momentum=0.0,
        ...                       noise_multipliers=(2.0,), weights=(1.0,), sizes=(320,))
        >>> epochs = replace(plan, local=local)
        >>> epochs.local_event(0, held=(True, False)).rates, epochs.of_size(64).local_event(0, (True, True)).rates
        ((0.1, 0.0), (0.5, 0.5))
    """

    key: str | None
    step: int
    rates: tuple[float, ...]
    noise_multiplier: float
    trust: Trust
    clients: int
    planned_multipliers: tuple[float, ...] = ()
    spent_multipliers: tuple[float, ...] | None = None
    certain_multipliers: tuple[float, ...] | None = None
    count_noise_multiplier: float | None = None
    rule: ClipRule | None = None
    query: CountQuery | None = None
    local: LocalTraining | None = None
    local_sgd: LocalSgd | None = None
    noise: NoiseName = "gaussian"
    label: str = ""
    planned_rates: tuple[float, ...] | None = None
    budget: LocalBudget | None = None
    needs_name: bool = False
    bins: int | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a round that counts without noise, or with numbers that bound or add nothing."""
        if self.query is not None and self.count_noise_multiplier is None:
            raise ValueError("the round has a count query but no count_noise_multiplier: give one, 0 for exact counts")
        if self.rule is not None:
            refuse_broken_rule(self.rule, len(self.rates))
        if self.query is not None:
            refuse_broken_query(self.query, len(self.rates))
        for name, most in (("noise_multiplier", math.inf), ("count_noise_multiplier", math.inf), ("rates", 1.0),
                           ("planned_rates", 1.0)):
            _refuse_outside(name, getattr(self, name), most)

    def deviation(self, share: float = 1.0) -> float:
        """Return the standard deviation of the noise on the round's sum, or of a share of it.

        Args:
            share: Of the noise multiplier, for example `client_share` of distributed noise.
        """
        assert self.rule is not None
        return share * self.noise_multiplier * sensitivity(self.rule, len(self.rates))

    def event(self) -> Event:
        """Return what the round's gradient sum and counts charge, in step mode.

        Raises:
            ValueError: Noise around a sum that the rule does not bound, or a charge for more noise than it carries.
        """
        carried = spent_multipliers(self.noise_multiplier, self._bounds)
        for charged in (self.planned_multipliers, self.spent_multipliers or carried):
            if any(claim > 1.000001 * there for claim, there in zip(charged, carried, strict=True)):
                raise ValueError(f"the round charges for the noise multipliers {charged}, but its sum carries only "
                                 f"{carried}, by group: plan the noise that is charged")
        return Event(self.planned_rates or self.rates, self.planned_multipliers, self.spent_multipliers or carried,
                     self.count_noise_multiplier, certain_multipliers=self.certain_multipliers,
                     spent_rates=self.rates if self.planned_rates else None, bins=self.bins)

    def local_event(self, client: int, held: Sequence[bool]) -> Event:
        """Return what one step of a client's local epoch charges.

        Args:
            client: Number of the client.
            held: Whether the client has records of each group, `[K]`.

        Raises:
            ValueError: Noise around a sum that the rule does not bound.
        """
        assert self.local is not None
        noise, rate = self.local.noise_multipliers[client], self.local.epoch(client).rate
        return Event(tuple(rate if some else 0.0 for some in held), (noise,) * len(held),
                     spent_multipliers(noise, self._bounds), self.count_noise_multiplier, client)

    def of_size(self, records: int) -> Round:
        """Return the plan for the only client of a local epoch: with its size, and the noise that a budget gives it.

        Args:
            records: The client's public number of records.

        Raises:
            ValueError: If no noise keeps the budget.
        """
        assert self.local is not None
        local, counts = replace(self.local, sizes=(records,)), self.count_noise_multiplier
        if self.budget is not None:
            epoch = local.epoch(0)
            noise = noise_within(self.budget, epoch.rate, epoch.steps, self.query is not None)
            local = replace(local, noise_multipliers=(noise,))
            counts = self.budget.counts(noise) if self.query is not None else None
        return replace(self, local=local, count_noise_multiplier=counts)

    def charges(self, sizes: Sequence[Sequence[int]]) -> Iterator[Charge]:
        """Yield the entries of this round: one step over all clients, or a local epoch of each.

        Args:
            sizes: Public numbers of records by client and group, `[clients][K]`; clients hold disjoint records.

        Raises:
            ValueError: Noise around a sum that the rule does not bound.
        """
        if self.local is None:
            yield Charge(self.event(), 1, self.step)
            return
        for client, by_group in enumerate(sizes):
            steps = self.local.epoch(client).steps
            if steps:
                event = self.local_event(client, [size > 0 for size in by_group])
                if self.local.bounds_fixed:
                    event = replace(event, multipliers=event.spent_multipliers)
                yield Charge(event, steps, self.step * steps)

    def own_event(self, clients: int, trusts_server: bool = False) -> Event:
        """Return what the noise of some clients alone guarantees for the round's sum and counts over their records.

        Nothing that server and other clients say that they add is counted, and no claim of the round's about what it
        charges: the records may be charged more than in the run's ledger, never less.

        Args:
            clients: How many of the round's clients add noise to one sum.
            trusts_server: Whether the noise of the server counts too, under central trust.

        Raises:
            ValueError: For a sum that the rule does not bound.
        """
        if math.isinf(max(self._bounds)):
            raise ValueError("the round's rule bounds nothing")
        if self.bins is not None:
            raise ValueError("the round is of balls in bins, whose epochs a node does not account for by itself")
        noise, share = (self.noise_multiplier,) * len(self.rates), client_share(self.trust, self.clients)
        present = server_share(self.trust) if trusts_server and self.trust is Trust.CENTRAL else (
            share * math.sqrt(clients))
        counts = None if self.query is None else self.count_noise_multiplier
        return Event(self.rates, noise, noise, counts, noise_present=present)

    @property
    def _bounds(self) -> tuple[float, ...]:
        """The most that a record of each group can add under the rule, `[K]`."""
        assert self.rule is not None
        return self.rule.group_sensitivities(len(self.rates))

    def to_json(self) -> str:
        """Return the round as text, its rule and query by name; raises `ValueError` for one that cannot travel."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.rule is not None:
            parts["rule"] = {"kind": CLIP_RULES.name_of(self.rule), **vars(self.rule)}
        if self.query is not None:
            parts["query"] = {"kind": COUNT_QUERIES.name_of(self.query), **vars(self.query)}
        for name in ("local", "local_sgd", "budget"):
            if parts[name] is not None:
                parts[name] = asdict(parts[name])
        return json.dumps(parts)

    @staticmethod
    @lru_cache(maxsize=2)
    def from_json(text: str) -> Round:
        """Read the round that `to_json` wrote; raises `ValueError` for an unknown rule or query."""
        parts = _tuples(from_json(text))
        parts["trust"] = Trust(parts["trust"])
        for name, registry in (("rule", CLIP_RULES), ("query", COUNT_QUERIES)):
            if parts[name]:
                described = _tuples(parts[name])
                parts[name] = registry[described.pop("kind")](**described)
        if parts["local"]:
            parts["local"] = LocalTraining(**_tuples(parts["local"]))
        if parts.get("budget"):
            parts["budget"] = LocalBudget(**parts["budget"])
        if parts["local_sgd"]:
            parts["local_sgd"] = LocalSgd(**parts["local_sgd"])
        return Round(**parts)


def refuse_distrust(round_: Round, purpose: str) -> None:
    """Raise `ValueError` if the server must not see sums without noise, which `purpose` needs."""
    if round_.trust is not Trust.CENTRAL:
        raise ValueError(f"sums for {purpose} leave a client without noise, but trust is {round_.trust.value!r}: only "
                         "central trust allows it")


def _refuse_outside(name: str, value: Any, most: float) -> None:
    """Raise `ValueError` for anything but finite numbers from 0 to `most`, or None."""
    numbers = value if isinstance(value, tuple) else () if value is None else (value,)
    if not all(is_number(number) and 0 <= number <= most and math.isfinite(number) for number in numbers):
        raise ValueError(f"{name} of the round is {value!r}: give finite numbers from 0{f' to {most:g}' * (most < 2)}")


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Return JSON's lists as the tuples that frozen descriptions hold."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
