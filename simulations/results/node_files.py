"""What each node of a run contributed, for its coordinator: nodes.csv in the folder of nodes that keep their files.

It has nothing but what everybody may know of a node, or what it allowed: public numbers of sites and records, rounds
that it answered, the epsilon that the run's ledger charges its records against the server, and figures of its test
records if they left it without noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.log import EventLog
from fedfair.protocol.messages import BY_CLIENT
from fedfair.protocol.record_settings import NODES
from strategies.server.rounds import Rounds

NODES_FILE = "nodes.csv"
COLUMNS = {"node": "node", "sites": "sites", "records": "training records", "rounds": "rounds",
           "answered": "answered in time", "missed": "absent or late", "epsilon": "epsilon against the server",
           "test_records": "test records", "accuracy": "accuracy"}
"""Columns, and what they are called."""


def contributions(rounds: Rounds) -> pd.DataFrame | None:
    """Return a row for each node of a finished run; None where nodes have no files of their own."""
    if rounds.task.partition != NODES:
        return None
    attended, figures = rounds.attendance, _figures(pd.DataFrame(rounds.rows.all))
    rows = []
    held = sorted(rounds.population.holders.values(), key=lambda clients: clients.start)
    for number, clients in enumerate(held):
        name, answered = f"node {number}", attended.answered[clients.start]
        own = _together([told for group, told in figures.items() if group == name or group.startswith(f"{name} site ")])
        records = sum(rounds.population.by_client[client] for client in clients)
        rows.append((name, len(clients), records, attended.rounds, answered, attended.rounds - answered,
                     max(spent(rounds.ledger, client) for client in clients), own.get("records"),
                     own.get("accuracy")))
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _together(told: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Return the figures of all test records of a node, from those of each of its sites."""
    if len(told) < 2:
        return told[0] if told else {}
    records = sum(own["records"] for own in told)
    right = sum(own["records"] * own["accuracy"] for own in told if own["records"])
    return {"records": records, "accuracy": right / records} if records else {"records": records}


def spent(ledger: Ledger, client: int) -> float:
    """Return what a training record of one client is charged against the server.

    Args:
        ledger: The run's ledger.
        client: Number of the client.
    """
    own = EventLog()
    for event, steps in ledger.events.items():
        if event.client in (None, client):
            own.record(event, steps, None)
    return ledger.holding(own).by_observer()["server"]


def _figures(metrics: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the latest figures of each node's test records, by node and metric; none if none left the nodes."""
    told = metrics[metrics["split"] == f"test {BY_CLIENT}"] if len(metrics) else metrics
    return {str(name): dict(zip(own["metric"], own["value"], strict=True))
            for name, own in (told.groupby("group") if len(told) else ())}
