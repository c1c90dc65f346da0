"""Keys that two parties agree on, and texts that one seals for another so that who carries them cannot read them.

X25519 (RFC 7748), HKDF-SHA256 (RFC 5869) and ChaCha20-Poly1305 (RFC 8439) of the `cryptography` package.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
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
