"""Private training inside the client of an existing Flower app: one local epoch by a round's plan.

A client's records as an existing app has them: three tensors, or a DataLoader that gives them in batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from fedfair.datasets import GroupedDataset, Parts
from fedfair.gradients.known_layers import leaves
from fedfair.gradients.layer_gradients import memory_format
from fedfair.gradients.layer_probe import Loss, trained_parameters
from fedfair.gradients.model_state import forgetting
from fedfair.gradients.probe import refuse_mixing_layers
from fedfair.models.find import uncompiled
from fedfair.models.published import loss as cross_entropy
from fedfair.node.node import Node
from fedfair.node.policy import find_policy, read_policy
from fedfair.protocol.round import Round

if TYPE_CHECKING:
    from fedfair.node.guard import Guard

Loader = DataLoader[Any]

MOST_OF_A_NAME = 100
"""The most characters of a client's name."""


class ClientRecords(NamedTuple):
    """Features `[n, ...]`, targets `[n, ...]` and groups by number `[n]`."""

    x: Tensor
    y: Tensor
    group: Tensor

    @classmethod
    def of(cls, x: Tensor | Loader, y: Tensor | None, group: Tensor | None) -> ClientRecords:
        """Take three tensors as they are, or read a loader.

        Args:
            x: Features, or a loader whose batches are (features, targets, groups).
            y: Targets; None with a loader.
            group: Groups; None with a loader.

        Raises:
            ValueError: For a part that is missing, or a loader that draws a record twice or gives other batches.
        """
        if isinstance(x, Tensor):
            if y is None or group is None:
                raise ValueError("x is a tensor, but y or group is missing: give all three, or a DataLoader in place "
                                 "of x")
            return cls(x, y, group)
        if y is not None or group is not None:
            raise ValueError("a loader gives features, targets and groups by itself: leave y and group out")
        if not isinstance(x, DataLoader):
            raise ValueError(f"x is a {type(x).__name__}: give a tensor, or a torch DataLoader")
        return cls(*_read(x))


def _read(loader: Loader) -> tuple[Tensor, Tensor, Tensor]:
    """Return all records that a loader can draw, each once, whatever batches it makes."""
    batches = list(loader if isinstance(loader.dataset, IterableDataset) else _each_once(loader))
    for batch in batches:
        three = isinstance(batch, tuple | list) and len(batch) == 3
        if not (three and all(isinstance(part, Tensor) for part in batch)):
            raise ValueError(f"the loader gives a {type(batch).__name__} that is no (features, targets, groups): let "
                             "its dataset give these three for each record")
    if not batches:
        raise ValueError("the loader gives no records: give tensors of no rows for a client without records")
    x, y, group = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return x, y, group


def _each_once(loader: Loader) -> Loader:
    """Return a loader of the same records in which each occurs once.

    Raises `ValueError` for a sampler that draws some twice: such a record would count for two, under the noise for one.
    """
    sampler = loader.batch_sampler
    own = sampler is not None and type(sampler) is not BatchSampler
    rows = [row for batch in sampler for row in batch] if own and sampler else list(loader.sampler)
    if len(set(rows)) < len(rows):
        raise ValueError(f"the loader's {type(sampler if own else loader.sampler).__name__} draws a record more than "
                         "once, but its noise would be that for one: leave the sampler out; batches are drawn by the "
                         "plan")
    return DataLoader(loader.dataset, batch_size=1024, sampler=rows, collate_fn=loader.collate_fn)


