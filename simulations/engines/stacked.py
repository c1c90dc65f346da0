"""Several runs as one program: they take their steps together.

Runs stack whose models are of one shape: they may differ in seed, method, learning rate, clip norm, noise. Each keeps
its own records, weights, batches, noise, ledger and metrics, and ends with those of the run alone up to float rounding;
which others are in its stack moves no bit. Methods do not know. It saves what messages and small operations cost. A
graphics card would need the products of all runs in one call, which this has not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from flwr.app import ConfigRecord

from fedfair import client_app
from fedfair.datasets import Parts
from fedfair.gradients.layer_gradients import Gradients
from fedfair.gradients.passes import UnreadableError
from fedfair.gradients.stacked import refuse_unstackable
from fedfair.node.node import Node
from fedfair.node.stacked_batches import StackedBatches
from fedfair.plugins.threads import threads_for
from fedfair.plugins.user_files import blaming_user_files
from fedfair.protocol.messages import pack, unpacked
from simulations.engines.local import LocalGrid, quiet_flower
from simulations.engines.run import Progress, first_weights, result_of, rounds_of
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from strategies import find_strategy
from strategies.server.rounds import Rounds
from strategies.server.strategy import Strategy

MOST, _MOST_BYTES = 16, 2**31
"""Runs of one stack, and bytes of their records: more runs save nothing."""

_OF_GRADIENT_SUMS = ("ask_first", "asked_besides", "next_exchange", "like_sums", "local_sgd")
"""What a method defines that asks nodes for something else than sums of clipped gradients."""


class _Run(NamedTuple):
    """One of the runs: its rounds, the node that holds its records, the grid that reaches it, and its data.

    The data are held so that those of many seeds are prepared once.
    """

    experiment: Experiment
    rounds: Rounds
    node: Node
    grid: LocalGrid
    data: Parts


def is_stackable(experiment: Experiment) -> bool:
    """Say whether the settings of an experiment let it run beside others; its model may not, see `run_stacked`.

    Args:
        experiment: One that draws its randomness from a seed: another must not be made twice.

    Examples:
        >>> [is_stackable(Experiment(strategy=name)) for name in ("dpsgd-f", "sgd", "moments", "gs-dp-sgd")]
        [True, True, False, False]
    """
    kind, training = find_strategy(experiment.strategy), experiment.training
    plain = all(getattr(kind, name) is getattr(Strategy, name) for name in _OF_GRADIENT_SUMS)
    return (plain and kind.exchange is None and kind.protects == "record" and not kind.broadcasts
            and (training.sync or kind.default_sync) == "step"
            and training.randomness == "seeded" and experiment.device == "cpu"
            and not (training.secure_aggregation or training.dropouts or training.risk_every)
            and not (experiment.record_weight or experiment.class_weights))


class Part(NamedTuple):
    """Runs that are made one after the other, or as one program.

    Attributes:
        places: Their places among all.
        stack: Whether they stack. A stack of one ends with the same bits as in any other.
    """

    places: list[int]
    stack: bool = False


def by_themselves(planned: Sequence[Experiment]) -> list[Part]:
    """Return a part for each experiment, none of which stacks.

    Args:
        planned: The experiments.
    """
    return [Part([place]) for place in range(len(planned))]


def stacks(planned: Sequence[Experiment], jobs: int = 1) -> list[Part]:
    """Return experiments by stack; one that does not stack is by itself.

    Args:
        planned: The experiments.
        jobs: Number of processes, each of which should have something to do.

    Examples:
        >>> stacks([Experiment(strategy=name, seed=seed) for name in ("dpsgd", "moments") for seed in (0, 1)])
        [Part(places=[0, 1], stack=True), Part(places=[2], stack=False), Part(places=[3], stack=False)]
    """
    alike: dict[str, list[int]] = defaultdict(list)
    made = [Part([place]) for place, each in enumerate(planned) if not is_stackable(each)]
    for place, each in enumerate(planned):
        if is_stackable(each):
            alike[each.task.model_copy(update={"seed": 0}).text].append(place)
    for places in alike.values():
        parts = max(1, -(-len(places) // MOST), min(jobs, len(places) // 2))
        size = -(-len(places) // parts)
        made += [Part(places[start:start + size], stack=True) for start in range(0, len(places), size)]
    return sorted(made)


def run_stacked(planned: Sequence[Experiment], progress: Progress = lambda *_: None) -> list[Result] | None:
    """Run experiments together, and return their results in the order of `planned`; None if they do not stack.

    Those stack whose models are chains of linear layers and activations, of one shape, and whose records fit into
    memory together.

    Args:
        planned: Experiments of one stack (`stacks`).
        progress: Called with the rounds done and the rounds in all, those of the longest run.

    Raises:
        ValueError: If settings do not fit the data; like all that `simulations.engines.run.run` raises.

    Examples:
        >>> made = [Experiment(strategy="dpsgd", seed=seed, steps=2, hidden=(4,), accountant="rdp") for seed in (0, 1)]
        >>> together = run_stacked(made)
        >>> [round(result.ledger.epsilon(), 2) for result in together or []]
        [4.1, 4.1]
    """
    with quiet_flower(), blaming_user_files():
        first = _begun(planned[0])
        if len(planned) * _bytes(first.node) > _MOST_BYTES:
            return None
        runs = [first, *map(_begun, planned[1:])]
        if not _fit_together(runs):
            return None
        with threads_for(first.node.model, planned[0].batch_size):
            return _trained(runs, progress)


def _begun(experiment: Experiment) -> _Run:
    """Make the rounds of an experiment, and the one node that holds its records."""
    grid = LocalGrid(client_app.app, nodes=1)
    rounds = rounds_of(experiment, grid, lambda *_: None)
    return _Run(experiment, rounds, client_app.node_of(rounds.task, 0, 1), grid, rounds.task.data())


def _bytes(node: Node) -> int:
    """Return what the features of a node's records take in memory, as they were prepared and as they are dealt."""
    return 2 * sum(part.x.nbytes for _, part in node.clients.together)


