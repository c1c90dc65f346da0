"""A fit whose releases are those of another: what still differs was released without noise.

The first fit's noisy answers are kept, and a second fit of a neighbouring table gets them in place of its own. All that
is computed of them is then the same, and so must be every byte of the folder. What the exact answers of the two differ
by, in deviations of the noise, is the whole privacy loss: mu^2 is the sum of squares (Dong, Roth and Su 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from fedfair.mechanisms import noise
from fedfair.node import column_counts
from simulations.fitting.fit import Fitted, Wanted, fit
from simulations.fitting.save import save
from strategies.server.releases import preprocessing

Exact = dict[str, Tensor]


@dataclass
class Answers:
    """What a fit was asked, in order: exact numbers by name, what was released of them, and the noise's deviation."""

    exact: list[Exact] = field(default_factory=list)
    noisy: list[Any] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)

    def shares(self, other: Answers) -> list[float]:
        """Return mu^2 of each release, by which two tables can be told apart."""
        assert self.deviations == other.deviations
        return [_square(a, b) / deviation**2
                for a, b, deviation in zip(self.exact, other.exact, self.deviations, strict=True)]

    def evidence(self, other: Answers) -> float:
        """Return the logarithm of how much likelier the Gaussian releases are of the other table than of this one."""
        triples = zip(self.exact, other.exact, self.noisy, self.deviations, strict=True)
        return sum((_square(a, noisy) - _square(b, noisy)) / (2 * deviation**2)
                   for a, b, noisy, deviation in triples if all(isinstance(value, Tensor) for value in noisy.values()))


def _square(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Return the squared distance of two answers; what one lacks is 0."""
    nothing = torch.zeros(())
    return sum(float((a.get(name, nothing) - b.get(name, nothing)).double().square().sum()) for name in {**a, **b})


class Frozen:
    """Fits tables of people, all with the releases of the first.

    Args:
        folder: Where the table is written, always under the same name, and folders are.
        patch: What replaces noise.
        wanted: What is asked, beside the table.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **wanted: Any) -> None:
        self.folder, self.wanted, self.now = folder, wanted, Answers()
        self.first: Answers | None = None
        for name in ("add_gaussian", "add_discrete_gaussian"):
            patch.setattr(noise, name, partial(self._numbers, getattr(noise, name)))
        kept = partial(self._categories, column_counts.keep_frequent)
        patch.setattr(column_counts, "keep_frequent", kept)
        patch.setattr(preprocessing, "keep_frequent", kept)
        patch.setattr("simulations.results.environment.seal", lambda path: "seal")  # two of one file differ

    def fitted(self, table: pd.DataFrame, suffix: str = ".csv") -> Fitted:
        """Fit a table."""
        file = self.folder / f"people{suffix}"
        if suffix == ".csv":
            table.to_csv(file, index=False, sep=self.wanted.get("separator", ","))
        else:
            table.to_parquet(file, index=False)
        self.now = Answers()
        made = self.made = fit(Wanted(file, "good", "sex", **self.wanted))
        self.first = self.first or self.now
        return made

    def saved(self, table: pd.DataFrame, suffix: str = ".csv") -> dict[str, bytes]:
        """Fit a table, and return the files of its folder."""
        out = self.folder / str(len([*self.folder.iterdir()])) / "fit"
        save(self.fitted(table, suffix), out)
        return {path.name: path.read_bytes() for path in out.iterdir()}

    @property
    def told(self) -> list[float]:
        """mu^2 by which each release of the last fit differs from those of the first."""
        assert self.first is not None
        return self.first.shares(self.now)

    def _numbers(self, real: Callable[..., Exact], values: Exact, deviation: float, source: Any) -> Exact:
        """Add noise to numbers, or give what the first fit gave."""
        if deviation == 0:
            return dict(values)
        return dict(self._answer(values, deviation, lambda: real(values, deviation, source)))

    def _categories(self, real: Callable[..., dict[str, float]], counts: dict[str, float], deviation: float,
                    *rest: Any) -> dict[str, float]:
        """Keep frequent categories, or those that the first fit kept; the noise on their counts is no release."""
        exact, before = {name: torch.tensor(count).double() for name, count in counts.items()}, len(self.now.exact)
        kept = self._answer(exact, deviation, lambda: real(counts, deviation, *rest))
        for listed in (self.now.exact, self.now.noisy, self.now.deviations):
            del listed[before + 1:]  # type: ignore[attr-defined]
        return dict(kept)

    def _answer(self, exact: Exact, deviation: float, release: Callable[[], Any]) -> Any:
        """Keep an exact answer, and return what is released."""
        place = len(self.now.exact)
        self.now.exact.append({name: value.detach().clone() for name, value in exact.items()})
        self.now.deviations.append(deviation)
        self.now.noisy.append(None)
        self.now.noisy[place] = release() if self.first is None else self.first.noisy[place]
        return self.now.noisy[place]
