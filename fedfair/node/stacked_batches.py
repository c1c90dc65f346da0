"""The batches of several runs at once: the sums and counts that a node of each would send, from one program.

Every run has its own records, weights, clip rule and noise, and draws its batch by its own key. What comes out equals
what `fedfair.node.node.Node` gives for one run after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedfair.gradients.stacked import Batches, StackedProbe, stacked
from fedfair.node.node import Node, draw
from fedfair.node.noisy_sums import Contribution, is_bounded, noisy_counts, with_noise
from fedfair.protocol.round import Round


class StackedBatches:
    """A batch of each of R runs, drawn as its round says, with the gradients at its weights.

    Records whose gradient is not finite are left out, as `Node` does.

    Args:
        nodes: The one node of each run, with all of its clients.
        weights: Weights of each run by name.
        rounds: The round of each run.

    Raises:
        fedfair.node.node.ClientError: For a gradient that is not finite in a run that bounds nothing.
        ValueError: For a round of another number of groups than the records have.
    """

    def __init__(self, nodes: Sequence[Node], weights: Sequence[Mapping[str, Tensor]], rounds: Sequence[Round]
                 ) -> None:
        self._nodes = nodes
        rows = [draw(node.clients.together.train, round_) for node, round_ in zip(nodes, rounds, strict=True)]
        while True:
            self._probe = self._probed(weights, rows)
            finite = self._probe.norms.isfinite()
            kept = [finite[span] for span in self._probe.spans]
            if all(bool(own.all()) for own in kept):
                break
            rows = [self._without(*each) for each in zip(nodes, rows, kept, rounds, strict=True)]
        self._groups = [node.clients.together.train.group[own] for node, own in zip(nodes, rows, strict=True)]

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
        for round_, span, groups in zip(rounds, self._probe.spans, self._groups, strict=True):
            assert round_.rule is not None
            coefficients[span] = round_.rule.coefficients(self._probe.norms[span], groups)
        counts = [self._exact_counts(run, round_) if round_.query else None for run, round_ in enumerate(rounds)]
        return [with_noise(sums, counted, round_, node.clients) for sums, counted, round_, node in zip(
            self._probe.weighted_sums(coefficients), counts, rounds, self._nodes, strict=True)]

    def _probed(self, weights: Sequence[Mapping[str, Tensor]], rows: Sequence[Tensor]) -> StackedProbe:
        """Return the gradients of the records at some rows of each run."""
        data = [node.clients.together.train for node in self._nodes]
        x = [part.features(own, "cpu") for part, own in zip(data, rows, strict=True)]
        y = [part.y.index_select(0, own) for part, own in zip(data, rows, strict=True)]
        return stacked(self._nodes[0].model, self._nodes[0].loss, weights, Batches.of(x, y))

    def _without(self, node: Node, rows: Tensor, finite: Tensor, round_: Round) -> Tensor:
        """Return the rows whose gradient is finite; raise `ClientError` for others where nothing is bounded."""
        if not bool(finite.all()) and not is_bounded(round_):
            raise node.not_finite(node.clients.together.train.records[rows[~finite][0]], round_)
        return rows[finite]

    def _exact_counts(self, run: int, round_: Round) -> Tensor:
        """Return the exact counts of a run's query."""
        assert round_.query is not None
        norms = self._probe.norms[self._probe.spans[run]]
        return round_.query.counts(norms, self._groups[run], len(round_.rates))