def _fit_together(runs: Sequence[_Run]) -> bool:
    """Say whether the models of runs are chains of linear layers of one shape, and something is trained."""
    try:
        for run in runs:
            refuse_unstackable(run.node.model)
    except UnreadableError:
        return False
    shapes = {tuple((name, value.shape, value.dtype) for name, value in first_weights(run.rounds).items())
              for run in runs}
    return len(shapes) == 1 and all(run.rounds.rounds for run in runs)


def _trained(runs: Sequence[_Run], progress: Progress) -> list[Result]:
    """Take the steps of all runs together; a run that has had its steps waits for the others."""
    weights, most = [first_weights(run.rounds) for run in runs], max(run.rounds.rounds for run in runs)
    for now in range(1, most + 1):
        going = [place for place, run in enumerate(runs) if now <= run.rounds.rounds]
        _step([runs[place] for place in going], [weights[place] for place in going], now)
        for place in going:
            weights[place] = runs[place].rounds.method.descent.weights
            _evaluated(runs[place], now)
        progress(now, most)
    return [result_of(run.experiment, run.rounds, unpacked(run.rounds.chosen(pack(last))))
            for run, last in zip(runs, weights, strict=True)]


def _step(runs: Sequence[_Run], weights: Sequence[Gradients], now: int) -> None:
    """Take round `now`, from 1, of each of some runs from its weights."""
    plans = [run.rounds.begin(now - 1, own) for run, own in zip(runs, weights, strict=True)]
    batches = StackedBatches([run.node for run in runs], [run.rounds.method.descent.weights for run in runs], plans)
    for place, (run, plan) in enumerate(zip(runs, plans, strict=True)):
        if run.rounds.counts_first(plan):
            plans[place] = run.rounds.counted_first(plan, batches.counts(place, plan))
    decided = [run.rounds.method.decided(plan) for run, plan in zip(runs, plans, strict=True)]
    for run, plan, sent in zip(runs, decided, batches.sums(decided), strict=True):
        run.rounds.end(now, plan, sent.sums, sent.counts, range(len(run.rounds.population.sizes)))


def _evaluated(run: _Run, now: int) -> None:
    """Evaluate a run after round `now`, if that is due, by messages to its node as ever."""
    rounds = run.rounds
    if now < rounds.rounds and not rounds.evaluation.due(now, rounds.method.rounds_per_epoch):
        return
    with client_app.replaced_nodes(rounds.task, [run.node]):
        asked = list(rounds.configure_evaluate(now, pack(rounds.method.descent.weights), ConfigRecord(), run.grid))
        if asked:
            rounds.aggregate_evaluate(now, run.grid.send_and_receive(asked, timeout=rounds.training.answer_timeout))

