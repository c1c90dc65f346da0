"""Series are distinguishable to people with any colour vision."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from simulations.drawing.figure import COLOURS

# What linear RGB looks like to them: Machado, Oliveira and Fernandes 2009, severity 1.
SIGHT = {
    "trichromacy": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((.152286, 1.052583, -.204868), (.114503, .786281, .099216), (-.003882, -.048116, 1.051998)),
    "deuteranopia": ((.367322, .860646, -.227968), (.280085, .672501, .047413), (-.011820, .042940, .968881)),
    "tritanopia": ((1.255528, -.076749, -.178779), (-.078411, .930809, .147602), (.004733, .691367, .303900)),
}
XYZ = np.array([[.4124564, .3575761, .1804375], [.2126729, .7151522, .0721750], [.0193339, .1191920, .9503041]])
WHITE = np.array([.95047, 1, 1.08883])


@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_colours_differ_at_a_glance(sight: str) -> None:
    seen = [lab(np.array(SIGHT[sight]) @ linear(colour)) for colour in COLOURS]
    nearest = min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))
    assert nearest > 10  # CIE 1976; a difference of 2.3 is just noticeable


def linear(colour: str) -> NDArray[np.float64]:
    """Return the linear RGB of an sRGB colour such as "#0072b2"."""
    values = np.array([int(colour[i:i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= .04045, values / 12.92, ((values + .055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the CIE L*a*b* of linear RGB."""
    t = XYZ @ rgb.clip(0, 1) / WHITE
    x, y, z = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
