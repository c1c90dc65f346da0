"""The published models and their loss.

Sources: logistic regression, Xu et al. 2021; MLP 256-256 tanh, Esipova et al. 2023 and Yang et al. 2024; CNN of 32 and
16 channels, 3 x 3, tanh, Esipova et al. 2023; two 5 x 5 convolutions and two linear layers (431K parameters on MNIST),
Xu et al. 2021; the next word, Bengio et al. 2003.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedfair.gradients.kernels import Tanh
from fedfair.plugins.registry import Registry

Builder = Callable[[Sequence[int], Sequence[int], int], nn.Module]
"""`builder(shape of one example, layer widths, classes)`; without widths, it takes the published ones."""

MODELS: Registry[Builder] = Registry("model")


@MODELS.register("logistic")
def logistic(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build multinomial logistic regression; raise `ValueError` for hidden layers."""
    if hidden:
        raise ValueError(f"model logistic has no hidden layers, but hidden is {list(hidden)}: leave it out or use mlp")
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), classes))


@MODELS.register("linear")
def linear(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build one score for each class, linear in the features, which have a constant among them, without a bias.

    On features of norm at most 1 the gradient of a record's cross entropy is at most sqrt(2) long. Raises `ValueError`
    for hidden layers.
    """
    if hidden:
        raise ValueError(f"model linear has no hidden layers, but hidden is {list(hidden)}: leave it out or use mlp")
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), classes, bias=False))


@MODELS.register("binary_logistic")
def binary_logistic(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build logistic regression with one score and no intercept; the other class always has the score 0.

    Its gradients are 1/√2 as long as those of two scores with the same difference, and are clipped less. Raises
    `ValueError` for hidden layers, or for other than two classes.
    """
    if hidden or classes != 2:
        raise ValueError(f"model binary_logistic has no hidden layers and two classes; hidden is {list(hidden)}, "
                         f"classes are {classes}: take logistic or mlp")
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), 1, bias=False), nn.ZeroPad1d((1, 0)))


@MODELS.register("squashed_logistic")
def squashed_logistic(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build logistic regression whose scores pass through a sigmoid before the cross entropy takes them as logits.

    Do not choose it for new work: no class can be more than e times as probable as another. Esipova et al. 2023 report
    its losses on Dutch, and its gradient norms below 1. Raises `ValueError` for hidden layers.
    """
    return nn.Sequential(logistic(shape, hidden, classes), nn.Sigmoid())


@MODELS.register("mlp")
def mlp(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build linear layers of the widths `hidden` (256, 256) with tanh between them."""
    widths = [_size(shape), *(hidden or (256, 256))]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), Tanh()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], classes))


@MODELS.register("binary_mlp")
def binary_mlp(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build an MLP (see `mlp`) with one score; the other class always has the score 0.

    Its cross entropy is the binary cross entropy of the score, as in the code of Yang et al. 2024 for GS-DP-SGD. Raises
    `ValueError` for other than two classes.
    """
    if classes != 2:
        raise ValueError(f"model binary_mlp has two classes, but there are {classes}: take mlp")
    return nn.Sequential(*mlp(shape, hidden, 1).children(), nn.ZeroPad1d((1, 0)))


@MODELS.register("cnn")
def cnn(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build two 3 x 3 convolutions of `hidden` (32, 16) channels, each with tanh, then a linear layer.

    There is no pooling: so it has as many parameters as Esipova et al. count on CelebA, 120,722.
    """
    first, second = _widths("cnn", hidden, (32, 16))
    channels, size = _image(shape, least=5)
    return nn.Sequential(nn.Conv2d(channels, first, 3), Tanh(), nn.Conv2d(first, second, 3), Tanh(),
                         nn.Flatten(), nn.Linear(second * (size[0] - 4) * (size[1] - 4), classes))


@MODELS.register("next_word")
def next_word(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build a model that embeds the previous words, then has a layer with tanh and a score for each word.

    `hidden` are the widths of the embedding and the layer (16, 32). It is a neural probabilistic language model (Bengio
    et al. 2003). Words are numbered below `classes`; a context may also hold `classes` (unknown) and `classes + 1`
    (none). Raises `ValueError` for features that are not a row of words.
    """
    width, inner = _widths("next_word", hidden, (16, 32))
    if len(shape) != 1:
        raise ValueError(f"model next_word needs a row of words, but an example has the shape {tuple(shape)}: take "
                         "another model")
    return nn.Sequential(nn.Embedding(classes + 2, width), nn.Flatten(), nn.Linear(shape[0] * width, inner), Tanh(),
                         nn.Linear(inner, classes))


@MODELS.register("lenet")
def lenet(shape: Sequence[int], hidden: Sequence[int], classes: int) -> nn.Module:
    """Build two 5 x 5 convolutions and a linear layer of `hidden` (20, 50, 500), ReLU, 2 x 2 pooling, then the output.

    Pooling comes before ReLU, which then has a quarter of the numbers to do; the results and gradients are the same,
    since ReLU does not fall. The channels are last in memory, where a processor pools five times as fast.
    """
    first, second, third = _widths("lenet", hidden, (20, 50, 500))
    channels, size = _image(shape, least=16)
    for _ in range(2):
        size = [(side - 4) // 2 for side in size]
    layers = nn.Sequential(
        nn.Conv2d(channels, first, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(first, second, 5), nn.MaxPool2d(2),
        nn.ReLU(), nn.Flatten(), nn.Linear(second * size[0] * size[1], third), nn.ReLU(), nn.Linear(third, classes)
    )
    return layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return] # no stub of it


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross entropy of logits `[B, classes]` and labels `[B]` for each example, `[B]`."""
    return F.cross_entropy(output, target, reduction="none")


def _size(shape: Sequence[int]) -> int:
    """Return how many numbers an example of this shape has."""
    return torch.Size(shape).numel()


def _widths(model: str, hidden: Sequence[int], published: tuple[int, ...]) -> tuple[int, ...]:
    """Return `hidden`, or the published widths if it is empty; raise `ValueError` for another number of widths."""
    if hidden and len(hidden) != len(published):
        raise ValueError(f"model {model} takes {len(published)} widths, for example {list(published)}, "
                         f"but hidden is {list(hidden)}")
    return tuple(hidden) or published


def _image(shape: Sequence[int], least: int) -> tuple[int, list[int]]:
    """Return an image's channels and size; raise `ValueError` for another shape, or one too small for the layers."""
    if len(shape) != 3 or min(shape[1:]) < least:
        raise ValueError(f"this model needs images of at least {least} x {least} pixels, but an example has the shape "
                         f"{tuple(shape)}: use mlp or logistic")
    return shape[0], list(shape[1:])
