"""A built-in data set with other records in place of its own, as long as an audit asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from fedfair import client_app
from fedfair.datasets import DATASETS, GroupedDataset
from fedfair.protocol import task_data


@contextmanager
def changed_source(name: str, load: Callable[[str | None], GroupedDataset]) -> Iterator[None]:
    """Let a built-in data set be loaded by another function, as a context."""
    published = DATASETS[name]
    DATASETS.register(name)(replace(published, load=load))
    forget()
    try:
        yield
    finally:
        DATASETS.register(name)(published)
        forget()


def forget() -> None:
    """Let the next run load its data anew."""
    task_data._source.cache_clear()
    task_data.prepared_data.cache_clear()
    client_app._nodes.cache_clear()
