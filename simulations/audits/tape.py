"""A tape of a program's releases: what went in, the noise, and what came out; and what it says of the noise itself.

A program that runs again gets what came out before, so that only what went in can differ ("Re:cord-play", arXiv
2602.17454). Of the noise itself three things can be told: whether it is as large as stated, whether it lies on the grid
where it should, and whether some of it was used twice, which lets an observer take it away by subtracting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedfair.mechanisms.noise import MARGIN, grid_step, to_steps

_EXACT = ("values", "counts", "sums")
"""Names of what goes into a release, in the functions that are marked."""
_CHANCE = 1e-12
"""That noise as it should be is taken for too large or too small, or noise of two releases for the same."""
_LEAST_NUMBERS, _MOST_NUMBERS = 4, 32  # of a release, whose noise is compared


class Heard(NamedTuple):
    """A release.

    Attributes:
        name: That of the marked function.
        exact: What went in, by name.
        deviation: Standard deviation of its noise.
        out: What came out.
        grid: Whether its noise has to lie on a grid.
    """

    name: str
    exact: Mapping[str, Tensor]
    deviation: float
    out: Any
    grid: bool = False

    @property
    def noise(self) -> Tensor:
        """What was added, in deviations, `[d]`; nothing where numbers are not what came out."""
        tensors = isinstance(self.out, Mapping) and all(isinstance(value, Tensor) for value in self.out.values())
        if not self.deviation or not tensors or self.out.keys() != self.exact.keys():
            return torch.zeros(0)  # such as names of categories, or shares that masks hide
        unit = self.deviation * (1 + MARGIN * self.grid)
        return torch.cat([((self.out[name].double() - exact) / unit).flatten().cpu()
                          for name, exact in self.exact.items()])


class Moved(NamedTuple):
    """How far a record moves what goes into a release, in deviations of its noise; the release's name is first."""

    name: str
    distance: float


