"""What leaves a node of a batch: the clipped gradient sum and the counts, with the noise of the node's clients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from fedfair.gradients.layer_gradients import Gradients
from fedfair.gradients.layer_probe import Probe
from fedfair.mechanisms.clipping import sensitivity
from fedfair.mechanisms.noise import add_noise, client_share
from fedfair.mechanisms.randomness import source
from fedfair.protocol.round import Round


class Contribution(NamedTuple):
    """A node's part of a result: tensors to be added up over nodes, and counts if the round asks for them."""

    sums: Gradients
    counts: Tensor | None


def is_bounded(round_: Round) -> bool:
    """Say whether the round limits what a record can add: then no record may stop it.

    Args:
        round_: The round.
    """
    return round_.rule is None or math.isfinite(sensitivity(round_.rule, len(round_.rates)))


def clipped_sum(probe: Probe, groups: Tensor, round_: Round) -> Gradients:
    """Return the exact sum of a batch's gradients, each clipped as the round's rule says.

    Args:
        probe: Gradients of the batch's records.
        groups: Their groups, `[B]`.
        round_: The round, with its clip rule.
    """
    assert round_.rule is not None
    return probe.weighted_sum(round_.rule.coefficients(probe.norms, groups))


def release(probe: Probe, groups: Tensor, round_: Round, clients: Iterable[int]) -> Contribution:
    """Return the clipped gradient sum and the counts of a batch, with the noise of `clients`.

    Args:
        probe: Gradients of the batch's records.
        groups: Their groups, `[B]`.
        round_: The round, with its clip rule, and its query if it counts.
        clients: Numbers of the clients.
    """
    sums = clipped_sum(probe, groups, round_)
    return with_noise(sums, exact_counts(probe, groups, round_) if round_.query is not None else None, round_, clients)


def with_noise(sums: Gradients, counts: Tensor | None, round_: Round, clients: Iterable[int]) -> Contribution:
    """Add the noise of `clients` to sums that the round's rule bounds, and to exact counts.

    Args:
        sums: Exact sums over a batch.
        counts: Exact counts of the batch; None if the round asks for none.
        round_: The round, with its clip rule.
        clients: Numbers of the clients.
    """
    assert round_.rule is not None
    share = client_share(round_.trust, round_.clients)
    if share and round_.noise_multiplier:
        for number in clients:
            draws = source(round_.key, "noise", number + 1, round_.step)
            sums = add_noise(round_.noise, sums, round_.deviation(share), draws)
    return Contribution(sums, None if counts is None else noisy_counts(counts, round_, clients))


def exact_counts(probe: Probe, groups: Tensor, round_: Round) -> Tensor:
    """Return the exact counts of the round's query.

    Args:
        probe: Gradients of the batch's records.
        groups: Their groups, `[B]`.
        round_: The round, with its query.
    """
    assert round_.query is not None
    return round_.query.counts(probe.norms, groups, len(round_.rates))


def noisy_counts(exact: Tensor, round_: Round, clients: Iterable[int]) -> Tensor:
    """Add the noise of `clients` to exact counts.

    Args:
        exact: The counts.
        round_: The round, with the noise of its counts.
        clients: Numbers of the clients.
    """
    counts = {"counts": exact}
    assert round_.count_noise_multiplier is not None
    deviation = client_share(round_.trust, round_.clients) * round_.count_noise_multiplier
    for number in clients if deviation else ():
        draws = source(round_.key, "counts", number + 1, round_.step)
        counts = add_noise(round_.noise, counts, deviation, draws)
    return counts["counts"]
