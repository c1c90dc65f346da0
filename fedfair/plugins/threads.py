"""How many threads this process computes with, and how they wait for each other: decided here for every way to start.

OpenMP's threads wait for each other in busy loops. Where other programs have the cores, the thread that is waited for
has none: with two threads a run took 152 s of processor time, with one 22 s. So threads sleep while they wait, and a
model that is too small to gain from several is trained by one. Processes that share a machine by a plan (runs side by
side, Ray's workers and trials) get their number of threads from it.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager

TYPE_CHECKING = False  # as typing's, which takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

WORTH_THREADS = 50_000_000
"""Multiplications of a forward pass from which on threads save more time than they take to wake."""

_AWAKE = "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ
"""Whether threads wait in busy loops: PyTorch, which reads the environment once, was imported before this package."""

_log = logging.getLogger(__name__)


def sleep_while_waiting() -> None:
    """Let OpenMP's threads sleep while they wait, here and in processes that start from here, unless the environment
    says how they wait.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@contextmanager
def threads_for(model: nn.Module, batch_size: float) -> Iterator[None]:
    """Compute with one PyTorch thread, as a context, if a model is too small to gain from more; else change nothing.

    The model decides, and not what else the machine does: the number of threads moves the last bits of sums. Threads
    that wait in busy loops are used only if OMP_NUM_THREADS asks for them.

    Args:
        model: The model. Only of linear layers do the parameters tell the work; a model with others is never small.
        batch_size: Expected number of examples of a batch.
    """
    import torch  # here, since the face of the package is imported without it

    before = torch.get_num_threads()
    layers = [layer for layer in model.modules() if next(layer.parameters(False), None) is not None]
    linear = all(isinstance(layer, torch.nn.Linear) for layer in layers)
    products = batch_size * sum(parameter.numel() for parameter in model.parameters())
    small = linear and products < WORTH_THREADS
    awake = _AWAKE and "OMP_NUM_THREADS" not in os.environ
    if awake and not small and before > 1:
        _log.warning("PyTorch was imported before fedfair, so its threads would wait for each other in busy loops: one "
                     "is used; import fedfair first, or set OMP_NUM_THREADS, to use %d", before)
    torch.set_num_threads(1 if small or awake else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
