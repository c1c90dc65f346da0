"""Clients with a single record: whoever knows their numbers of records by group knows the group of that record."""

from __future__ import annotations

from fedfair.mechanisms.noise import Trust
from strategies.server.population import Population


def refuse_single_records(population: Population, trust: Trust, step: int) -> None:
    """Raise `ValueError` if clients that trust nobody tell of a single record: its number is its group.

    Clients tell numbers of records by group, rounded up to multiples of `step`; of a client that tells of one `step` in
    one group it is not known whether it holds more than one record. Where the server is trusted it may know that.
    """
    if trust is not Trust.LOCAL:
        return
    single = [client for client, size in enumerate(population.by_client) if size == step]
    if single:
        holds = "a single record" if step == 1 else f"at most {step} records, all of one group, perhaps a single one"
        raise ValueError(f"client {single[0]} holds {holds}, and so do {len(single) - 1:,} others; trust is 'local', "
                         "but numbers of records by client and group are public, and of a single record they tell the "
                         "group, which no noise hides: take fewer clients, which hold more each, or trust = \"central\""
                         " with a server that may know it; a larger round_sizes does not help, since a group without "
                         "records stays at 0")
