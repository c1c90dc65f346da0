"""The folder of a fit: a run's folder, with a page, a card and a program beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w

from fedfair.moments.heads import GAPS
from fedfair.plugins.text_values import read_toml
from simulations.files.atomic_files import alone_in
from simulations.fitting.card import card_in_json, card_in_markdown
from simulations.fitting.fit import Fitted
from simulations.fitting.fit_folder import FIT, Story
from simulations.fitting.page import page
from simulations.fitting.privacy_statement import in_words
from simulations.fitting.standalone_program import program
from simulations.results.front_files import taken
from simulations.results.result_folder import refuse_to_replace, replaced
from strategies.server.releases.front import largest_gaps

PAGE, PROGRAM, CARD = "report.html", "predict.py", "card.md"


def save(fitted: Fitted, folder: Path) -> Story:
    """Write a fit's folder, and return what it tells.

    Raises:
        FileExistsError: If the folder holds a fit or anything else.
        BlockingIOError: If another process saves there now.
        OSError: If it cannot be written.
    """
    settings = fitted.result.experiment.settings()
    refuse_folder(folder, settings)
    with replaced(folder) as new:  # as a whole, since a fit whose page is missing could not be made again at no cost
        refuse_folder(folder, settings)  # which another fit may have filled since
        fitted.result.save(new)
        (new / FIT).write_text(tomli_w.dumps(_asked(fitted)), encoding="utf-8")
        return _tell(new, folder.resolve().name)


def told(fitted: Fitted) -> Story:
    """Return what a fit tells, without keeping its folder."""
    with TemporaryDirectory() as folder:
        return save(fitted, Path(folder) / Path(fitted.result.experiment.dataset).name)


@contextmanager
def kept_free(folder: Path) -> Iterator[None]:
    """Keep a folder for one fit, as a context: two at once would cost what both cost, and one would be lost.

    Raises:
        BlockingIOError: If another fit is on its way to the folder.
        OSError: As `refuse_folder` does.
    """
    refuse_folder(folder)  # before a lock is made beside it
    with alone_in(folder):
        refuse_folder(folder)  # which another fit may have filled since
        yield


def refuse_folder(folder: Path, settings: Mapping[str, Any] | None = None) -> None:
    """Raise `FileExistsError` if a folder holds a fit or anything else, and `OSError` if it cannot be written.

    Args:
        folder: Folder to write.
        settings: Settings of the run whose checkpoint may be there.
    """
    refuse_fit(folder)
    refuse_to_replace(folder, settings or {})


def refuse_fit(folder: Path) -> None:
    """Raise `FileExistsError` if a folder holds a fit."""
    if is_fit(folder):
        raise FileExistsError(f"{folder} holds a fit already, and another fit is another release of the same records, "
                              "whose epsilons add up: `fedfair choose` takes another model of it at no cost; else "
                              "choose another folder, or remove it")


def is_fit(folder: Path) -> bool:
    """Return whether a folder holds a fit."""
    return (folder / FIT).is_file()


def chosen_again(folder: Path, name: str, point: int, among: Sequence[str] = ()) -> Story:
    """Let page, card and program be those of another point of the front, whose model is in the folder already.

    Args:
        folder: Folder of a fit, which is about to take the place of the one of before.
        name: What that is called.
        point: Number of the point.
        among: Names of the groups among which gaps are from now on; none for those that they are among.
    """
    asked = read_toml(folder / FIT)
    now = {**asked, "chosen": point, "chosen_later": True, "missed": False}
    now |= {"gap_among": [*among]} if among else {}
    now.pop("least_gap", None)  # of the others than the point that was taken first
    (folder / FIT).write_text(tomli_w.dumps(now), encoding="utf-8")
    return _tell(folder, name)


def _tell(folder: Path, name: str) -> Story:
    """Write page, card and program of a fit, from the other files of its folder."""
    story = Story.read(folder, name)
    for file, text in ((CARD, card_in_markdown(story)), ("card.json", card_in_json(story)),
                       (PROGRAM, program(story)), (PAGE, page(story))):
        (folder / file).write_text(text, encoding="utf-8")
    return story


def _asked(fitted: Fitted) -> dict[str, Any]:
    """Return what was asked of a fit, which point of the front it ended with, and what is to be known of that."""
    wanted, point = fitted.wanted, _point(fitted)
    asked: dict[str, Any] = {"epsilon": wanted.epsilon, "delta": wanted.delta, "constraint": wanted.constraint,
                             "chosen": point, "trust": fitted.result.ledger.trust.value}
    asked |= {"date": datetime.now(UTC).date().isoformat()}
    asked |= {name: given for name in ("owner", "purpose") if (given := getattr(wanted, name))}
    asked |= {"rows": fitted.result.data.train.rows} if fitted.result.data.train.rows else {}
    if fitted.nodes:
        asked |= {"nodes": fitted.nodes, "held_by": "nodes, each a file of its own; the server none",
                  "secure_aggregation": fitted.result.ledger.secure_aggregation}
    if wanted.gap is not None:
        gaps = _gaps(fitted)
        others = [gap for other, gap in gaps.items() if other != point]
        asked |= {"gap": wanted.gap, "missed": gaps[point] > wanted.gap}
        asked |= {"least_gap": min(others)} if others and min(others) > wanted.gap else {}
    if fitted.result.experiment.gap_among:
        asked |= {"gap_among": list(fitted.result.experiment.gap_among)}
    if wanted.beside:
        asked |= {"beside": dict(wanted.beside)}
    if wanted.monotone:
        asked |= {"monotone": list(wanted.monotone)}
    if fitted.among is not None:
        asked |= {"trials": fitted.among.trials, "candidates": [*map(in_words, fitted.among.methods)]}
    if fitted.counted is not None:
        counted = fitted.counted._asdict()
        asked |= {"unreadable_rows": counted["unreadable"]} if counted["unreadable"] else {}
        asked |= {name: list(counted[name]) for name in ("measures", "strays", "unread", "shares", "texts")
                  if counted[name]}
    if fitted.needed is not None:
        asked |= {"needed_records": fitted.needed.records, "needed_epsilon": fitted.needed.epsilon}
    return asked


def _gaps(fitted: Fitted) -> dict[int, float]:
    """Return the gap of each point on the records by which one was chosen."""
    front = fitted.result.front
    assert front is not None
    return largest_gaps(front, GAPS[fitted.wanted.constraint])


def _point(fitted: Fitted) -> int:
    """Return the number of the front's point that is the run's model."""
    assert fitted.result.front is not None
    return taken(fitted.result.front.front.weights, fitted.result.model)
