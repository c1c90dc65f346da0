"""A node's guard: every request meets the policy first, and the node's ledger before its answer leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from fedfair.accounting.events import Release
from fedfair.node.node import Node
from fedfair.node.node_ledger import NodeLedger
from fedfair.node.policy import NOT_CHARGED, PRIVATE, Data, Policy, Refused
from fedfair.node.request_checks import (
    check_exchange,
    check_model,
    check_numbers,
    check_plan,
    check_readable,
    check_sizes,
    check_weights,
)
from fedfair.protocol.exchange import Exchange, Promise, Request
from fedfair.protocol.round import Round

TRAIN_PRIVATELY = "private_training.train_privately"
"""What a policy lists among exchanges for clients of an existing Flower app."""

_EVALUATION = "exchanges.send_evaluation"


class Guard:
    """Holds a node to its policy.

    Args:
        policy: What the node's owner allows.
        run: Name of the run and of the node in it, so that their batches are not confused with others'.
    """

    def __init__(self, policy: Policy, run: str = "") -> None:
        self.policy, self.ledger, self._run = policy, NodeLedger(policy.ledger), run

    def admit_names(self, exchange: str, task: str, plan: str | None) -> tuple[Data, str]:
        """Check the names in a request before anything that they name is run or opened.

        Returns:
            The entry of the policy that lists the task, and the task as it was checked, in JSON.

        Raises:
            Refused: For what the policy does not list.
        """
        check_exchange(self.policy, exchange)
        asked: Mapping[str, Any] = json.loads(task)
        if asked.get("preprocessing") == PRIVATE:
            raise Refused(f"the task has preprocessing = {PRIVATE!r}, {NOT_CHARGED}")
        entry = next((entry for entry in self.policy.data if entry.allows(asked)), None)
        if entry is None:
            raise Refused("its policy does not list this task: data, columns, split, ranges, partition and seed must "
                          "be those that its owner entered")
        check_model(self.policy, asked.get("model"))
        if plan is not None:
            check_plan(self.policy, plan)
        return entry, json.dumps(asked)

    def admit(self, entry: Data, exchange: Exchange, node: Node, request: Request) -> None:
        """Check the numbers in a request, and enter into the ledger what the answer releases.

        Raises:
            Refused: For what the policy does not allow, or what exceeds a budget.
            OSError: If the ledger cannot be written.
        """
        if request.plan is not None:
            check_readable(request)
        node.forget_batches(but="" if request.plan is None else request.round.label)
        if request.has("weights"):
            check_weights(request.weights, node.model)
        if request.plan is not None:
            check_numbers(request.round, len(node.clients.together.train.names))
            told = request.task.public_sizes(node.clients.group_sizes("train")).sum(1).tolist()
            check_sizes(request.round, dict(zip(node.clients, told, strict=True)))
        if exchange.name in self.policy.exact_exchanges:
            self._admit_exact(entry, exchange, request)
        elif exchange.promise is None:
            raise Refused("the exchange sends exact figures, which no epsilon covers: its policy lists it among "
                          "exchanges, not exact_exchanges")
        else:
            self._charge(entry, exchange.name, node, _promised(exchange, node, request, self.policy.trusts_server),
                         request)

    def admit_local(self, data: str | None, round_: Round, event: Release, steps: int) -> None:
        """Check and enter one client's local epoch in an existing Flower app.

        Raises:
            Refused: For what the policy does not allow, or what exceeds the budget.
            OSError: If the ledger cannot be written.
        """
        names = {entry.name: entry for entry in self.policy.data}
        if data is None and len(names) > 1:
            raise Refused(f"its policy has budgets for {', '.join(names)}: name one (data)")
        entry = self.policy.data[0] if data is None else names.get(data)
        if entry is None or TRAIN_PRIVATELY not in self.policy.exchanges:
            raise Refused(f"its policy does not list these data, or not {TRAIN_PRIVATELY} among its exchanges")
        check_numbers(round_, len(round_.rates))
        _check_rate(entry, event)
        self._enter(entry, TRAIN_PRIVATELY, Promise(event, steps))

    def _admit_exact(self, entry: Data, exchange: Exchange, request: Request) -> None:
        """Note an exchange of exact figures; of an evaluation, refuse parts that the policy does not list."""
        if exchange.name == _EVALUATION:
            parts = cast(list[str], request.options["splits"])
            if not set(parts) <= set(self.policy.evaluated_parts):
                raise Refused("its policy does not list these parts of the data for exact evaluation")
        self.ledger.note(entry.name, exchange.name)

    def _charge(self, entry: Data, name: str, node: Node, promise: Promise, request: Request) -> None:
        """Enter what was promised, unless the batch's counts were charged with it."""
        batch = f"{self._run}/{entry.fingerprint}/{promise.batch}" if promise.batch else ""
        release = promise.release
        if release is None or not node.clients or not promise.steps:
            return
        kept = node.kept is not None and node.kept[0] == promise.batch
        if batch and kept and promise.follows is None and request.round.query is None and self.ledger.settle(
                batch, lambda due: release.rate <= due.rate and release.multiplier >= due.multiplier):
            return
        node.forget_batches()
        if request.plan is not None:
            _check_rate(entry, release)
        self._enter(entry, name, promise._replace(batch=batch))

    def _enter(self, entry: Data, name: str, promise: Promise) -> None:
        """Enter a promise into the ledger, if the policy allows it."""
        release = promise.release
        assert release is not None
        if not release.multiplier >= entry.smallest_noise_multiplier:
            raise Refused("the node's own noise would be below its policy's smallest noise multiplier, "
                          f"{entry.smallest_noise_multiplier:g}")
        if not self.ledger.enter(entry.name, release, promise.steps, entry.largest_epsilon, entry.delta, exchange=name,
                                 batch=promise.batch, follows=promise.follows):
            raise Refused("its budget for these records would be exceeded")


def _check_rate(entry: Data, release: Release) -> None:
    """Raise `Refused` for batches that are too large a part of the records."""
    if release.rate > entry.largest_sampling_rate:
        raise Refused(f"the sampling rate is above its policy's largest, {entry.largest_sampling_rate:g}")


def _promised(exchange: Exchange, node: Node, request: Request, trusts_server: bool) -> Promise:
    """Return what the node promises of an answer; raise `Refused` if it can promise nothing."""
    assert exchange.promise is not None
    try:
        return exchange.promise(node, request, trusts_server)
    except (ValueError, KeyError, IndexError, TypeError, ArithmeticError) as error:
        raise Refused("the round is none that the node can account for") from error
