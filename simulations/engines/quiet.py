"""Flower's log, silenced while a run goes on."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_flower(least: int = logging.WARNING) -> Iterator[None]:
    """Silence Flower's log below a level, as a context.

    Args:
        least: Lowest level of `logging` that is still shown; the environment's FEDFAIR_LOG, a level's name, wins over
            it.

    Examples:
        >>> with quiet_flower(logging.ERROR):
        ...     logging.getLogger("flwr").isEnabledFor(logging.WARNING)
        False
    """
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(os.environ.get("FEDFAIR_LOG", "").upper() or least)
    try:
        yield
    finally:
        logger.setLevel(level)
