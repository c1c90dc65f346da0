"""Poisson sampling: each record joins a batch independently, as the accountant assumes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedfair.mechanisms.randomness import Bits, SystemEntropy, key, random_bits, splitmix64


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


def _joining(bits: Bits, rates: float | Tensor) -> Tensor:
    """Return the positions at which a uniform number, a multiple of 2^-53 made of the upper bits, is below its rate."""
    below = np.ceil(np.asarray(rates) * 2.0**53).astype(np.uint64)
    return torch.from_numpy(np.flatnonzero(bits >> np.uint64(11) < below))
