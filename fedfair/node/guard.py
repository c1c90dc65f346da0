"""A node's guard: every request meets the policy first, and the node's ledger before its answer leaves.

What a node checks of a request before it obeys: names before anything of them is run, numbers before they are used.

All checks look at the request and at public numbers alone, so a refusal says nothing of the records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn

from fedfair.accounting.events import Release
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.mechanisms.clipping import CLIP_RULES
from fedfair.mechanisms.counting import COUNT_QUERIES
from fedfair.models.published import MODELS
from fedfair.node.exchanges import is_of_fedfair
from fedfair.node.node import Node
from fedfair.node.node_ledger import NodeLedger
from fedfair.node.policy import NOT_CHARGED, PRIVATE, Data, Policy, Refused
from fedfair.plugins.text_values import from_json
from fedfair.protocol.exchange import Exchange, Promise, Request
from fedfair.protocol.round import Round

LEAST, MOST = 1e-9, 1e9
"""Bounds on the numbers of a clip rule, far inside what floating point holds."""


def check_exchange(policy: Policy, name: str) -> None:
    """Raise `Refused` for an exchange that the policy does not list; no file is run to find out."""
    _check_listed(policy, "exchange", name, (*policy.exchanges, *policy.exact_exchanges), is_of_fedfair(name))


def check_model(policy: Policy, name: Any) -> None:
    """Raise `Refused` for a model that the policy does not list; no file is run to find out."""
    _check_listed(policy, "model", name, policy.models, name in MODELS)


def check_plan(policy: Policy, text: str) -> None:
    """Raise `Refused` for a round whose rule or query the policy does not list, or whose noise a seed gives away."""
    plan = from_json(text)
    if plan.get("key") is not None:
        raise Refused("the round's noise and batches would come from a seed, which the server knows: its policy wants "
                      'randomness = "system"')
    if plan.get("bins") is not None:
        raise Refused('the round is of balls in bins, which its ledger does not account for: take sampling = "poisson"')
    if not plan.get("rule"):
        raise Refused("the round has no clip rule")
    rule, query = plan["rule"]["kind"], (plan.get("query") or {}).get("kind")
    _check_listed(policy, "clip rule", rule, policy.rules, rule in set(CLIP_RULES))
    if query is not None:
        _check_listed(policy, "count query", query, policy.queries, query in set(COUNT_QUERIES))


def check_readable(request: Request) -> None:
    """Raise `Refused` for a round that cannot be read: its rule bounds nothing, or its numbers are none."""
    try:
        _ = request.round
    except ValueError as error:
        raise Refused(f"the round bounds or adds nothing: {error}") from error


def check_numbers(round_: Round, groups: int) -> None:
    """Raise `Refused` for a round of other than `groups` groups, or with numbers that no honest round has.

    A negative clip norm, or one for too few groups, bounds nothing; 0 divides by the norm of a zero gradient.
    """
    if len(round_.rates) != groups:
        raise Refused("the round is for another number of groups")
    for name, value in vars(round_.rule).items():
        numbers = value if isinstance(value, tuple) else (value,)
        least = 0.0 if name == "weights" else LEAST
        if not all(least <= float(number) <= MOST for number in numbers):
            raise Refused(f"the clip rule has a {name} that is not between {least:g} and {MOST:g}")
    for name, value in {**vars(round_.rule), **vars(round_.query or nn.Identity())}.items():
        if isinstance(value, tuple) and len(value) != groups:
            raise Refused(f"{name} is for another number of groups")
    if not (isinstance(round_.clients, int) and round_.clients >= 1 and math.isfinite(round_.noise_multiplier)):
        raise Refused("the round's noise is not a number, or nobody shares it")


def check_sizes(round_: Round, told: Mapping[int, int]) -> None:
    """Raise `Refused` for local epochs of clients with other sizes than the node told: they might never end.

    `told` are the public numbers of records by client.
    """
    local = round_.local
    if local is not None and any(local.sizes[client] != size for client, size in told.items()):
        raise Refused("the round is for other numbers of records than the node told")


def check_weights(weights: Mapping[str, Tensor], model: nn.Module) -> None:
    """Raise `Refused` for weights of other names, shapes or types than the model's: clipping is exact in its own."""
    parameters, _ = trained_parameters(model)
    expected = {name: (value.shape, value.dtype) for name, value in parameters.items()}
    if {name: (value.shape, value.dtype) for name, value in weights.items()} != expected:
        raise Refused("the weights are not those of the model: names, shapes or types differ")


def _check_listed(policy: Policy, kind: str, name: Any, listed: tuple[str, ...], of_fedfair: bool) -> None:
    """Raise `Refused` for a name that is not listed, or that of a user's file where those are not run."""
    if name not in listed:
        raise Refused(f"its policy does not list this {kind}")
    if not of_fedfair and not policy.own_files:
        raise Refused(f"the {kind} is of a file of its own, and its policy does not run those (own_files)")


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
        asked: Mapping[str, Any] = from_json(task)
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
        raise Refused("the node cannot account for this round") from error
