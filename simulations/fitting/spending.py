"""What several fits of the same records spend together, in a file that counts them: a cross-validation, or a grid."""

from __future__ import annotations

import json
import os
from pathlib import Path

from filelock import FileLock

from fedfair.accounting.figures import up
from fedfair.plugins.text_values import from_json


class Spending:
    """A count of fits in one file, to which each of them adds a line before it releases anything.

    A fit of a part of the records counts in full: a row may be in every part. Epsilons and deltas add up, which holds
    whatever the fits are (Dwork and Roth 2014, Theorem 3.16). Fits in several processes may share the file.

    Args:
        path: The file; it is made by the first fit. Give another one for other records.

    Examples:
        >>> spending = Spending(Path("people.fits.jsonl"))
        >>> for _ in range(5):
        ...     spending.charge(0.2, 1e-6)
        >>> spending.fits, round(spending.epsilon, 6), spending.told()
        (5, 1.0, '5 fits that are counted in people.fits.jsonl cost every row epsilon 1 at delta 5e-06 together')
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def charge(self, epsilon: float, delta: float) -> None:
        """Count a fit that is about to begin; when this returns, the line is on the disk.

        Args:
            epsilon: Its epsilon.
            delta: Its delta.

        Raises:
            OSError: If the line cannot be written; then nothing may be released.
            ValueError: If the file holds something else.
        """
        with FileLock(f"{self.path}.lock"):
            self._lines()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"epsilon": epsilon, "delta": delta}) + "\n")
                file.flush()
                os.fsync(file.fileno())

    @property
    def fits(self) -> int:
        """Number of fits, also of those that did not end."""
        return len(self._lines())

    @property
    def epsilon(self) -> float:
        """Sum of their epsilons."""
        return sum(line["epsilon"] for line in self._lines())

    @property
    def delta(self) -> float:
        """Sum of their deltas."""
        return sum(line["delta"] for line in self._lines())

    def told(self) -> str:
        """Return the sum in words."""
        fits = self.fits
        return (f"{fits} fit{'s' * (fits != 1)} that {'are' if fits != 1 else 'is'} counted in {self.path.name} "
                f"cost{'s' * (fits == 1)} every row epsilon {up(self.epsilon, '.3g')} at delta {up(self.delta, '.1g')}"
                + " together" * (fits != 1))

    def _lines(self) -> list[dict[str, float]]:
        """Return a line for each fit; raise `ValueError` for a file that holds something else."""
        if not self.path.exists():
            return []
        try:
            lines = [from_json(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
            return [{"epsilon": float(line["epsilon"]), "delta": float(line["delta"])} for line in lines]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self.path} is no count of fits: name a file that is not there yet, or one that a fit "
                             "has begun") from None
