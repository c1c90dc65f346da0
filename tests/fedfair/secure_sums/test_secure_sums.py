"""A secure sum is the plain sum, to the bit, whoever is lost; what is sent is uniform; what tells more is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedfair.secure_sums.masks import joined, own_mask, pair_masks, split
from fedfair.secure_sums.party import begun
from tests.fedfair.secure_sums.parties import Integers, Sum
from tests.for_each import for_each

LARGEST = 2**63 - 1


def plain(values: list[Integers], who: Any) -> list[int]:
    """Return the sum of some parties' integers, by Python's exact integers, modulo 2^64 around 0."""
    totals = [sum(int(values[u][at]) for u in who) for at in range(len(values[0]))]
    return [(total + 2**63) % 2**64 - 2**63 for total in totals]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_sum_of_those_who_are_left_is_exact(data: st.DataObject) -> None:
    """Some parties are lost before they deal shares, some before they send integers, some before they unmask."""
    parties = data.draw(st.integers(1, 7))
    threshold = data.draw(st.integers(parties // 2 + 1, parties))
    order = data.draw(st.permutations(range(parties)))
    gone = [data.draw(st.integers(0, parties - threshold)) for _ in range(3)]
    ends = np.minimum(np.cumsum(gone), parties - threshold)
    lost = [order[start:end] for start, end in zip((0, *ends), ends, strict=False)]
    length = data.draw(st.integers(1, 4))
    numbers = st.lists(st.integers(-LARGEST - 1, LARGEST), min_size=length, max_size=length)
    values = [np.array(data.draw(numbers), dtype=np.int64) for _ in range(parties)]
    done = Sum(parties, threshold).deal(lost[0]).mask(values, lost[1]).unmask(lost[2])
    left = set(range(parties)) - set(lost[0]) - set(lost[1])
    assert done.total().tolist() == plain(values, left)


def uniform(words: np.ndarray) -> float:
    """Return the p-value that 64-bit words are uniform: their octets, by a chi-square test."""
    return float(stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue)


def test_what_a_party_sends_is_uniform_whatever_it_holds() -> None:
    zeros, large = np.zeros(20_000, dtype=np.int64), np.full(20_000, 7, dtype=np.int64)
    for values in (zeros, large):
        sent = Sum(3, 3).deal().mask([values] * 3).masked
        for words in (*sent.values(), sent[0] + sent[1], sent[0] - sent[1]):
            assert uniform(words) > 1e-4
    assert uniform(zeros.view(np.uint64)) < 1e-4


def test_the_pairs_cancel_and_each_own_mask_remains_until_it_is_opened() -> None:
    """The sum of all that is sent is uniform too: a server without shares learns nothing at all."""
    values = [np.full(20_000, u, dtype=np.int64) for u in range(3)]
    done = Sum(3, 2).deal().mask(values)
    assert uniform(sum(done.masked.values())) > 1e-4  # type: ignore[arg-type]
    assert set(done.unmask().total()) == {3}


def test_no_partys_integers_are_seen_when_all_own_masks_are_opened() -> None:
    """Nor those of two of three together: only the sum of all."""
    done = Sum(3, 3).deal().mask([np.zeros(20_000, dtype=np.int64)] * 3)
    opened = [done.masked[u] - own_mask(done.parties[u].seed, 20_000) for u in range(3)]
    for seen in (*opened, opened[0] + opened[1], opened[1] + opened[2], opened[0] + opened[2], opened[0] - opened[1]):
        assert uniform(seen) > 1e-4
    assert not (opened[0] + opened[1] + opened[2]).any()


def test_masks_of_different_secrets_have_nothing_in_common() -> None:
    """But those of a pair, of which one adds what the other takes away."""
    first, second, third = (begun("sum") for _ in range(3))
    masks = [own_mask(bytes([seed]) * 32, 20_000) for seed in range(2)]
    masks += [pair_masks(first.masking, 0, {1: other.public_keys[1]}, 20_000) for other in (second, third)]
    for at, mask in enumerate(masks):
        assert all(uniform(mask - other) > 1e-4 for other in masks[:at])
    assert not (masks[2] + pair_masks(second.masking, 1, {0: first.public_keys[1]}, 20_000)).any()


def test_who_was_called_lost_stays_hidden_when_its_integers_arrive_late() -> None:
    """The server has them, and opens its pair masks: the mask of its own is left (double masking)."""
    values = [np.full(20_000, u, dtype=np.int64) for u in range(3)]
    late = Sum(3, 2).deal().mask(values)
    own_seed, held = late.parties[2].seed, late.masked.pop(2)
    assert set(late.unmask(lost={2}).total()) == {1}
    secret = joined({0: late.shares[0][2], 1: late.shares[1][2]})
    rest = held - pair_masks(secret, 2, dict(enumerate(late.masking_keys[:2])), 20_000)
    assert uniform(rest) > 1e-4
    assert set(rest - own_mask(own_seed, 20_000)) == {2}


def test_a_party_never_gives_both_shares_of_one_party() -> None:
    """Attack: a server says first that party 2 is lost, and then that it is not."""
    values = [np.array([5]), np.array([6]), np.array([7])]
    asked = Sum(3, 2).deal().mask(values)
    asked.parties[0], told = asked.parties[0].unmasking("sum", [0, 1])
    with pytest.raises(ValueError, match="the secure sum is opened, so that this request is not its next"):
        asked.parties[0].unmasking("sum", [0, 1, 2])
    assert len(told) == 3
    assert {len(share) for share in told} == {32}


def test_two_parts_of_the_parties_cannot_be_told_different_things() -> None:
    """Attack: shares of party 0's seed from some, of its key from others; each kind needs more than half."""
    values = [np.array([u]) for u in range(4)]
    asked = Sum(4, 3).deal().mask(values)
    with pytest.raises(ValueError, match="only 2 parties are left, but the secure sum needs 3"):
        asked.parties[1].unmasking("sum", [1, 2])
    for threshold in (0, 1, 2, 5):
        with pytest.raises(ValueError, match=f"{threshold} of 4 parties would open a mask"):
            Sum(4, threshold).deal()


