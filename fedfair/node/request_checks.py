"""What a node checks of a request before it obeys: names before anything of them is run, numbers before they are used.

All checks look at the request and at public numbers alone, so a refusal says nothing of the records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fedfair.gradients.parameters import trained_parameters
from fedfair.mechanisms.clipping import CLIP_RULES
from fedfair.mechanisms.counting import COUNT_QUERIES
from fedfair.models.published import MODELS
from fedfair.node.exchanges import is_of_fedfair
from fedfair.node.policy import Policy, Refused
from fedfair.protocol.exchange import Request
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
    plan = json.loads(text)
    if plan.get("key") is not None:
        raise Refused("the round's noise and batches would come from a seed, which the server knows: its policy wants "
                      'randomness = "system"')
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
