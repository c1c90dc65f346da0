"""Random numbers, from seeded generators or from the operating system, and the batches that they draw.

For simulation, noise and batches follow from (noise key, purpose, client, step), so that no draw depends on what ran
before it. The noise key is a digest of the whole experiment (`strategies.server.noise_key`): two that differ share no
draw, since the difference of two releases with one noise would hold none. What is no noise, such as the split and the
initial model, follows from (seed, purpose): methods are compared on the same ones. For deployment, the operating
system's entropy cannot be derived by anyone.

Each record joins batches independently of all others, as the accountant assumes: by Poisson's sampling every batch with
the same probability, by balls in bins one batch of every epoch.
"""

from __future__ import annotations

import os
from hashlib import blake2b, shake_128

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedfair.mechanisms.marks import samples

_ODD = 0x9E3779B1  # any odd number permutes the 32-bit integers by multiplication
_STATE = torch.Generator().manual_seed(0).get_state().numpy()  # as bytes: a header, 624 words of 64 bits, other fields
_WORDS = slice(24, 24 + 8 * 624)  # of the Mersenne twister, each a number of 32 bits
_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

Bits = npt.NDArray[np.uint64]


class SystemEntropy:
    """Marker, in place of a generator: draw every bit from the operating system's entropy."""


Source = torch.Generator | SystemEntropy
"""Where random bits come from."""


def key(*parts: int | str) -> int:
    """Return a 64-bit number that depends on every part and on their order."""
    return int.from_bytes(blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest(), "big")


def generator(seed: int, purpose: str, client: int = 0, step: int = 0) -> torch.Generator:
    """Return a generator for what is no noise ("split", "model", "local order"), of one client at one step.

    PyTorch seeds its CPU generator with 32 bits, whatever it is given. Within one (seed, purpose, client) no two of the
    first 2^32 steps share a seed: the step moves through a permutation of them. Two of S streams of T steps overlap,
    one behind the other, with a probability of about S^2 T / 2^32: too much for noise, which `stream` draws.
    """
    stream = key(seed, purpose, client) & 0xFFFFFFFF
    return torch.Generator().manual_seed((stream + step) * _ODD & 0xFFFFFFFF)


def stream(noise_key: int | str, purpose: str, client: int = 0, step: int = 0) -> torch.Generator:
    """Return a generator for the noise of one purpose ("noise", "counts", "scores") of one client at one step.

    SHAKE-128 of the parts fills the generator's whole state of 19,968 bits. Streams of other parts are independent, and
    two of S streams are equal with a probability of about S^2 / 2^128. This is for simulation: anyone with the key can
    reconstruct all draws.
    """
    name = "\0".join(map(str, (noise_key, purpose, client, step)))
    state = _STATE.copy()
    state[_WORDS].view("<u8")[:] = np.frombuffer(shake_128(name.encode()).digest(4 * 624), dtype="<u4")
    made = torch.Generator()
    made.set_state(torch.from_numpy(state))
    return made


def source(noise_key: int | str | None, purpose: str, client: int = 0, step: int = 0) -> Source:
    """Return the generator that `stream` makes, or the operating system's entropy if there is no noise key."""
    return SystemEntropy() if noise_key is None else stream(noise_key, purpose, client, step)


def random_bits(source: Source, count: int) -> Bits:
    """Draw `[count]` independent uniform 64-bit numbers."""
    if isinstance(source, SystemEntropy):
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    halves = torch.empty(2 * count, dtype=torch.int64).random_(0, 2**32, generator=source).numpy().astype(np.uint32)
    return halves.view(np.uint64)


def splitmix64(start: int, places: Bits) -> Bits:
    """Return the outputs at `places`, from 0, of the SplitMix64 stream that starts at `start` (Steele et al. 2014).

    They overwrite `places`, since every batch waits for this.
    """
    z = places
    with np.errstate(over="ignore"):
        z += np.uint64(1)
        z *= _GOLDEN
        z += np.uint64(start)
        return _mixed(z)


def keyed_hash(start: int, numbers: Bits) -> Bits:
    """Return a hash of each of some numbers, `[n]`, under a key: as if 64 bits were drawn for each number alone.

    Unlike places of a stream, the numbers may be any; each is mixed twice, with the key before and in between. It is no
    cryptographic hash: one who knows the key can choose numbers for a hash.

    Args:
        start: The key.
        numbers: Numbers, which are left as they are.

    Examples:
        >>> first, again, other = keyed_hash(7, np.array([5, 5, 6], dtype=np.uint64)).tolist()
        >>> first == again != other
        True
    """
    own = np.uint64(start)
    with np.errstate(over="ignore"):
        return _mixed(_mixed((numbers ^ own) + _GOLDEN) + own + _GOLDEN)