def train_privately(model: nn.Module, x: Tensor | Loader, y: Tensor | None = None, group: Tensor | None = None,
                    plan: str = "", data: str | None = None, loss: Loss = cross_entropy, name: str = ""
                    ) -> dict[str, Any]:
    """Train a classifier in place for one local epoch on all of a client's records.

    Batches and noise come from the operating system. Only the weights and the returned values may leave the client.
    Nothing else is protected, a loss least of all. Parameters that do not require a gradient stay as they are.

    Args:
        model: The classifier, in float32 or float64, which gives logits `[n, classes]`.
        x: Features of all of the client's records, `[n, ...]`; or a DataLoader whose batches are (features, targets,
            groups). Its records are read once; the plan draws the batches.
        y: Labels by number, `[n]`; None with a loader.
        group: Groups by number, `[n]`; None with a loader.
        plan: Clip rule, noise and batch size, as `strategies.server.existing_app.PrivateTraining` put them into the
            message.
        data: Name of the records in the node's policy, if it has one; None for its only entry.
        loss: From the model's outputs and targets to one number for each example, `[n]`, for example
            `nn.BCEWithLogitsLoss(reduction="none")`; by default cross entropy. Targets are numbers from 0.
        name: Name of the client that its owner gave, for example `str(context.node_config.get("name", ""))`; public.
            By it the server knows a node that was started again without a key, whose id is then another one.

    Returns:
        A dictionary for the reply: the number of the client's records and its name, if it has one, which are taken as
        public, the number of the plan's round, and noisy counts.

    Raises:
        fedfair.node.policy.Refused: For a plan that the node's policy does not allow.
        ValueError: For a plan without local training, a model that mixes examples or keeps something of them, one in
            less than float32, or one that is not in float64 where noise is discrete; and before the training, for
            a loader that draws records twice, a loss that is not one number an example, for labels, groups or words
            that are out of range, and for a node that came later than others and has no name.
        fedfair.node.node.ClientError: For a gradient that is not finite, if the plan clips nothing. A plan that clips
            leaves such records out.

    Examples:
        >>> from fedfair.mechanisms.clipping import Flat
        >>> from fedfair.mechanisms.noise import Trust
        >>> from fedfair.protocol.round import LocalTraining
        >>> local = LocalTraining(batch_size=8, optimizer="sgd", learning_rate=0.1, weight_decay=0.0, momentum=0.0,
        ...                       noise_multipliers=(1.0,), weights=(1.0,), sizes=(0,))
        >>> plan = Round(key=None, step=3, rates=(1.0, 1.0), noise_multiplier=1.0, trust=Trust.LOCAL, clients=1,
        ...              rule=Flat(1.0), local=local)
        >>> model, group = nn.Linear(2, 2), torch.arange(40) % 2
        >>> train_privately(model, torch.randn(40, 2), torch.randint(2, (40,)), group, plan.to_json())
        {'size': 40, 'step': 3}
    """
    guard = _guard(plan)
    round_ = Round.from_json(plan)
    if round_.local is None or round_.key is not None:
        raise ValueError("this plan is not one for local training with randomness of the operating system: take "
                         "strategies.server.existing_app.PrivateTraining at the server")
    _refuse_name(name, round_.needs_name)
    model = uncompiled(model)
    parameters, _ = trained_parameters(model)
    coarse = {str(parameter.dtype) for parameter in parameters.values()} - {"torch.float32", "torch.float64"}
    if coarse:
        raise ValueError(f"the model is in {', '.join(sorted(coarse))}, in which a clipped gradient can exceed its "
                         "bound by a percent: use model.float(), and features in float32")
    if round_.noise == "discrete" and any(parameter.dtype != torch.float64 for parameter in parameters.values()):
        raise ValueError('noise is "discrete", but the model is not in float64, in which alone sums are exact enough '
                         "for it: use model.double(), and features in float64")
    refuse_mixing_layers(model)
    x, y, group = ClientRecords.of(x, y, group)
    _refuse_out_of_range(model, x, y, group, len(round_.rates), loss)
    names = tuple(map(str, range(len(round_.rates))))
    records = GroupedDataset(x.cpu(), y.cpu(), group.long().cpu(), names, int(y.max()) + 1 if len(y) else 1)
    empty = records.take(torch.empty(0, dtype=torch.long))
    weights = {each: parameter.detach().clone() for each, parameter in parameters.items()}
    node = Node({0: Parts(records, empty, empty)}, model, str(next(model.parameters()).device), loss)
    sized = round_.of_size(len(x))
    assert sized.local is not None
    if guard is not None and len(x):
        release = sized.local_event(0, (True,) * len(names)).guaranteed(0)
        guard.admit_local(data, sized, release, sized.local.epoch(0).steps)
    trained = node.local_epochs(weights, sized)
    for each, parameter in parameters.items():
        parameter.data = trained.sums[each].detach().to(memory_format=memory_format(parameter))
    counts = {} if trained.counts is None else {"counts": trained.counts.flatten().tolist(),
                                                "shape": list(trained.counts.shape)}
    return {"size": len(x), "step": round_.step, **counts, **({"name": name} if name else {})}


