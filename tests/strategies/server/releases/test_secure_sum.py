"""A round under secure aggregation: the release without masks, to the bit of its steps, and nothing else at the server.

Nodes are lost, lie, and are asked too much, at each of the four exchanges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from scipy import stats
from torch import Tensor

from fedfair import client_app
from fedfair.accounting.composition import epsilon
from fedfair.accounting.events import Release
from fedfair.node import masked_sums
from fedfair.node.node import ClientError
from fedfair.protocol.messages import pack, unpack
from simulations import Experiment, run
from simulations.engines.local import LocalGrid
from simulations.engines.run import conduct
from simulations.results.result import Result
from strategies.server.releases import secure_sum
from strategies.server.releases.secure_sum import _most_lost
from tests.for_each import for_each
from tests.strategies.two_groups import two_groups

KEYS, DEAL, MASK, UNMASK = ("masked_sums.send_keys", "masked_sums.send_key_shares", "moment_sums.send_masked_moments",
                            "masked_sums.send_unmasking")
Lie = Callable[[RecordDict], Any]


def experiment(**settings: Any) -> Experiment:
    return Experiment(**{**two_groups(600), "strategy": "moments", "features": "bounded", "model": "linear",
                         "hidden": (), "dtype": "float64", "delta": 1e-5, "batch_size": 32, "noise_multiplier": 2.0,
                         "partition": "site", "clients": 5, "trust": "distributed", "noise": "discrete",
                         "secure_aggregation": True, **settings})


class Nodes(LocalGrid):
    """Nodes of which some are lost at an exchange and ever after, and one lies in its replies; all replies are kept."""

    def __init__(self, nodes: int = 5, lost: Mapping[str, set[int]] | None = None, lie: tuple[str, Lie] | None = None
                 ) -> None:
        super().__init__(client_app.app, nodes)
        self.lost, self.lie = lost or {}, lie
        self.gone: set[int] = set()
        self.seen: dict[str, dict[int, RecordDict]] = {}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`; node n has the id n + 2."""
        asked = list(messages)
        name = str(asked[0].content["exchange"]["name"])
        self.gone |= self.lost.get(name, set())
        replies = [reply for reply in super().send_and_receive(asked)
                   if reply.metadata.src_node_id - 2 not in self.gone]
        if self.lie and self.lie[0] == name:
            self.lie[1](replies[0].content)
        self.seen[name] = {reply.metadata.src_node_id - 2: reply.content for reply in replies}
        return replies


def conducted(grid: LocalGrid, **settings: Any) -> Result:
    return conduct(experiment(**settings), grid, lambda *_: None)


def weights(result: Result) -> Tensor:
    return next(result.model.parameters()).detach()


class Listened:
    """What nodes added up, in whole steps before masks, and what the server opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[np.ndarray] = []
        self.opened: list[np.ndarray] = []
        for module, name, kept in ((masked_sums, "noisy_steps", self.held), (secure_sum, "opened_sum", self.opened)):
            monkeypatch.setattr(module, name, self._noting(getattr(module, name), kept))

    @staticmethod
    def _noting(made: Callable[..., Any], kept: list[np.ndarray]) -> Callable[..., Any]:
        def noted(*asked: Any) -> Any:
            kept.append(made(*asked))
            return kept[-1]

        return noted

    def plain(self, lost: Iterable[int] = ()) -> list[int]:
        """Return the sum of what nodes held, but for the lost ones, by Python's integers."""
        left = [held.tolist() for place, held in enumerate(self.held) if place not in set(lost)]
        return [sum(column) for column in zip(*left, strict=True)]


def words(content: RecordDict) -> np.ndarray:
    """Return the masked integers of a reply."""
    return unpack(content, "masked")["numbers"].numpy().view(np.uint64)


@pytest.mark.parametrize(("settings", "nodes"), [
    ({}, (1, 2, 5, 8)), ({"partition": "group"}, (2, 8)),
    ({"strategy": "moments-of-participants", "clip_norm": 3.0}, (2, 8)),
    ({"options": {"by_group": True, "tau": 0.2}}, (2, 8)), ({"dropouts": 2}, (5, 8)),
    ({"options": {"logistic_steps": 2}}, (2, 8))])
