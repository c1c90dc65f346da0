"""What a fit's folder tells: read once, for the terminal, the page and the card alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.events import LEFT_OUT
from fedfair.fairness.intervals import UNKNOWN, Estimate, records
from fedfair.fairness.metrics import ALL, shown_in
from fedfair.moments.front import Refits
from fedfair.moments.monotone import directions_of
from fedfair.moments.sums import CLASSES
from simulations.files.saved_files import saved_table, saved_toml
from simulations.fitting.figures_by_site import SiteStory
from simulations.results.front_files import (
    CURVE_COLUMNS,
    CURVES,
    CUT_OFF_COLUMNS,
    CUT_OFFS,
    FIGURE_COLUMNS,
    FIGURES,
    FRONT,
    FRONT_COLUMNS,
    read_refits,
)
from simulations.results.model_metadata import Description
from simulations.results.node_files import NODES_FILE
from simulations.results.run_folder import RunFolder
from simulations.results.scorecard import EVERY, SCORECARD

FIT = "fit.toml"
"""What was asked of a fit."""

OF_GROUPS = {metric.name: metric.words for metric in shown_in("fit groups")}
"""Figures of every group, and what they are called."""

OF_ALL = {metric.name: metric.words for metric in shown_in("fit all")}
"""Figures of all groups together, and what they are called."""

_ASKED = {"epsilon": (int, float), "delta": (int, float), "constraint": str, "chosen": int}
_SETTINGS = {"label": str, "group": (str, list), "attribute_in_model": bool}
"""Entries of a fit's files that every face of it tells, and their types."""


