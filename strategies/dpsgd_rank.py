"""DP-SGD that weighs records by the rank of their loss: after INO-SGD, Tian et al. 2026, arXiv 2605.07930."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from fedfair.node.ranked_sums import send_ranked_sum
from strategies.dpsgd import Dpsgd
from strategies.server.population import refuse_weights
from strategies.server.strategy import Strategy


class DpsgdRank(Dpsgd):
    """Clips every gradient to C0, and weighs those of small losses less.

    A client sorts its part of the batch by loss. The record at place j, from 0 for the smallest loss, has the weight
    min(1, (j + 1) / (`share` b_c)), where b_c is the public expected size of the client's part. So about `share` of
    the batch, the records that are fitted best, weigh less than 1; with 0 this is dpsgd.

    Weights that never fall along the sorted batch let one record change the sum by no more than C0, although it moves
    others to another place (`fedfair.node.ranked_sums`). The price is that of dpsgd. The paper sorts the whole batch,
    which is `partition = "site"` with one client; and it has a budget for each person, where this has one for all.
    """

    class Options(Dpsgd.Options):
        """`share` is the part of the expected batch that weighs less than 1."""

        share: Annotated[float, Field(ge=0, le=1)] = 0.5

    modes = ("step",)
    samplings = Strategy.samplings
    tables = Strategy.tables  # a record moves others to another place, whatever their groups
    exchange = send_ranked_sum
    options: Options

    def prepare(self) -> None:
        """Raise `ValueError` for weights of records or classes, which ranks would mix with their own, or as `Dpsgd`."""
        super().prepare()
        refuse_weights("dpsgd-rank", self.task)

    def asked_besides(self) -> dict[str, Any]:
        """Send how many records of each client's batch weigh less than 1."""
        rate = self.training.batch_size / self.population.records
        return {"reach": [self.options.share * rate * size for size in self.population.by_client]}
