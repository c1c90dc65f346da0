"""What an audit by replay runs: a fit, a run of any strategy, a fit over nodes, or one's own program."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message

from fedfair import client_app
from fedfair.accounting import Event, Ledger, Release, epsilon
from fedfair.accounting.events import LEFT_OUT
from fedfair.mechanisms.noise import Trust
from fedfair.node.node import ClientError
from fedfair.plugins.user_files import defined_in
from fedfair.protocol.messages import unpacked
from simulations.audits.replay import Left, Program
from simulations.audits.tape import Moved
from simulations.engines.engines import Connected
from simulations.engines.local import LocalGrid, quiet_flower
from simulations.engines.run import run
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.of_nodes import fit_nodes
from simulations.fitting.save import save
from simulations.results.run_folder import RunFolder
from simulations.settings.experiment import Experiment

_EXACT = ("held-out", "training")
"""What protects files of a run that hold exact figures, as the ledger says, which are not looked at."""
_SEAL = "own_tables_sealed"  # in environment.json: of a random salt, by a key that stays on the machine
_OF_ONE_REQUEST = ("exchange", "keys", "shares", "masked", "unmasking")
"""Records of a reply with a request's own number, and those of secure sums, which masks make random."""


def program_of(file: Path) -> Program:
    """Return the function `program` of a person's own file, such as one that runs an existing app.

    Args:
        file: Python file. The function gets the paths of a table and of a folder to write, and returns a `Left`.

    Raises:
        ValueError: If the file has no such function, or the function returns something else.

    Examples:
        >>> _ = Path("own.py").write_text("def program(table, folder): ...")
        >>> _ = program_of(Path("own.py"))
    """
    found = defined_in(file).get("program")
    if not callable(found):
        raise ValueError(f"{file} defines no function 'program': let it define program(table, folder), which reads the "
                         "table, writes what leaves into the folder, and returns a simulations.audits.replay.Left")

    def leave(table: Path, folder: Path) -> Left:
        """Run the person's function."""
        left = found(table, folder)
        if not isinstance(left, Left):
            raise ValueError(f"program in {file} returned {type(left).__name__}: let it return a "
                             "simulations.audits.replay.Left, with the epsilon that is claimed")
        return left

    return leave


class Unreadable(ValueError):
    """A table is refused by its owner's own program, before anybody else hears of it."""


def fit_of(wanted: Wanted, seed: int = 0) -> Program:
    """Return a fit of a table as what is to be audited.

    Args:
        wanted: The fit; its data are those of each table.
        seed: Deals the rows, unless the settings have one.

    Examples:
        >>> _ = fit_of(Wanted("people.csv", "hired", "sex"))
    """
    seeded = replace(wanted, settings={"seed": seed, **wanted.settings})

    def leave(table: Path, folder: Path) -> Left:
        """Fit, and save."""
        fitted = fit(replace(seeded, data=table))
        save(fitted, folder)
        _leave_seal_out(folder)
        delta = fitted.result.ledger.delta
        return Left(wanted.epsilon, lambda moved: _together([distance for _, distance in moved], delta),
                    spent=fitted.result.ledger.epsilon(), fresh=_is_secret(fitted.result.ledger))

    return leave


def run_of(settings: dict[str, Any]) -> Program:
    """Return a run on a table as what is to be audited; its batches are drawn by a seed.

    Numbers of records by group are public, so tables that differ in them are no neighbours. Files with exact figures
    of held-out records, as the ledger says, are not looked at.

    Args:
        settings: Settings of the experiment by name, but for the table.

    Raises:
        ValueError: If a setting is unknown, or batches are not Poisson samples.

    Examples:
        >>> _ = run_of({"strategy": "dpsgd", "label": "hired", "group": "sex"})
    """
    if settings.get("sampling", "poisson") != "poisson":
        raise ValueError(f"a replay counts Poisson samples, but sampling is {settings['sampling']!r}: take \"poisson\"")

    def leave(table: Path, folder: Path) -> Left:
        """Run, and save."""
        asked = Experiment(**{**settings, "csv": str(table), "randomness": "seeded"})
        try:
            asked.task.data()
        except ValueError as error:
            raise Unreadable(str(error)) from error
        result = run(asked)
        named = result.experiment.model_copy(update={"csv": table.name})  # its folder is what the user wrote
        replace(result, experiment=named).save(folder)
        for name, parts in RunFolder(folder).ledgers[""].files.items():
            if any(part.protection in _EXACT for part in parts):
                (folder / name).unlink(missing_ok=True)
        _leave_seal_out(folder)
        sizes = {f"{part} records of {name}": size for part, data in result.data
                 for name, size in zip(data.names, data.group_sizes(), strict=True)}
        spent = result.ledger.epsilon()
        return Left(min(spent, result.experiment.target_epsilon or spent), lambda moved: _cost(moved, result.ledger),
                    sizes, spent=spent, listed=_listed(result.ledger), sampled=_sampled_rounds(result.ledger),
                    fresh=_is_secret(result.ledger), refusals=(Unreadable,))

    return leave


def _leave_seal_out(folder: Path) -> None:
    """Leave the seal of the table out, which is another one each time, also of one table."""
    about = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**about, _SEAL: None}, indent=1, sort_keys=True))


