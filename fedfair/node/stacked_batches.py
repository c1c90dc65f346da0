"""The batches of several runs at once: the sums and counts that a node of each would send, from one tensor program.

Every run has its own records, weights, clip rule and noise, and draws its batch by its own key. What comes out equals
what `fedfair.node.node.Node` gives for one run after the other, up to float rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedfair.gradients.stacked import StackedProbe, stacked
from fedfair.node.node import Contribution, Node, draw, is_bounded, noisy_counts, with_noise
from fedfair.protocol.round import Round


class StackedBatches:
    """A batch of each of R runs, drawn as its round says, with the gradients at its weights.

    Records whose gradient is not finite are left out, as `Node` does.

    Args:
        nodes: The one node of each run, with all of its clients.
        weights: Weights of the runs by name, `[R, *shape]`.
        rounds: The round of each run.

    Raises:
        fedfair.node.node.ClientError: For a gradient that is not finite in a run that bounds nothing.
        ValueError: For a round of another number of groups than the records have.
    """

    def __init__(self, nodes: Sequence[Node], weights: Mapping[str, Tensor], rounds: Sequence[Round]) -> None:
        self._nodes = nodes
        rows = [draw(node.clients.together.train, round_) for node, round_ in zip(nodes, rounds, strict=True)]
        while True:
            probe = self._probed(weights, rows)
            finite = probe.norms.isfinite().cpu()
            left = [part[kept[:len(part)]] for part, kept in zip(rows, finite, strict=True)]
            if all(len(part) == len(before) for part, before in zip(left, rows, strict=True)):
                break
            for run, (part, before) in enumerate(zip(left, rows, strict=True)):
                if len(part) < len(before) and not is_bounded(rounds[run]):
                    data = nodes[run].clients.together.train
                    first = before[~finite[run, :len(before)]][0]
                    raise nodes[run].not_finite(data.records[first], rounds[run])
            rows = left
        self._probe, self._sizes = probe, [len(part) for part in rows]
        self._groups = [node.clients.together.train.group[part].to(node.device)
                        for node, part in zip(nodes, rows, strict=True)]

    def counts(self, run: int, round_: Round) -> Tensor:
        """Return the counts of a run's query, with each client's share of the noise.

        Args:
            run: Place of the run.
            round_: Its round, with a query.
        """
        return noisy_counts(self._exact_counts(run, round_), round_, self._nodes[run].clients)

    def sums(self, rounds: Sequence[Round]) -> list[Contribution]:
        """Return the clipped gradient sum of each run, and counts if its round asks for them, with the clients' noise.

        Args:
            rounds: The round of each run, with its clip rule.
        """
        coefficients = torch.zeros_like(self._probe.norms)
        for run, round_ in enumerate(rounds):
            assert round_.rule is not None
            size = self._sizes[run]
            coefficients[run, :size] = round_.rule.coefficients(self._probe.norms[run, :size], self._groups[run])
        total = self._probe.weighted_sum(coefficients)
        counts = [self._exact_counts(run, round_) if round_.query else None for run, round_ in enumerate(rounds)]
        return [with_noise({name: value[run] for name, value in total.items()}, counts[run], round_, node.clients)
                for run, (round_, node) in enumerate(zip(rounds, self._nodes, strict=True))]

    def _probed(self, weights: Mapping[str, Tensor], rows: Sequence[Tensor]) -> StackedProbe:
        """Return the gradients of the records at some rows of each run, filled up to the same number with zeros."""
        first = self._nodes[0]
        longest = max(1, *map(len, rows))
        like = first.clients.together.train.features(rows[0][:0], first.device)
        x = like.new_zeros(len(rows), longest, *like.shape[1:])
        y = torch.zeros(len(rows), longest, dtype=torch.long, device=first.device)
        for run, (node, part) in enumerate(zip(self._nodes, rows, strict=True)):
            data = node.clients.together.train
            x[run, :len(part)] = data.features(part, node.device)
            y[run, :len(part)] = data.y[part].to(node.device)
        return stacked(first.model, first.loss, weights, x, y)

    def _exact_counts(self, run: int, round_: Round) -> Tensor:
        """Return the exact counts of a run's query."""
        assert round_.query is not None
        norms = self._probe.norms[run, :self._sizes[run]]
        return round_.query.counts(norms, self._groups[run], len(round_.rates))