def test_a_request_out_of_turn_or_for_another_sum_is_refused() -> None:
    """Attack: the same masks over other integers would give their difference away."""
    value, done = np.array([1]), Sum(2, 2)
    with pytest.raises(ValueError, match="the secure sum is begun"):
        done.parties[0].masked("sum", value, [0, 1], [b"", b""])
    done.deal()
    with pytest.raises(ValueError, match="the secure sum is shared"):
        done.deal()
    with pytest.raises(ValueError, match="the secure sum is shared"):
        done.parties[0].unmasking("sum", [0, 1])
    done.mask([value, value])
    with pytest.raises(ValueError, match="the secure sum is masked"):
        done.mask([value, value])
    with pytest.raises(ValueError, match="is for the secure sum 'other', but the latest is 'sum'"):
        done.parties[0].unmasking("other", [0, 1])
    done.unmask()
    with pytest.raises(ValueError, match="the secure sum is opened"):
        done.unmask()
    assert (done.parties[0].sealing, done.parties[0].masking, done.parties[0].shares) == (b"", b"", ())


def test_too_few_are_refused_before_anything_is_sent() -> None:
    done = Sum(3, 2).deal(lost={1, 2})
    with pytest.raises(ValueError, match="only 1 parties are left, but the secure sum needs 2"):
        done.mask([np.array([1])] * 3)
    done = Sum(3, 3).deal().mask([np.array([1])] * 3).unmask(lost={0})
    with pytest.raises(ValueError, match="only 2 parties sent shares, but 3 are needed"):
        done.total()


@for_each("senders", [[1, 0, 2], [0, 0, 1], [1, 2], [0, 1, 3], [0, 1, -1]])
def test_parties_that_are_none_are_refused(senders: list[int]) -> None:
    done = Sum(3, 2).deal()
    with pytest.raises(ValueError, match="are not different ones of this sum with this one among them"):
        done.parties[0].masked("sum", np.array([1]), senders, [done.sealed[abs(v) % 3][0] for v in senders])


def test_keys_that_are_not_those_of_different_parties_are_refused() -> None:
    done, stranger = Sum(3, 2), begun("sum").public_keys
    sealing, masking = done.sealing_keys, done.masking_keys
    for keys in (([stranger[0], *sealing[1:]], masking), (sealing, [*masking[1:], masking[0]]),
                 ([sealing[0], sealing[1], sealing[1]], masking), (sealing, [masking[0], masking[1], masking[1]])):
        with pytest.raises(ValueError, match="the keys are not those of different parties"):
            done.parties[0].shared("sum", 2, *keys)


def test_shares_that_were_sealed_for_others_or_changed_are_refused() -> None:
    done = Sum(3, 2).deal()
    changed = done.sealed[1][0][:-1] + bytes([done.sealed[1][0][-1] ^ 1])
    reflected = done.sealed[0][1]  # under the same key, the other way round
    for wrong in (done.sealed[1][2], changed, done.sealed[2][0], reflected, b""):
        with pytest.raises(ValueError, match="a sealed text is not what was sent"):
            done.parties[0].masked("sum", np.array([1]), [0, 1, 2], [done.sealed[0][0], wrong, done.sealed[2][0]])


def test_a_false_share_of_a_lost_partys_key_is_noticed() -> None:
    done = Sum(3, 2).deal().mask([np.array([1])] * 3, lost={2}).unmask()
    done.shares[0][2] = bytes(32)
    with pytest.raises(ValueError, match="the shares of party 2's key give another key"):
        done.total()


@pytest.mark.parametrize(("threshold", "parties"), [(1, 1), (2, 2), (2, 3), (4, 7)])
def test_enough_shares_give_the_secret_and_fewer_do_not(threshold: int, parties: int) -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(split(secret, threshold, parties)))
    for start in range(parties - threshold + 1):
        assert joined({place: shares[place] for place in range(start, start + threshold)}) == secret
    if threshold > 1:
        assert joined({place: shares[place] for place in range(threshold - 1)}) != secret
        assert split(secret, threshold, parties)[0] != shares[0]


def test_a_share_of_a_secret_of_zeros_is_uniform() -> None:
    drawn = np.frombuffer(b"".join(split(bytes(32), 2, 2)[1] for _ in range(600)), dtype=np.uint64)
    assert uniform(drawn) > 1e-4
