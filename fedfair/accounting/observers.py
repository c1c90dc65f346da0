"""Observers of a run, and how much of the noise protects a record from each.

- "model": anyone who gets the final model or an intermediate one, and takes no part in the training.
- "server": follows the protocol and looks at everything that it receives.
- "client": another client, which sees every model and knows the noise that it added.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from fedfair.accounting.events import Event
from fedfair.mechanisms.noise import Trust, client_share, sum_share

Observer = Literal["model", "server", "client"]
OBSERVERS: tuple[Observer, ...] = get_args(Observer)


def noise_seen(observer: Observer, event: Event, trust: Trust, clients: int, secure_aggregation: bool) -> float:
    """Return the standard deviation of the noise between a record and an observer, in units of the planned one.

    Central: the server sees sums without noise. Distributed: the server sees each client's share (`client_share`)
    unless sums are securely aggregated, and another client can subtract its own share. Local: every client adds the
    full noise. A local epoch is protected before it leaves the client, so all observers see the same noise.
    """
    present = event.noise_present
    if event.client is not None:
        return present
    share, summed = client_share(trust, clients), present * sum_share(trust, clients)
    if observer == "server":
        return summed if secure_aggregation and trust is Trust.DISTRIBUTED else share
    if observer == "client" and clients > 1:
        return math.sqrt(max(summed**2 - share**2, 0.0))
    return summed