def _mixed(z: Bits) -> Bits:
    """Let each bit of some words depend on all of their bits, in place: the last steps of SplitMix64."""
    z ^= z >> np.uint64(30)
    z *= _MIX_1
    z ^= z >> np.uint64(27)
    z *= _MIX_2
    z ^= z >> np.uint64(31)
    return z


def signs(noise_key: int | str, purpose: str, step: int, records: Tensor, count: int, dtype: torch.dtype
          ) -> Tensor:
    """Draw independent signs, -1 or 1, for each record `[n]`: `[n, count]`, a function of (noise key, step, record)."""
    words = np.arange((count + 63) // 64, dtype=np.uint64)
    places: Bits = records.numpy().astype(np.uint64)[:, None] * np.uint64(len(words)) + words
    octets = splitmix64(key(noise_key, purpose, step), places).view(np.uint8)
    return torch.from_numpy(np.unpackbits(octets, axis=1, count=count)).to(dtype) * 2 - 1


def uniform(bits: Bits) -> npt.NDArray[np.float64]:
    """Return numbers in [0, 1), multiples of 2^-53, made of the upper 53 of 64 bits each."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(source: Source, count: int, dtype: torch.dtype) -> Tensor:
    """Draw `[count]` standard normal numbers in floating point; from the operating system's bits by Box and Muller's
    method (1958).
    """
    if isinstance(source, torch.Generator):
        return torch.randn(count, generator=source, dtype=dtype)
    pairs = (count + 1) // 2
    u, v = uniform(random_bits(source, 2 * pairs)).reshape(2, pairs)
    radius, angle = np.sqrt(-2 * np.log1p(-u)), 2 * np.pi * v
    return torch.from_numpy(np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]).to(dtype)


@samples
def poisson(noise_key: int | str | None, step: int, records: Tensor, rates: float | Tensor) -> Tensor:
    """Draw the batch of one step: positions within `records`, `[batch]`, in ascending order, possibly empty.

    `records` `[n]` are the records' numbers, unique in the run; `rates` is one sampling rate in [0, 1], or one for each
    record, `[n]`. The batch is a pure function of (noise key, step, record): record r joins if the r-th output of the
    SplitMix64 stream that starts at key(noise key, step) falls below its rate. So it does not depend on how the records
    are spread over clients, and a client needs to know only its own records. Without a noise key the operating system's
    entropy decides, anew at every call.
    """
    if noise_key is None:
        return _joining(random_bits(SystemEntropy(), len(records)), rates)
    return _joining(splitmix64(key(noise_key, "sampling", step), records.numpy().astype(np.uint64)), rates)


def balls_in_bins(noise_key: int | str | None, epoch: int, records: Tensor, bins: int) -> Tensor:
    """Draw for each record, `[n]`, the step of an epoch that it is in: numbers from 0 to `bins` - 1, `[n]`.

    Like a Poisson sample, it is a pure function of (noise key, epoch, record), and where a record lies says nothing of
    others. Without a noise key the operating system draws anew at every call.

    Args:
        noise_key: What the draw follows from.
        epoch: Number of the epoch, from 0.
        records: Numbers of the records, unique in the run, `[n]`.
        bins: Number of steps of an epoch.

    Examples:
        >>> balls_in_bins(7, epoch=0, records=torch.arange(8), bins=3)
        tensor([2, 1, 1, 1, 1, 0, 0, 1])
        >>> balls_in_bins(7, epoch=0, records=torch.tensor([5, 0]), bins=3)
        tensor([0, 2])
    """
    bits = (random_bits(SystemEntropy(), len(records)) if noise_key is None else
            splitmix64(key(noise_key, "bins", epoch), records.numpy().astype(np.uint64)))
    return torch.from_numpy((uniform(bits) * bins).astype(np.int64))


def _joining(bits: Bits, rates: float | Tensor) -> Tensor:
    """Return the positions at which a uniform number, a multiple of 2^-53 made of the upper bits, is below its rate."""
    below = np.ceil(np.asarray(rates) * 2.0**53).astype(np.uint64)
    return torch.from_numpy(np.flatnonzero(bits >> np.uint64(11) < below))
