"""What the server checks of the tensors of a reply: names, shapes, types, and that they are finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr.app import ArrayRecord
from torch import Tensor

from fedfair.fairness.group_counts import GroupCounts
from fedfair.gradients.layer_gradients import Gradients
from fedfair.node.node import ClientError
from fedfair.protocol.messages import unpacked
from strategies.server.replies.foreign_values import claim, keeps_its_claim, safe, shown, type_name
from strategies.server.replies.reply_checks import SAME, UNCHANGED, Sender


def check_tensors(who: Sender, record: ArrayRecord, name: str, like: Mapping[str, Tensor] | None) -> Gradients:
    """Return the tensors of a reply's record `name`.

    Raises `ClientError` for names, shapes and types that differ from those of `like`, or without it for numbers that
    are not real. Nothing is read before what it claims to be is checked.
    """
    claims = {key: claim(array) for key, array in record.items()}
    shapes = {key: shape for key, (shape, _) in claims.items()}
    if like is not None and shapes != (expected := {key: tuple(value.shape) for key, value in like.items()}):
        raise ClientError(f"{who} sent {name} of shapes {_shapes(shapes)}, but {_shapes(expected)} are expected: "
                          f"{UNCHANGED}; {SAME}")
    for key, (shape, dtype) in claims.items():
        allowed = ("float32", "float64", "int64") if like is None else (type_name(like[key].dtype),)
        if dtype not in allowed:
            raise ClientError(f"{who} sent {name} {shown(key)} in {shown(dtype)}, but {' or '.join(allowed)} is "
                              f"expected: {UNCHANGED}; {SAME}")
        if not keeps_its_claim(record[key], shape, dtype):
            raise ClientError(f"{who} sent {name} {shown(key)} whose bytes are not an array of the shape and the type "
                              f"that it is said to have: {UNCHANGED}")
    return unpacked(record)


def check_group_counts(who: Sender, split: str, values: Gradients) -> GroupCounts:
    """Return evaluation counts; raise `ClientError` for counts that are negative or not finite."""
    return GroupCounts(**check_counts(who, split, values))


def check_counts(who: Sender, split: str, values: Gradients) -> Gradients:
    """Return tensors of an evaluation; raise `ClientError` for counts that are negative or not finite."""
    for name in ("labels", "predicted", "correct", "scores", "confusion"):
        if name in values and not bool((values[name].isfinite() & (values[name] >= 0)).all()):
            raise ClientError(f"{who} sent {split} counts {name!r} that are negative or not finite, but they are "
                              "numbers of records: look at the program that it runs")
    return values


def refuse_infinite(parts: Sequence[tuple[Gradients, Sender]], total: Gradients) -> None:
    """Raise `ClientError` naming the first client with a value that is not finite, or the client of the largest value
    if only their sum is not finite.
    """
    for tensors, who in parts:
        if not all(bool(value.isfinite().all()) for value in tensors.values()):
            raise ClientError(f"{who} sent values that are not finite: {UNCHANGED}; look at its records, or take a "
                              "smaller learning rate")
    if not all(bool(value.isfinite().all()) for value in total.values()):
        largest = max(parts, key=lambda part: max(float(value.abs().max()) for value in part[0].values()))
        raise ClientError(f"{largest[1]} sent values so large that their sum with others is not finite: {UNCHANGED}; "
                          "look at its records, or take a smaller learning rate")


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return shapes by name in words."""
    return safe(str(dict(shapes)))
