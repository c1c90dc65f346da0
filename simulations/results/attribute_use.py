"""Whether the model has the sensitive attributes as features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedfair.protocol.task import Task


def attributes_used(task: Task, columns: Iterable[str]) -> dict[str, bool]:
    """Say of each sensitive attribute whether it is a feature; empty for records that are no rows of a table.

    Args:
        task: Settings of the run.
        columns: Columns that features are made of, one for each feature.
    """
    features = {*columns}
    return {name: name in features for name in task.attribute_columns} if features else {}


def in_words(uses: Iterable[Mapping[str, bool]]) -> list[str]:
    """Say it once for each attribute and use, with the option that changes it.

    Args:
        uses: What `attributes_used` returned, by model.
    """
    return list(dict.fromkeys(
        f"The sensitive attribute {name} is {'a' if used else 'not a'} feature of the model; "
        f"--{'no-' if used else ''}attribute-in-model changes that." for each in uses for name, used in each.items()))