def _refuse_name(name: str, needed: bool) -> None:
    """Raise `ValueError` for a name that the server would refuse, or for none where one is `needed`."""
    if not isinstance(name, str) or not name.isprintable() or len(name) > MOST_OF_A_NAME:
        raise ValueError(f"name is {name!r}: give up to {MOST_OF_A_NAME} printable characters")
    if needed and not name:
        raise ValueError("this node came after the run began, and has no name: its records may be charged already, "
                         "under another id, so give it the name that it had, for example --node-config "
                         "'name=\"ward-3\"' and train_privately(..., name=str(context.node_config[\"name\"]))")


def _guard(plan: str) -> Guard | None:
    """Return the guard of this node after it has checked the names in a plan; None if the node has no policy."""
    policy = find_policy({})
    if policy is None:
        return None
    from fedfair.node.guard import (
        Guard,  # with scipy, which nodes without a policy do without
        check_plan,
    )

    guard = Guard(read_policy(policy))
    check_plan(guard.policy, plan)
    return guard


def _refuse_out_of_range(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, groups: int, loss: Loss) -> None:
    """Raise `ValueError` for labels, groups or words that the model, the loss or the plan does not have.

    Once the training has begun, a record that stops it would reveal itself. The sentences quote no record, since Flower
    sends them to the server.
    """
    device = next(model.parameters()).device
    with torch.no_grad(), forgetting(model):
        output = model(x.new_zeros(1, *x.shape[1:]).to(device))
    words = [layer.num_embeddings for layer in leaves(model)[:1] if isinstance(layer, nn.Embedding)]
    words = words or [max((layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding)),
                          default=2**62)]
    if loss is cross_entropy:
        _refuse_outside("label", y, output.shape[-1], "the model has an output")
    _refuse_loss(loss, output, y.to(device))
    _refuse_outside("group", group, groups, "the plan has a sampling rate")
    if not x.is_floating_point():
        _refuse_outside("word", x, words[0], "the embedding has a row")


def _refuse_loss(loss: Loss, output: Tensor, y: Tensor) -> None:
    """Raise `ValueError` unless a loss gives one number for each target, at an output `[1, ...]` for no record."""
    outputs = output.detach().expand(len(y), *output.shape[1:])
    try:
        losses = loss(outputs, y)
    except Exception as error:
        raise ValueError(f"the loss raises {type(error).__name__} for outputs of the shape {list(outputs.shape)} and "
                         f"targets of the shape {list(y.shape)} in {y.dtype}: give a loss for both, and targets that "
                         "it takes") from None
    if losses.shape != (len(y),):
        raise ValueError(f"the loss has the shape {list(losses.shape)} for {len(y)} examples: it must be one number "
                         'for each, [n], for example with reduction="none"')


def _refuse_outside(what: str, values: Tensor, count: int, why: str) -> None:
    """Raise `ValueError` unless every value is a whole number from 0 to `count - 1`."""
    whole = values.long()
    if bool(((whole < 0) | (whole >= count) | (whole != values)).any()):
        raise ValueError(f"a {what} is out of range: it must be a whole number from 0 to {count - 1}, for which {why}; "
                         "correct the records before the training")