@dataclass(frozen=True)
class Story:
    """A fit's folder.

    Attributes:
        name: Name of the folder.
        asked: What was asked: epsilon, delta, gap, constraint, and what would be needed if records are few.
        config: Settings of the run.
        ledger: What was released.
        figures: Figures of the model on the test part, or on left-out records.
        curves: Its calibration curves; empty if another point of the front was chosen later.
        front: Figures of all points of the front.
        chosen: Number of the model's point of the front.
        scorecard: What each category and bin adds.
        description: What is saved with the model.
        by_site: Figures of the model by site.
        by_node: What each node contributed; empty if the fit read a table.
        refits: What noise does to the models of the front; None where that is not known.
        cut_offs: Figures at other cut-offs; empty for several classes, where another point was chosen, or of before.
    """

    name: str
    asked: Mapping[str, Any]
    config: Mapping[str, Any]
    ledger: Ledger
    figures: pd.DataFrame
    curves: pd.DataFrame
    front: pd.DataFrame
    chosen: int
    scorecard: pd.DataFrame
    description: Description
    by_site: SiteStory
    by_node: pd.DataFrame = field(default_factory=pd.DataFrame)
    refits: Refits | None = None
    cut_offs: pd.DataFrame = field(default_factory=pd.DataFrame)

    @staticmethod
    def read(folder: Path, name: str = "") -> Story:
        """Read a fit's folder.

        Args:
            folder: Folder that `fedfair fit` wrote.
            name: Name to show; by default the folder's.

        Raises:
            FileNotFoundError: If it holds no fit.
        """
        if not (folder / FIT).is_file():
            raise FileNotFoundError(f"{folder} holds no fit: `fedfair fit TABLE --out {folder}` writes one")
        asked = saved_toml(folder / FIT, _ASKED)
        config = saved_toml(folder / "config.toml", _SETTINGS)
        saved = RunFolder(folder)
        return Story(name or folder.resolve().name, asked, config, saved.ledgers[""],
                     saved_table(folder / FIGURES, FIGURE_COLUMNS), saved_table(folder / CURVES, CURVE_COLUMNS),
                     saved_table(folder / FRONT, FRONT_COLUMNS), int(asked["chosen"]),
                     saved_table(folder / SCORECARD, ("column", "value")), next(iter(saved.models.values())),
                     SiteStory.read(folder),
                     saved_table(folder / NODES_FILE, ()) if (folder / NODES_FILE).is_file() else pd.DataFrame(),
                     read_refits(folder),
                     saved_table(folder / CUT_OFFS, CUT_OFF_COLUMNS) if (folder / CUT_OFFS).is_file() else
                     pd.DataFrame())

    @property
    def groups(self) -> Sequence[str]:
        """Names of the groups."""
        return self.description.groups

    @cached_property
    def at_cut_offs(self) -> dict[float, dict[tuple[str, str], Estimate]]:
        """Figures by group and metric at each other cut-off, rising."""
        found: dict[float, dict[tuple[str, str], Estimate]] = {}
        for row in records(self.cut_offs[self.cut_offs["split"] == self.part]) if len(self.cut_offs) else ():
            found.setdefault(float(row["cut_off"]), {})[str(row["group"]), row["metric"]] = Estimate(
                row["value"], row["low"], row["high"])
        return dict(sorted(found.items()))

    @property
    def nodes(self) -> int:
        """Number of nodes that kept their records; 0 if the fit read a table."""
        return int(self.asked.get("nodes", 0))

    @property
    def held_by(self) -> str:
        """Who held the records, in words."""
        if not self.nodes:
            return "the machine that ran the fit held the table"
        return (f"{self.nodes} nodes, each a file of its own, which did not leave it; the server that ran the fit held "
                "none")

    @property
    def favourable(self) -> str:
        """Name of the favourable class; where none is, that of the class whose scores are shown."""
        given = self.config.get("favourable")
        labels = self.description.labels
        return str(given) if given in labels else labels[int(given) if given is not None else 1]

    @property
    def has_favourable(self) -> bool:
        """Whether a class is favourable, of whose decisions there are rates: of two one is, of more if it was named."""
        return len(self.description.labels) == CLASSES or self.config.get("favourable") is not None

    @property
    def epsilon(self) -> float:
        """What any record is kept within: a training, a validation or a test record."""
        parts = (self.ledger.held_out_epsilon("valid"), self.ledger.held_out_epsilon("test"))
        return max(self.ledger.epsilon(), *parts)

    def figure(self, metric: str, group: str = ALL) -> Estimate:
        """Return a figure of the model."""
        return self._final.get((group, metric), UNKNOWN)

    def at(self, point: int, metric: str, group: str = ALL) -> Estimate:
        """Return a figure of a point of the front."""
        return self._points.get((point, self.part, group, metric), UNKNOWN)

    @property
    def twice_counted(self) -> bool:
        """Whether the figures of the model and those of its point of the front are counts with noise each."""
        return self.chosen in self.points and self.at(self.chosen, "accuracy") != self.figure("accuracy")

    @cached_property
    def part(self) -> str:
        """The part that figures are of: "test", or "left-out" where all records train."""
        return LEFT_OUT if bool((self.front["split"] == LEFT_OUT).any()) else "test"

    @property
    def measured_on(self) -> str:
        """What records figures are of, in words."""
        return "test records" if self.part == "test" else "left-out records"

    @property
    def chosen_on(self) -> str:
        """What records a point is chosen on, in words."""
        return "the validation part" if self.part == "test" else "left-out records"

    @property
    def how_measured(self) -> str:
        """How figures came about, where that is not by records apart; else ""."""
        if self.part == "test":
            return ""
        return ("All records trained the model. For its figures each was left out once: decided by the model as it "
                "would be without that record. These decisions were counted with noise.")

    @cached_property
    def points(self) -> Sequence[int]:
        """Numbers of the points of the front that tau tells apart, from the one that gives up least."""
        told = self.front[self.front["head"] != "constant"].drop_duplicates("point")
        return [int(point) for point in told.sort_values("tau", ascending=False)["point"]]

    @cached_property
    def decides_alike(self) -> str | None:
        """The class that the model decides for everybody; None where it looks at the records."""
        if self.front.loc[self.front["point"] == self.chosen, "head"].iloc[0] != "constant":
            return None
        every = self.scorecard[self.scorecard["column"] == EVERY].filter(like="score of ").to_numpy()[0]
        return self.description.labels[int(every.argmax())]

    @property
    def among(self) -> Sequence[str]:
        """The groups that somebody named, among which gaps are; none for all of which rates can be told."""
        return tuple(self.asked.get("gap_among", ()))

    @property
    def between(self) -> str:
        """These groups in words."""
        return " and ".join(filter(None, (", ".join(self.among[:-1]), *self.among[-1:])))

    @cached_property
    def changed(self) -> Mapping[str, float]:
        """Share of the decisions, by group and of "all", that a fit with fresh noise would take otherwise; or nothing.

        It counts groups by the noisy numbers of their records.
        """
        if self.refits is None or self.decides_alike is not None:
            return {}
        if self.refits.changed.shape[1] != len(self.groups):  # groups that are the classes have no share by themselves
            return {ALL: float(self.refits.changed[self.chosen].mean())}
        shares = dict(zip(self.groups, self.refits.changed[self.chosen].tolist(), strict=True))
        counts = {group: max(self.figure("records", group).value, 0.0) for group in self.groups}
        return shares | {ALL: sum(counts[group] * shares[group] for group in shares) / max(sum(counts.values()), 1.0)}

    @property
    def stability(self) -> str:
        """The same in a sentence, which names the groups of which something can be told."""
        named = [f"{100 * self.changed[group]:.1f} of {group}" for group in self.groups
                 if group in self.changed and self.figure("accuracy", group).told]
        return ("If the noise of the training had been drawn anew, with bins of numbers as they are, about "
                f"{100 * self.changed[ALL]:.1f} of 100 decisions would be other{': ' if named else ''}"
                f"{', '.join(named)}. Bins that are learned anew, too, can change more.")

    @property
    def directions(self) -> str:
        """Which numbers the score goes one way with, in words; "" for none."""
        words = {"up": "more", "down": "less"}
        asked = directions_of(self.asked.get("monotone", ()))
        told = [f"{self.favourable} is {words[way]} probable the larger {column} is" for column, way in asked.items()]
        return f"{', '.join(told)}, all else being equal" if told else ""

    def tau(self, point: int) -> float:
        """Return the share of differences between groups' mean scores that a point leaves."""
        return self._taus[point]

    @property
    def finding(self) -> str:
        """The recommendation in one sentence with its numbers."""
        accuracy, gap = self.figure("accuracy"), self.figure("demographic_parity")
        if not accuracy.told:
            return ("How often the recommended model is right cannot be told at this epsilon: there are too few "
                    f"{self.measured_on}.")
        apart = (f"selection rates differ by {gap.text} ({gap.interval})." if gap.told else
                 "by how much selection rates differ cannot be told." if self.has_favourable else
                 "no class is named as the favourable one, of whose decisions there would be rates.")
        told = f"The recommended model is right for {accuracy.text} of the {self.measured_on} ({accuracy.interval})"
        told += "." if self.config["group"] == self.config["label"] else f", and {apart}"
        free = self.at(0, "accuracy") if 0 in self.points else UNKNOWN
        if self.chosen and free.told:
            told += f" The most accurate model of the front is right for {free.text} ({free.interval})."
        return told

    @property
    def alternatives(self) -> list[int]:
        """Points of smaller gaps between selection rates whose accuracy is not significantly different."""
        own, gap = self.at(self.chosen, "accuracy"), self.at(self.chosen, "demographic_parity")
        return [point for point in self.points if point != self.chosen
                and self.at(point, "demographic_parity").value < gap.value
                and self.at(point, "accuracy").high >= own.low + (own.value - own.low) / 2]

    @cached_property
    def _taus(self) -> dict[int, float]:
        """Tau of each point of the front."""
        first = self.front.drop_duplicates("point")
        return dict(zip(map(int, first["point"]), map(float, first["tau"]), strict=True))

    @cached_property
    def _final(self) -> dict[tuple[str, str], Estimate]:
        """Figures of the model by group and metric."""
        test = self.figures.loc[self.figures["split"] == self.part]
        return {(str(row["group"]), row["metric"]): Estimate(row["value"], row["low"], row["high"])
                for row in records(test)}

    @cached_property
    def _points(self) -> dict[tuple[int, str, str, str], Estimate]:
        """Figures of the front."""
        return {(row["point"], row["split"], str(row["group"]), row["metric"]): Estimate(row["value"], row["low"],
                                                                                      row["high"])
                for row in records(self.front)}