def test_the_front_is_that_of_the_same_draws_without_masks(settings: dict[str, Any], nodes: tuple[int, ...]) -> None:
    """Also where a node holds several clients, and where some hold none."""
    plain = run(experiment(**settings, secure_aggregation=False), nodes=1)
    assert plain.front is not None
    for number in nodes:
        hidden = run(experiment(**settings, secure_aggregation=True), nodes=number)
        assert torch.allclose(weights(hidden), weights(plain), rtol=0, atol=1e-9), number
        assert hidden.front is not None
        assert torch.allclose(hidden.front.front.weights, plain.front.front.weights, rtol=0, atol=1e-6), number


@pytest.mark.parametrize("randomness", ["seeded", "system"])
def test_the_opened_sum_is_the_sum_of_integers(randomness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = Listened(monkeypatch)
    conducted(Nodes(), randomness=randomness)
    assert len(listened.held) == 5
    assert listened.opened[0].tolist() == listened.plain()


@pytest.mark.parametrize(("lost", "missing"), [
    ({KEYS: {4}}, []), ({DEAL: {0}}, []), ({MASK: {3}}, [3]), ({UNMASK: {1}}, []),
    ({KEYS: {4}, MASK: {0}}, [0]), ({DEAL: {1}, UNMASK: {0}}, []), ({MASK: {1, 2}}, [1, 2])])
def test_a_lost_node_is_missing_from_the_sum_unless_its_integers_had_arrived(
        lost: dict[str, set[int]], missing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are lost before they add up hold nothing; one lost at `MASK` does, and its masks must go."""
    listened = Listened(monkeypatch)
    result = conducted(Nodes(lost=lost), dropouts=2)
    assert listened.opened[0].tolist() == listened.plain(missing)
    assert result.ledger.by_observer()["server"] == pytest.approx(result.ledger.epsilon())


@pytest.mark.parametrize("exchange", [KEYS, DEAL, MASK, UNMASK])
def test_without_leave_no_client_may_be_lost(exchange: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = Listened(monkeypatch)
    with pytest.raises(ClientError, match="client 2 did not answer, and dropouts is 0"):
        conducted(Nodes(lost={exchange: {2}}))
    assert listened.opened == []


@pytest.mark.parametrize("exchange", [DEAL, MASK, UNMASK])
def test_no_sum_is_opened_by_half_of_the_nodes(exchange: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of clients that may be missing."""
    listened = Listened(monkeypatch)
    with pytest.raises(ClientError, match="only 2 nodes are left, but the secure sum needs 3 of 5"):
        conducted(Nodes(lost={exchange: {0, 2, 4}}), dropouts=3)
    assert listened.opened == []


def test_so_many_nodes_open_a_mask_as_lost_clients_leave() -> None:
    assert [_most_lost((3, 1, 1, 0), dropouts) for dropouts in (0, 1, 2, 4, 5)] == [0, 1, 2, 2, 3]


def uniform(values: np.ndarray) -> float:
    """Return the p-value that 64-bit words are uniform: their octets, by a chi-square test."""
    return float(stats.chisquare(np.bincount(values.view(np.uint8), minlength=256)).pvalue)


@pytest.mark.parametrize("noise", [1e-3, 2.0])
def test_what_the_server_receives_is_uniform(noise: float) -> None:
    """Also with almost no noise, where a node's sum would be as plain as it can be; and all together."""
    nodes = Nodes()
    conducted(nodes, features="bounded", noise_multiplier=noise)
    sent = [words(content) for content in nodes.seen[MASK].values()]
    assert len(sent) == 5
    for values in (*sent, sum(sent), sent[0] - sent[1]):
        assert uniform(np.asarray(values)) > 1e-4


def test_no_other_message_tells_anything_of_the_records() -> None:
    """Keys, sealed shares, and one share for each party; with the node's number, of 32 bytes each."""
    nodes = Nodes()
    conducted(nodes)
    told = {name: {key for content in nodes.seen[name].values() for key in content} - {"node", "exchange"}
            for name in (KEYS, DEAL, MASK, UNMASK)}
    assert told == {KEYS: {"keys"}, DEAL: {"shares"}, MASK: {"masked"}, UNMASK: {"unmasking"}}
    assert all(set(map(len, content["unmasking"]["shares"])) == {32} for content in nodes.seen[UNMASK].values())


class Greedy(Nodes):
    """Nodes whose server asks one of them more than it should, after an exchange."""

    def __init__(self, after: str, change: Callable[[Message], Any]) -> None:
        super().__init__()
        self.after, self.change = after, change
        self.answer: RecordDict | None = None

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`."""
        asked = list(messages)
        replies = super().send_and_receive(asked)
        if str(asked[0].content["exchange"]["name"]) == self.after:
            records = {name: record for name, record in asked[1].content.items() if name != "options"}
            again = Message(RecordDict({**records, "options": ConfigRecord({**asked[1].content["options"]})}),
                            dst_node_id=asked[1].metadata.dst_node_id, message_type=asked[1].metadata.message_type)
            self.change(again)
            self.answer, = (reply.content for reply in LocalGrid.send_and_receive(self, [again]))
        return replies


def options(**values: Any) -> Callable[[Message], Any]:
    return lambda message: message.content["options"].update(values)


ATTACKS: dict[str, tuple[str, Callable[[Message], Any], str]] = {
    "the other kind of share too": (UNMASK, options(survivors=[1, 2, 3, 4]), "the secure sum is opened"),
    "the same shares again": (UNMASK, options(), "the secure sum is opened"),
    "other sums under the same masks": (MASK, options(), "the secure sum is masked"),
    "sums under masks with fewer": (MASK, options(senders=[0, 1, 2]), "the secure sum is masked"),
    "shares of other secrets": (DEAL, options(), "the secure sum is shared"),
    "a lower threshold": (DEAL, options(threshold=1), "the secure sum is shared"),
    "another sum": (MASK, options(sum="other"), "is for the secure sum 'other'"),
}


@for_each("attack", ATTACKS)
def test_a_server_that_asks_too_much_is_refused(attack: str) -> None:
    """Each would give away more than the sum, and the run itself is not harmed."""
    after, change, said = ATTACKS[attack]
    nodes = Greedy(after, change)
    conducted(nodes)
    assert nodes.answer is not None
    assert set(nodes.answer) == {"failure"}
    assert said in str(nodes.answer["failure"]["reason"])


class Changing(Nodes):
    """Nodes whose server changes its requests of one exchange."""

    def __init__(self, exchange: str, change: Callable[[Message], Any]) -> None:
        super().__init__()
        self.exchange, self.change = exchange, change

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`."""
        asked = list(messages)
        for message in asked if asked[0].content["exchange"]["name"] == self.exchange else []:
            self.change(message)
        return super().send_and_receive(asked)


def plan(**values: Any) -> Callable[[Message], Any]:
    def change(message: Message) -> None:
        text = str(message.content["round"]["json"])
        for name, (before, after) in values.items():
            assert f'"{name}": {before}' in text
            text = text.replace(f'"{name}": {before}', f'"{name}": {after}')
        message.content["round"] = ConfigRecord({"json": text})

    return change


@for_each(("exchange", "change", "said"), [
    (DEAL, options(threshold=2), "2 of 5 parties would open a mask: take more than half"),
    (UNMASK, options(survivors=[0, 1]), "only 2 parties are left, but the secure sum needs 5|are not different ones"),
    (MASK, plan(noise_multiplier=("2.0", "0.0")), "there is none: take noise"),
    (MASK, plan(trust=('"distributed"', '"central"')), "noise that the clients share, but the round has"),
    (MASK, plan(noise=('"discrete"', '"gaussian"')), "a secure sum has discrete noise"),
])
def test_a_node_does_not_take_part_in_a_sum_that_protects_less(exchange: str, change: Callable[[Message], Any],
                                                               said: str) -> None:
    with pytest.raises(ClientError, match=said):
        conducted(Changing(exchange, change))


def test_a_node_without_keys_sends_nothing_and_keeps_no_secret_at_the_end() -> None:
    nodes = Nodes()
    forgetting = Changing(DEAL, lambda message: nodes._contexts[2].state.config_records.clear())
    forgetting._contexts = nodes._contexts
    with pytest.raises(ClientError, match="no secure sum was begun here: ask for the node's keys first"):
        conducted(forgetting)
    conducted(nodes)
    for context in nodes._contexts.values():
        kept = context.state.config_records["secure sum"]
        assert (kept["stage"], kept["sealing"], kept["masking"], kept["seed"]) == ("opened", b"", b"", b"")
        assert "shares" not in kept


def replaced(name: str, key: str, value: Any) -> Lie:
    return lambda content: content.__setitem__(name, ConfigRecord({key: value}))


LIES: dict[str, tuple[str, Lie, str]] = {
    "no keys": (KEYS, lambda content: content.pop("keys"), "client 0 sent no keys for a secure sum"),
    "a short key": (KEYS, replaced("keys", "sealing", b"x"), "client 0 sent no keys for a secure sum"),
    "a key that is a text": (KEYS, replaced("keys", "sealing", "x" * 32), "client 0 sent no keys for a secure sum"),
    "too few shares": (DEAL, replaced("shares", "sealed", [b"x"] * 4), "client 0 sent no shares for a secure sum"),
    "long shares": (DEAL, replaced("shares", "sealed", [b"x" * 2000] * 5), "client 0 sent no shares"),
    "shares for nobody": (DEAL, replaced("shares", "sealed", [b"x" * 92] * 5), "a sealed text is not what was sent"),
    "other sums": (MASK, lambda content: content.__setitem__("masked", pack({"numbers": torch.zeros(3)})),
                   "client 0 sent masked sums of shapes"),
    "no sums": (MASK, lambda content: content.pop("masked"), "client 0 sent masked sums of shapes"),
    "sums that are no integers": (MASK, lambda content: content.__setitem__("masked", pack(
        {"numbers": unpack(content, "masked")["numbers"].double()})), "client 0 sent masked sums .*'float64'"),
    "no unmasking": (UNMASK, lambda content: content.pop("unmasking"), "client 0 sent no unmasking"),
    "false shares": (UNMASK, replaced("unmasking", "shares", [bytes(32)] * 5), "larger than any sum over the records"),
}


@for_each("lie", LIES)
def test_a_node_that_lies_ends_the_run(lie: str) -> None:
    exchange, change, said = LIES[lie]
    with pytest.raises(ClientError, match=said):
        conducted(Nodes(lie=(exchange, change)))


def test_the_ledger_has_the_sums_epsilon_for_the_server() -> None:
    """Recomputed from the noise alone; another client takes its own share away."""
    ledger = run(experiment(dropouts=1)).ledger
    bare = run(experiment(dropouts=1, secure_aggregation=False)).ledger
    share = 2.0 / math.sqrt(4)
    observed = ledger.by_observer()
    assert observed["server"] == pytest.approx(epsilon({Release(1.0, 2.0): 1}, 1e-5, "pld"))
    assert observed["client"] == pytest.approx(epsilon({Release(1.0, math.sqrt(4 - share**2)): 1}, 1e-5, "pld"))
    assert bare.by_observer()["server"] == pytest.approx(epsilon({Release(1.0, share): 1}, 1e-5, "pld"))
    assert ledger.to_dict()["secure_aggregation"] is True


@for_each(("settings", "said"), [
    ({"trust": "central"}, 'secure_aggregation is true, but trust is "central": take trust = "distributed"'),
    ({"trust": "local"}, 'secure_aggregation is true, but trust is "local"'),
    ({"noise": "gaussian"}, 'secure_aggregation is true, but noise is "gaussian": take noise = "discrete"'),
    ({"noise_multiplier": 0.0}, "secure_aggregation is true, but noise_multiplier is 0"),
    ({"strategy": "dpsgd", "features": None, "model": "logistic"}, "this strategy has no sum for it: take moments"),
    ({"noise_multiplier": 1e-6}, "too large for whole steps of so little noise in 64 bits"),
])
def test_settings_that_do_not_fit_are_refused_before_anything_is_sent(settings: dict[str, Any], said: str) -> None:
    nodes = Nodes()
    with pytest.raises(ValueError, match=said):
        conducted(nodes, **settings)
    assert set(nodes.seen) <= {"exchanges.send_sizes"}
