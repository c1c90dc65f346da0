"""Hazard 34: a server that believes any reply. One node lies, in every way; the run ends, and the node is named."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from fedfair import client_app
from fedfair.node.node import ClientError
from fedfair.protocol.messages import pack, unpack
from simulations import Experiment
from simulations.engines.local import LocalGrid
from simulations.engines.run import conduct
from strategies.server.replies import reply_checks
from strategies.server.replies.foreign_values import keeps_its_claim, safe
from tests.for_each import for_each
from tests.strategies.two_groups import two_groups

Lie = Callable[[RecordDict], Any]


class LyingGrid(LocalGrid):
    """Three nodes, of which the first lies in its replies to one exchange."""

    def __init__(self, exchange: str, lie: Lie) -> None:
        super().__init__(client_app.app, 3)
        self.exchange, self.lie = exchange, lie

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Return the replies, of which the first may lie."""
        asked = list(messages)
        replies = list(super().send_and_receive(asked))
        if asked and asked[0].content["exchange"]["name"] == f"exchanges.{self.exchange}":
            self.lie(replies[0].content)
        return replies


def conducted(grid: LocalGrid, **settings: Any) -> Tensor:
    """Return the weights after three rounds of dpsgd-f over the nodes of a grid."""
    made = Experiment(**{**two_groups(), "strategy": "dpsgd-f", "model": "logistic", "partition": "site", "clients": 3,
                         "sync": "step", "steps": 3, "batch_size": 32, "noise_multiplier": 1.0, "delta": 1e-3,
                         **settings})
    model = conduct(made, grid, lambda *_: None).model
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def sums(change: Callable[[Tensor], Tensor], name: str = "sums") -> Lie:
    return lambda content: content.__setitem__(name, pack({k: change(v) for k, v in unpack(content, name).items()}))


def sizes(change: Callable[[Tensor], Tensor]) -> Lie:
    def lie(content: RecordDict) -> None:
        told = unpack(content, "sizes")
        content["sizes"] = pack({**told, "train": change(told["train"])})

    return lie


def node(**values: Any) -> Lie:
    return lambda content: content.__setitem__("node", ConfigRecord({**content["node"], **values}))


def record(name: str, value: Any) -> Lie:
    return lambda content: content.__setitem__(name, value)


def counts(value: Tensor) -> Lie:
    return record("counts", pack({"counts": value}))


def wire(value: Tensor, **claimed: Any) -> Array:
    """Return an array as it comes over a network, with a claim that need not be true."""
    array = Array(value.numpy())
    array.__dict__.update(claimed)
    return array


def replaced(array: Callable[[Tensor], Array]) -> Lie:
    """Put other arrays into the place of the sums."""
    return lambda content: content.__setitem__("sums", ArrayRecord({
        name: array(value) for name, value in unpack(content, "sums").items()}))


def huge_header(value: Tensor) -> Array:
    """Return an array of a few bytes that numpy would take for one of many terabytes."""
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"
    head += b" " * (117 - len(head)) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
    return Array(dtype="float32", shape=tuple(value.shape), stype="numpy.ndarray", data=data)


def first_value(value: float) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed.flatten()[0] = value
        return changed

    return change


