"""ASC: sampling rates and clip norms by group follow noisy losses. Cairney-Leeming et al. 2026, arXiv 2602.10820."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, PerGroup
from fedfair.mechanisms.counting import CountQuery, Losses
from fedfair.node.loss_sums import send_sum_and_losses
from fedfair.protocol.fields import Positive
from strategies.server.population import refuse_weights
from strategies.server.strategy import Strategy

_KEPT = 0.1  # part of the batch that is always drawn from all records alike, so that every group is heard


class DpsgdAsc(Strategy):
    """Draws more records of groups whose losses are larger, and clips these shorter.

    With q = b / N and p_k the share of the batch for group k, N_k / N at first, each step

    - draws records of group k with probability q_k = min(b p_k / N_k, `max_rate` q), and clips their gradients to
      C_k = C0 min(1, q / q_k), so that drawing a group more often costs its records about as much;
    - adds up the losses of each group, each at most `loss_bound`, with noise of their own, on the same batch, as one
      event with the gradients. L_k is that sum over q_k N_k, in units of the bound;
    - moves p_k in proportion to p_k exp(`eta` L_k), a tenth of it staying at N_k / N.

    The rates follow noisy outputs. The guarantee is for what was fixed in advance: the rate `max_rate` q for every
    group and noise relative to C0. What a group has spent is a reading at its own rates and clip norms. The paper
    instead chooses C_k by a Renyi accountant so that every group's guarantee is the same whatever its rate.
    """

    class Options(Strategy.Options):
        """`max_rate` caps q_k in units of q, and with it the price."""

        eta: Positive = 0.1
        loss_bound: Positive = 5.0
        max_rate: Annotated[float, Field(ge=1, le=100)] = 2.0

    modes = ("step",)
    exchange = send_sum_and_losses
    state = ("shares",)
    options: Options

    def prepare(self) -> None:
        """Start with the groups as they are; raise `ValueError` for settings that ask for other weights or rates."""
        refuse_weights("dpsgd-asc", self.task)
        if self.training.group_epsilon is not None:
            raise ValueError("dpsgd-asc changes sampling rates, which group_epsilon takes as fixed: leave it out")
        self._sizes = torch.tensor(self.population.by_group, dtype=torch.float64)
        self.shares = self._sizes / self._sizes.sum()

    def rates(self) -> tuple[float, ...]:
        """Return the rates q_k of the moment."""
        wanted = self.training.batch_size * self.shares / self._sizes.clamp(min=1)
        return tuple(wanted.clamp(max=self._most).tolist())

    def planned_rates(self) -> tuple[float, ...]:
        """Return the largest rate that any group can have."""
        return (self._most,) * len(self._sizes)

    def rule(self) -> ClipRule:
        """Return the clip norms C_k of the moment."""
        even, first = self.training.batch_size / self.population.records, self.training.clip_norm
        return PerGroup(tuple(first * min(1.0, even / rate) if rate else first for rate in self.rates()))

    def sum_noise(self, rule: ClipRule) -> float:
        """Return the noise relative to C0, in units of the largest clip norm of the moment."""
        assert isinstance(rule, PerGroup)
        return self.noise.of_sum * self.training.clip_norm / max(rule.clip_norms)

    def query(self) -> CountQuery:
        """Ask for the losses of each group."""
        return Losses(self.options.loss_bound)

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Move the shares of the batch by noisy sums of losses `[K]`."""
        drawn = torch.tensor(self.rates(), dtype=torch.float64) * self._sizes
        losses = (counts.double() / drawn.clamp(min=1e-9)).clamp(0, 1)
        moved = self.shares * torch.exp(self.options.eta * losses)
        self.shares = (1 - _KEPT) * moved / moved.sum() + _KEPT * self._sizes / self._sizes.sum()

    def like_counts(self) -> Tensor:
        """Return sums over no record."""
        return torch.zeros(len(self._sizes), dtype=self.task.torch_dtype)

    @property
    def _most(self) -> float:
        """The largest sampling rate."""
        return min(1.0, self.options.max_rate * self.training.batch_size / self.population.records)