def nodes_of(wanted: Wanted, others: Sequence[Path], seed: int = 0) -> Program:
    """Return a fit over nodes as what is to be audited: the table is a node's, and other nodes keep their files.

    What the nodes send is looked at too, but for what masks hide.

    Args:
        wanted: The fit, whose settings name the schema; it has no data.
        others: Files of the other nodes.
        seed: Deals the rows, unless the settings have one.

    Examples:
        >>> _ = nodes_of(Wanted(None, "", "", settings={"schema_file": "study.toml"}), [Path("site1.csv")])
    """
    seeded = replace(wanted, data=None, settings={"seed": seed, **wanted.settings})
    shares = math.sqrt(len(others) + 1) if seeded.settings.get("secure_aggregation") else 1.0

    def leave(table: Path, folder: Path) -> Left:
        """Fit, and save."""
        grid = Overheard([str(table), *map(str, others)])
        with quiet_flower():
            fitted = fit_nodes(seeded, Connected(grid=grid))
        save(fitted, folder)
        ledger, told = fitted.result.ledger, fitted.result.nodes
        assert told is not None

        def cost(moved: list[Moved]) -> float:
            """Take noise that nodes share for what it is together."""
            distances = [distance / (shares if name == "noisy_steps" else 1.0) for name, distance in moved]
            return _together(distances, ledger.delta)

        public = {f"records of node {place}": int(records) for place, records in enumerate(told["records"])}
        return Left(wanted.epsilon, cost, public, grid.lines, refusals=(ClientError,), logs=False)

    return leave


class Overheard(LocalGrid):
    """Nodes in this process, and what each of them sends, as lines by the number of the message.

    Args:
        files: A file for each node.
    """

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(client_app.app, len(files), files)
        self.lines: dict[str, str] = {}

    def _ask(self, number: str, message: Message, context: Context) -> None:
        """Answer, and note what is sent."""
        super()._ask(number, message, context)
        reply = self._replies[number]
        for name, record in reply.content.items() if reply.has_content() else ():
            if name not in _OF_ONE_REQUEST:
                where = f"messages:{number} from node {message.metadata.dst_node_id}: {name}"
                self.lines[where] = _content(record)


def _content(record: Any) -> str:
    """Return what a record of a message holds, of tensors a digest."""
    if isinstance(record, ArrayRecord):
        return " ".join(f"{name} {tuple(tensor.shape)} {blake2b(tensor.numpy().tobytes(), digest_size=8).hexdigest()}"
                        for name, tensor in sorted(unpacked(record).items()))
    return str(sorted(record.items()))


def _together(distances: Sequence[float], delta: float) -> float:
    """Return the epsilon of Gaussian releases without sampling, into which a record moves what goes in so far."""
    total = math.hypot(*distances)
    return epsilon(Counter([Release(1.0, 1 / total)]), delta) if total else 0.0


def _is_secret(ledger: Ledger) -> bool:
    """Return whether a ledger says that nobody can know the noise."""
    return ledger.simulated is None and ledger.guarantee != "simulated"


def _each(ledger: Ledger) -> int:
    """Return how many releases a round makes: a sum, and counts where they are charged, of all who add noise."""
    counts = any(event.count_multiplier is not None for event in ledger.events)
    return (1 + counts) * (1 if ledger.trust is Trust.CENTRAL else ledger.clients)


def _listed(ledger: Ledger) -> int | None:
    """Return how many releases a ledger lists; None where it lists what several cost together."""
    if ledger.preprocessing is not None or LEFT_OUT in ledger.held_out:
        return None
    return ledger.events.total() * _each(ledger) + len(ledger.held_out)


def _sampled_rounds(ledger: Ledger) -> int:
    """Return how many rounds a ledger takes for sampled."""
    return sum(times for event, times in ledger.events.items() if min(event.rates) < 1)


def _cost(moved: Sequence[Moved], ledger: Ledger) -> float:
    """Return the epsilon of a run's releases: of the training part, or where that is more, in proportion, of others."""
    distances = [distance for _, distance in moved]
    if _listed(ledger) is None:
        return _together(distances, ledger.delta)
    of_training = ledger.events.total() * _each(ledger)
    beside = _together(distances[of_training:], ledger.delta)
    said = max(map(ledger.held_out_epsilon, ledger.held_out), default=0.0)
    share = beside / said if said else math.inf if beside else 0.0
    return max(_sampled(distances[:of_training], ledger), share * ledger.epsilon())


def _sampled(distances: Sequence[float], ledger: Ledger) -> float:
    """Return the epsilon of training if every record moved all rounds as far as the furthest of these.

    What a round releases together moves together, and the noise of clients adds up where nobody sees a share alone.
    Where each client trains by itself, a record is in what one of them releases.
    """
    each = _each(ledger)
    furthest = max(math.hypot(*distances[place:place + each]) for place in range(0, len(distances), each))
    if ledger.trust is Trust.DISTRIBUTED:
        furthest /= math.sqrt(ledger.clients)
    if furthest == 0:
        return 0.0
    clients = {event.client for event in ledger.events}
    return max(epsilon(_moved_by(furthest, ledger, client), ledger.delta, ledger.accountant) for client in clients)


def _moved_by(distance: float, ledger: Ledger, client: int | None) -> Counter[Release]:
    """Return the releases of one client, or of all together, with a record that moves each so far."""
    own = [(_charged(event), times) for event, times in ledger.events.items() if event.client == client]
    most = distance * max(release.multiplier for release, _ in own)
    charged = Counter[Release]()
    for release, times in own:
        charged[Release(release.rate, release.multiplier / most)] += times
    return charged


def _charged(event: Event) -> Release:
    """Return what an event charges to a record of the group that it charges most."""
    return min((event.guaranteed(group) for group in range(len(event.rates))),
               key=lambda release: (release.multiplier, -release.rate))