@dataclass
class Tape:
    """The releases of a run, in their order.

    Attributes:
        releases: What was heard.
        before: Releases of another run, which are returned again in place of new ones; None to record.
        moved: Of each release, how far what went in is from what had gone in before.
        batches: Number of batches that were drawn as the ledger assumes.
        leaves_out: Whether nobody is drawn into the batches of the first step.
        later: Places of releases of later steps into which something else went than before.
    """

    releases: list[Heard] = field(default_factory=list)
    before: list[Heard] | None = None
    moved: list[Moved] = field(default_factory=list)
    batches: int = 0
    leaves_out: bool = False
    later: list[int] = field(default_factory=list)
    _steps: list[Any] = field(default_factory=list)

    def __call__(self, name: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Record a release, or return the one that was made in its place before."""
        exact = next(inputs[key] for key in _EXACT if key in inputs)
        heard = Heard(name, {key: torch.as_tensor(value, dtype=torch.float64).clone() for key, value in exact.items()},
                      float(inputs["deviation"]), None, inputs.get("noise") == "discrete")
        if self.before is None:
            heard = heard._replace(out=compute())
        elif len(self.releases) < len(self.before) and self.before[len(self.releases)].name == name:
            earlier = self.before[len(self.releases)]
            heard, distance = heard._replace(out=earlier.out), _distance(heard, earlier)
            if distance or heard.deviation:  # without noise it was released before, and is in no ledger
                self.moved.append(Moved(name, distance))
            if distance and self._steps and self._steps[-1] != self._steps[0]:
                self.later.append(len(self.releases))
        else:
            heard = heard._replace(out=compute())
            self.moved.append(Moved(name, math.inf))
        self.releases.append(heard)
        return deepcopy(heard.out)  # the program may change what it gets

    def draw(self, name: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Count a batch, and draw it: by a seed it is the same on every table."""
        self.batches += 1
        self._steps.append(inputs.get("step"))
        return compute()[:0] if self.leaves_out and self._steps[-1] == self._steps[0] else compute()


def _distance(one: Heard, other: Heard) -> float:
    """Return how far apart what went into two releases is, in deviations of their noise; a name that is not there is 0.

    Infinite for other shapes or other noise, which tell of the records by themselves.
    """
    if one.deviation != other.deviation:
        return math.inf
    total = 0.0
    for name in {*one.exact, *other.exact}:
        left, right = (heard.exact.get(name) for heard in (one, other))
        if left is not None and right is not None and left.shape != right.shape:
            return math.inf
        there = left if left is not None else right
        assert there is not None
        zeros = torch.zeros_like(there)
        total += float(((zeros if left is None else left) - (zeros if right is None else right)).square().sum())
    return 0.0 if total == 0 else total**0.5 / one.deviation if one.deviation else math.inf


def doubts(releases: Sequence[Heard], again: Sequence[Heard] = ()) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the noise of a program's releases: where, and what.

    Args:
        releases: What was heard.
        again: What was heard when the program ran once more; none where noise follows from a seed, and is the same.

    Examples:
        >>> one = Heard("noisy", {"n": torch.zeros(2)}, 2.0, {"n": torch.tensor([40.0, -30.0])})
        >>> [what for _, what in doubts([one])]
        ['is 12.5 times as large as stated']
    """
    for place, heard in enumerate(releases, 1):
        noise = heard.noise
        if len(noise) and not _is_as_stated(noise):
            yield f"noise of release {place}", f"is {float(noise.square().mean().sqrt()):.3g} times as large as stated"
        if heard.grid and len(noise) and not _is_on_grid(heard):
            yield f"noise of release {place}", "does not lie on the grid"
    every = [*releases, *again]
    first = [heard.noise[:_MOST_NUMBERS] for heard in every]
    for numbers in range(_LEAST_NUMBERS, _MOST_NUMBERS + 1):
        places = [place for place, own in enumerate(first) if len(own) == numbers]
        for one, other in _shared([first[place] for place in places]):
            at, where = places[one], places[other]
            if where >= len(releases) or _content(every[at]) != _content(every[where]):  # not made again
                run, place = divmod(where, len(releases))
                yield f"noise of release {at + 1}", f"is that of release {place + 1}{', run again' if run else ''}"


def made(releases: Sequence[Heard]) -> int:
    """Return how many releases there are, without those that are made again of the same with the same noise.

    Args:
        releases: What was heard; what has no noise was released before, or is none.
    """
    return len({(*_content(heard), str(heard.out)) for heard in releases if heard.deviation})


def _content(heard: Heard) -> tuple[str, ...]:
    """Return what went into a release, as what can be looked up."""
    return (heard.name, *(f"{name}: {blake2b(value.cpu().numpy().tobytes()).hexdigest()}"
                          for name, value in heard.exact.items()))


def _is_as_stated(noise: Tensor) -> bool:
    """Return whether the sum of squares of d numbers, `[d]`, is one that chance may give of a deviation of 1."""
    from scipy.stats import chi2  # here, since it takes time to import

    squares = float(noise.square().sum())
    return bool(min(chi2.sf(squares, len(noise)), chi2.cdf(squares, len(noise))) > _CHANCE)


def _is_on_grid(heard: Heard) -> bool:
    """Return whether all that came out is a whole number of steps."""
    step = grid_step(heard.deviation)
    return all(torch.equal((to_steps(value, step).double() * step).to(value), value) for value in heard.out.values())


def _shared(noises: Sequence[Tensor]) -> list[list[int]]:
    """Return the pairs of noises of as many numbers whose directions are closer than chance brings them.

    In d dimensions about a share of angle^(d - 1) of all directions are that close to one.
    """
    if len(noises) < 2:
        return []
    lines = torch.nn.functional.normalize(torch.stack(list(noises)), dim=1)
    chords = torch.cdist(lines, lines, compute_mode="donot_use_mm_for_euclid_dist")
    closest = torch.minimum(chords, torch.cdist(lines, -lines, compute_mode="donot_use_mm_for_euclid_dist"))
    return (closest < _CHANCE ** (1 / (lines.shape[1] - 1))).triu(1).nonzero().tolist()  # type: ignore[no-any-return]
