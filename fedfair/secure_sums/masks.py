"""Masks of a secure sum, the keys that they are made from, and the shares by which a lost party's are made again.

Masks are uniform integers modulo 2^64, expanded from a key. A party at place u of the parties U sends

    y_u = x_u + M(b_u) + sum_{v in U, v > u} M(k_uv) - sum_{v in U, v < u} M(k_uv)   (mod 2^64)

with a seed b_u of its own and keys k_uv = k_vu that it shares with each other party. In the sum over U the pairs
cancel. M(k) is the key stream of ChaCha20 (RFC 8439), so y_u cannot be told from uniform numbers by anyone who lacks
b_u, or lacks one k_uv. Each key is used for one mask of one sum: with a second use the difference of two messages would
be that of two secrets. The server takes the masks away that do not cancel, from shares of those who are left.

Two parties agree on a key, and one seals texts for another so that who carries them cannot read them: X25519
(RFC 7748), HKDF-SHA256 (RFC 5869) and ChaCha20-Poly1305 (RFC 8439) of the `cryptography` package.

Shares of a secret of 32 bytes are Shamir's (1979), by pycryptodome: any t of them give the secret, fewer say nothing of
it. They are of a polynomial of degree t - 1 over GF(2^128) for each half of the secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

BYTES = 32
"""Length of secret keys, public keys, seeds and derived keys."""

_NONCE = 12


def new_secret() -> bytes:
    """Draw a secret key from the operating system."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_key(secret: bytes) -> bytes:
    """Return the public key of a secret key."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def derived(secret: bytes, purpose: str) -> bytes:
    """Return the key that follows from a secret for one purpose; keys for different purposes are independent."""
    return HKDF(SHA256(), BYTES, salt=None, info=f"fedfair secure sum, {purpose}".encode()).derive(secret)


def agreed(secret: bytes, public: bytes, purpose: str) -> bytes:
    """Return the key that the owners of two key pairs share, the same for both.

    Args:
        secret: Secret key of one.
        public: Public key of the other.
        purpose: What the key is for.

    Raises:
        ValueError: For a public key that is none.
    """
    return derived(X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public)),
                   purpose)


def seal(key: bytes, text: bytes, about: str) -> bytes:
    """Encrypt a text, so that it is opened only with the key and as what it is `about`."""
    nonce = os.urandom(_NONCE)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, about.encode())


def opened(key: bytes, sealed: bytes, about: str) -> bytes:
    """Return what `seal` encrypted.

    Raises:
        ValueError: If it was sealed with another key, about something else, or was changed.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], about.encode())
    except (InvalidTag, ValueError):  # the latter for a text that is too short
        raise ValueError(f"a sealed text is not what was sent ({about}): start the sum anew") from None


_HALF = 16


def split(secret: bytes, threshold: int, parties: int) -> list[bytes]:
    """Return one share of 32 bytes for each party.

    Args:
        secret: 32 bytes.
        threshold: How many shares give the secret, t.
        parties: Number of shares.
    """
    halves = [Shamir.split(threshold, parties, half, ssss=False) for half in (secret[:_HALF], secret[_HALF:])]
    return [first + second for (_, first), (_, second) in zip(*halves, strict=True)]


def joined(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of exactly t shares; fewer, or a wrong one, give 32 other bytes.

    Args:
        shares: Shares by the place of their party among all, from 0.
    """
    first = Shamir.combine([(place + 1, share[:_HALF]) for place, share in shares.items()], ssss=False)
    second = Shamir.combine([(place + 1, share[_HALF:]) for place, share in shares.items()], ssss=False)
    return first + second


Words = npt.NDArray[np.uint64]
"""Integers modulo 2^64, which numpy's arithmetic of this type is."""

_START = bytes(16)  # counter and nonce: a key makes one stream


def own_mask(seed: bytes, numbers: int) -> Words:
    """Return the mask `[numbers]` of a party's own seed."""
    return _stream(derived(seed, "own mask"), numbers)


def pair_masks(secret: bytes, place: int, keys: Mapping[int, bytes], numbers: int) -> Words:
    """Return the sum of the masks `[numbers]` that one party shares with others, each with its sign.

    Args:
        secret: The party's secret key for masks.
        place: Its place among all parties.
        keys: Public keys of the others by place.
        numbers: Number of integers.
    """
    total = np.zeros(numbers, dtype=np.uint64)
    for other, public in keys.items():
        mask = _stream(agreed(secret, public, "pair mask"), numbers)
        total = total + mask if other > place else total - mask
    return total


def _stream(key: bytes, numbers: int) -> Words:
    """Expand a key that is used for nothing else into uniform integers."""
    stream = Cipher(ChaCha20(key, _START), mode=None).encryptor().update(bytes(8 * numbers))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def opened_sum(masked: Mapping[int, Words], keys: Sequence[bytes], senders: Sequence[int],
               shares: Mapping[int, Sequence[bytes]], threshold: int) -> npt.NDArray[np.int64]:
    """Return the sum of the parties' integers, as numbers from -2^63 to 2^63 - 1.

    Args:
        masked: Masked integers `[d]` by place of the party: those of the survivors.
        keys: Public keys for masks of all parties, in their order.
        senders: Places of the parties that dealt shares; who is among them and not in `masked` was lost.
        shares: What `Party.unmasking` returned, by place.
        threshold: How many shares open a mask.

    Raises:
        ValueError: For too few shares, or shares that give another secret than the one that was shared.
    """
    if len(shares) < threshold:
        raise ValueError(f"only {len(shares)} parties sent shares, but {threshold} are needed to open the sum")
    used = sorted(shares)[:threshold]
    numbers = len(next(iter(masked.values())))
    total = np.zeros(numbers, dtype=np.uint64)
    for hidden in masked.values():
        total = total + hidden
    for at, sender in enumerate(senders):
        secret = joined({place: shares[place][at] for place in used})
        if sender in masked:
            total = total - own_mask(secret, numbers)
        else:
            total = total + _left_over(secret, sender, keys, masked)
    return total.view(np.int64)


def _left_over(secret: bytes, lost: int, keys: Sequence[bytes], masked: Mapping[int, Words]) -> Words:
    """Return what is to be added for a lost party: the pair masks that it would have sent with the survivors."""
    if public_key(secret) != keys[lost]:
        raise ValueError(f"the shares of party {lost}'s key give another key: one of those who sent them did not send "
                         "what was shared")
    numbers = len(next(iter(masked.values())))
    return pair_masks(secret, lost, {place: keys[place] for place in masked}, numbers)