GRADIENTS, COUNTS, SIZES, EVALUATION = "send_gradient_sum", "send_counts", "send_sizes", "send_evaluation"
LIES: dict[str, tuple[str, Lie, str]] = {
    "nan sums": (GRADIENTS, sums(first_value(np.nan)), "client 0 sent values that are not finite"),
    "infinite sums": (GRADIENTS, sums(first_value(np.inf)), "client 0 sent values that are not finite"),
    "complex sums": (GRADIENTS, sums(lambda v: v + 0j), "client 0 sent sums .*'complex64', but float32 is expected"),
    "bool sums": (GRADIENTS, sums(lambda v: v > 0), "client 0 sent sums .*'bool', but float32 is expected"),
    "whole sums": (GRADIENTS, sums(lambda v: v.long()), "client 0 sent sums .*'int64', but float32 is expected"),
    "coarse sums": (GRADIENTS, sums(lambda v: v.half()), "client 0 sent sums .*'float16', but float32 is expected"),
    "fine sums": (GRADIENTS, sums(lambda v: v.double()), "client 0 sent sums .*'float64', but float32 is expected"),
    "sums of a wrong shape": (GRADIENTS, sums(lambda v: v[..., :-1]), "client 0 sent sums of shapes .* are expected"),
    "sums that would broadcast": (GRADIENTS, sums(lambda v: v[..., :1]), "client 0 sent sums of shapes"),
    "no sums": (GRADIENTS, lambda content: content.pop("sums"), "client 0 sent no sums, which it was asked for"),
    "empty sums": (GRADIENTS, record("sums", ArrayRecord()), "client 0 sent no sums, which it was asked for"),
    "sums that are no arrays": (GRADIENTS, record("sums", ConfigRecord({"w": 1})), "client 0 sent no sums"),
    "an extra tensor": (GRADIENTS, lambda content: content["sums"].__setitem__("\x1b[evil", pack(
        {"e": torch.zeros(3)})["e"]), "client 0 sent sums of shapes"),
    "a header of terabytes": (GRADIENTS, replaced(huge_header), "client 0 sent sums .* whose bytes are not an array"),
    "other bytes": (GRADIENTS, replaced(lambda v: wire(v, data=b"PK")), "client 0 sent sums .* whose bytes are not"),
    "a pickle": (GRADIENTS, replaced(lambda v: wire(v, stype="pickle")), "client 0 sent sums .* whose bytes are not"),
    "bytes of another type": (GRADIENTS, replaced(lambda v: wire(v.double(), dtype="float32")), "bytes are not an"),
    "more bytes than allowed": (GRADIENTS, record("more", ArrayRecord({"z": wire(torch.zeros(40_000))})),
                                "node 2 sent 16.* bytes, but at most 100,000 are allowed"),
    "more text than allowed": (GRADIENTS, record("more", ConfigRecord({"z": "x" * 200_000})), "node 2 sent 20.* bytes"),
    "counts of another shape": (COUNTS, counts(torch.zeros(2, 3)), "client 0 sent counts of shapes .* are expected"),
    "counts of the transposed shape": (COUNTS, counts(torch.zeros(2)), "client 0 sent counts of shapes"),
    "nan counts": (COUNTS, counts(torch.full((2, 2), np.nan)), "client 0 sent values that are not finite"),
    "bool counts": (COUNTS, counts(torch.ones(2, 2) > 0), "client 0 sent counts .*'bool', but float32 is expected"),
    "no counts": (COUNTS, lambda content: content.pop("counts"), "client 0 sent no counts, which it was asked for"),
    "negative sizes": (SIZES, sizes(lambda v: -v), "client 0 says that it has -.* train records of a group, but 0 to"),
    "huge sizes": (SIZES, sizes(lambda v: v * 0 + 10**12), "client 0 says that it has 1,000,000,000,000 train"),
    "sizes that are huge together": (SIZES, sizes(lambda v: v * 0 + 10**9), "at most 1,000,000,000 are allowed"),
    "broken sizes": (SIZES, sizes(lambda v: v + 0.5), "client 0 sent sizes .*'float32', but int64"),
    "sizes of one group": (SIZES, sizes(lambda v: v[:, :1]), "client 0 sent sizes of shapes .* are expected"),
    "sizes of two clients": (SIZES, sizes(lambda v: torch.cat([v, v])), "client 0 sent sizes of shapes"),
    "no sizes": (SIZES, lambda content: content.pop("sizes"), r"client 0 sent sizes of shapes \{\}"),
    "other group names": (SIZES, record("groups", ConfigRecord({"names": ["x", "y"], "labels": ["0", "1"]})),
                          "node 3 and node 2 disagree on the names of groups"),
    "names that repeat": (SIZES, record("groups", ConfigRecord({"names": ["x", "x"], "labels": ["0", "1"]})),
                          "node 2 sent .* as names of groups or classes"),
    "numbers for names": (SIZES, record("groups", ConfigRecord({"names": [1, 2], "labels": ["0", "1"]})),
                          "node 2 sent .* as names of groups or classes"),
    "no names": (SIZES, lambda content: content.pop("groups"), "node 2 sent None as names of groups or classes"),
    "more clients than sizes": (SIZES, node(clients=2), "client 0 or 3 sent sizes of shapes"),
    "an astronomic number of clients": (SIZES, node(clients=10**15), "node 2 says that it is number 0 of 3 with 10"),
    "number -1": (GRADIENTS, node(number=-1), "node 2 says that it is number -1 of 3"),
    "an unknown number": (GRADIENTS, node(number=3), "node 2 says that it is number 3 of 3"),
    "a number in text": (GRADIENTS, node(number="\x1b[0"), "node 2 says that it is number .* of 3"),
    "a broken number": (GRADIENTS, node(number=0.5), "node 2 says that it is number 0.5 of 3"),
    "of 0": (SIZES, node(of=0), "node 2 says that it is number 0 of 0"),
    "another's number": (GRADIENTS, node(number=1), "nodes say that they are number 1 of 3, 1 of 3, 2 of 3"),
    "no clients any more": (GRADIENTS, node(clients=0), "node 2 answers for client none, but it holds 0"),
    "more clients than at first": (GRADIENTS, node(clients=2), "node 2 answers for client 0 and 3, but it holds 0"),
    "no node record": (GRADIENTS, lambda content: content.pop("node"), "node 2 says that it is number None of None"),
    "no request": (GRADIENTS, lambda content: content.pop("exchange"), "node 2 answers no request, but"),
    "negative evaluation counts": (EVALUATION, sums(lambda v: -v, "test"), "client 0 sent test counts .* negative"),
    "nan evaluation counts": (EVALUATION, sums(lambda v: v * np.nan, "test"), "client 0 sent test counts"),
    "no evaluation": (EVALUATION, lambda content: content.pop("test"), "client 0 sent counts of test of shapes"),
    "evaluation of other groups": (EVALUATION, sums(lambda v: v[:1], "test"), "client 0 sent counts of test of shapes"),
}


