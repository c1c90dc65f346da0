"""Who took part: of how many training rounds each client's answer came in time and was added up."""

from __future__ import annotations

from collections.abc import Iterable


class Attendance:
    """Counts by client, `[clients]`, over the rounds of a run, one that was resumed included.

    Args:
        clients: Number of clients.

    Attributes:
        rounds: Number of rounds that ended.
        answered: How many of them each client answered.
    """

    def __init__(self, clients: int) -> None:
        self.rounds, self.answered = 0, [0] * clients

    def note(self, present: Iterable[int]) -> None:
        """Count a round.

        Args:
            present: Numbers of the clients that answered.
        """
        self.rounds += 1
        for client in present:
            self.answered[client] += 1
