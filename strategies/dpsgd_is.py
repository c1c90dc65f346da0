"""DP-IS-SGD: importance sampling of groups. Kulynych et al. 2022."""

from __future__ import annotations

from strategies.dpsgd import Dpsgd


class DpsgdIs(Dpsgd):
    """Samples each group at its own rate, so that a batch is expected to hold as many records of every group.

    A record of group k of K is in the batch with probability q_k = b / (K N_k), independently of the others; the
    batch is b records on average. The clipped gradients are added up without weights and divided by b: the step
    estimates the gradient of the mean of the groups' mean losses. A group of fewer than b / K records is always in the
    batch as a whole, and weighs N_k / b.

    Each group is charged its own rate. Records of the smallest group pay most, and the guarantee is theirs. Group sizes
    are public.
    """

    modes = ("step",)

    def rates(self) -> tuple[float, ...]:
        """Return b / (K N_k) for group k, at most 1."""
        share = self.training.batch_size / len(self.population.names)
        return tuple(min(1.0, share / max(size, 1)) for size in self.population.by_group)