@for_each("name", LIES)
def test_a_lie_ends_the_run_and_names_the_node(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange, lie, message = LIES[name]
    monkeypatch.setattr(reply_checks, "_MOST_BYTES", 100_000)
    with pytest.raises(ClientError, match=message) as raised:
        conducted(LyingGrid(exchange, lie))
    assert "\x1b" not in str(raised.value)


def test_without_a_lie_nothing_is_refused() -> None:
    assert bool(conducted(LyingGrid(GRADIENTS, lambda content: None)).isfinite().all())
    serialised = LyingGrid(GRADIENTS, replaced(wire))
    assert torch.equal(conducted(serialised), conducted(LocalGrid(client_app.app, 3)))


@pytest.mark.parametrize("exchange", [GRADIENTS, COUNTS, EVALUATION])
def test_an_answer_of_an_older_round_is_refused(exchange: str) -> None:
    kept: list[RecordDict] = []

    def repeat(content: RecordDict) -> None:
        kept.append(copy.copy(content))
        for name, value in kept[0].items():
            content[name] = value

    with pytest.raises(ClientError, match=f"node 2 answers request .*{exchange}.*, but .*{exchange}.* was asked"):
        conducted(LyingGrid(exchange, repeat), eval_every=0.01)
    assert len(kept) == 2


def test_an_answer_to_another_exchange_is_refused() -> None:
    counted: list[RecordDict] = []

    class Confused(LyingGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            replies = list(super().send_and_receive(messages))
            if "counts" in replies[0].content:
                counted.append(replies[0].content)
            return replies

    with pytest.raises(ClientError, match=r"node 2 answers request .*send_counts.*, but .*send_gradient_sum"):
        conducted(Confused(GRADIENTS, lambda content: content.__setitem__("exchange", counted[-1]["exchange"])))


def test_two_replies_of_one_node_are_refused() -> None:
    class Twice(LocalGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            replies = list(super().send_and_receive(messages))
            return [*replies, replies[0]]

    with pytest.raises(ClientError, match="node 2 answers twice, or was not asked"):
        conducted(Twice(client_app.app, 3))


def test_sums_that_are_finite_alone_but_not_together_do_not_reach_the_model() -> None:
    class All(LyingGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            replies = list(LocalGrid.send_and_receive(self, messages))
            for reply in replies:
                if "sums" in reply.content:
                    self.lie(reply.content)
            return replies

    with pytest.raises(ClientError, match="sent values so large that their sum with others is not finite"):
        conducted(All(GRADIENTS, sums(lambda v: torch.full_like(v, 3e38))))


def test_a_lost_client_is_not_replaced_by_one_that_takes_its_number() -> None:
    class Taking(LyingGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            replies = list(super().send_and_receive(messages))
            lost = "sums" in replies[0].content
            return [reply for reply in replies if not lost or reply.metadata.src_node_id != 3]

    with pytest.raises(ClientError, match="node 2 answers for client 1, but it holds 0 of the run's 3 clients"):
        conducted(Taking(GRADIENTS, node(number=1)), dropouts=1)


@pytest.mark.parametrize("exchange", [SIZES, GRADIENTS])
def test_a_failure_is_shown_without_escapes_and_markup(exchange: str) -> None:
    text = "\x1b]0;pwned\x07[red]x[/red]\u202e\nsecond line " + 10_000 * "y"
    with pytest.raises(ClientError) as raised:
        conducted(LyingGrid(exchange, record("failure", ConfigRecord({"reason": text}))))
    assert str(raised.value).startswith("]0;pwned (red)x(/red) second line yyy")
    assert len(str(raised.value)) == 500
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("failure", [ConfigRecord(), ArrayRecord(), ConfigRecord({"reason": ""})])
def test_a_failure_without_a_reason_names_the_node(failure: Any) -> None:
    with pytest.raises(ClientError, match="node 2 failed, and does not say why"):
        conducted(LyingGrid(GRADIENTS, record("failure", failure)))


def test_honest_reasons_are_shown_as_they_are() -> None:
    for text in ("client 3: take one of ['a', 'b'], [1, 2]", "Größe: 5 €"):
        assert safe(text) == text


@pytest.mark.parametrize("dtype", ["object", "S4", "no type", "float32"])
def test_no_claim_of_an_array_makes_the_server_read_what_it_is_not(dtype: str) -> None:
    array = Array(dtype=dtype, shape=(2,), stype="numpy.ndarray", data=b"\x93NUMPY\x01\x00\xff\xff{")
    assert not keeps_its_claim(array, (2,), dtype)


@pytest.mark.parametrize("exchange", [SIZES, COUNTS, GRADIENTS, EVALUATION])
def test_a_node_that_hangs_is_given_up_with_a_sentence(exchange: str) -> None:
    """A grid of Flower's returns what came when its timeout is over."""
    patience: list[float | None] = []

    class Hanging(LyingGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            asked = list(messages)
            patience.append(timeout)
            replies = list(super().send_and_receive(asked))
            hangs = asked and asked[0].content["exchange"]["name"] == f"exchanges.{self.exchange}"
            return replies[1:] if hangs else replies

    with pytest.raises(ClientError, match=r"(node 2 did not answer|node 2 gave no answer) within 3,600 s"):
        conducted(Hanging(exchange, lambda content: None))
    assert set(patience) == {3600.0}
