"""Settings that may differ by group: `clip_norm = {F = 0.5, M = 1.0}`. Yang et al. 2024, section 3.1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from pydantic import (
    BaseModel,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fedfair.protocol.fields import marked

Tables = Mapping[str, Mapping[str, float]]
"""Numbers by setting and group."""

_OF_TABLE = {"largest": max, "smallest": min}


class SettingsByGroup(BaseModel):
    """Settings of which those with the mark `by_group` may be given as a table, with a number for each group.

    As a plain number such a setting then is the largest or the smallest of its table, as the mark says: the one that is
    safe for every group. What a group has is told by `of_group`. The settings of each group are checked as if they were
    those of all.

    Examples:
        >>> from strategies.server.training import Training
        >>> training = Training(clip_norm={"F": 0.5, "M": 1})
        >>> training.clip_norm, training.of_group("F").clip_norm, training.by_group("clip_norm", ("M", "F"))
        (1.0, 0.5, (1.0, 0.5))
        >>> training.model_dump(exclude_defaults=True)
        {'clip_norm': {'F': 0.5, 'M': 1.0}}
    """

    _tables: dict[str, dict[str, float]] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _take_tables(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Put a number in place of each table, and keep the tables."""
        choice = marked(cls, "by_group")
        settings = values if isinstance(values, Mapping) else {}
        given = {name: settings[name] for name in choice if isinstance(settings.get(name), Mapping)}
        if not given:
            return handler(values)
        of_groups = {group: cls(**{**settings, **_row(given, group)}) for group in _groups(given)}
        tables = {name: _column(of_groups, name) for name in given}
        plain = {name: _OF_TABLE[choice[name]](table.values()) for name, table in tables.items()}
        made = handler({**settings, **plain})
        made._tables = tables
        return made

    @model_serializer(mode="wrap")
    def _with_tables(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the settings as they were given."""
        return {**handler(self), **self._tables}

    @property
    def tables(self) -> Tables:
        """The settings that are tables, by name."""
        return self._tables

    def by_group(self, name: str, groups: Iterable[str]) -> tuple[float, ...]:
        """Return a setting of each group.

        Args:
            name: Name of the setting.
            groups: Names of the groups, `[K]`.
        """
        return tuple(getattr(self.of_group(group), name) for group in groups)

    def of_group(self, group: str) -> Self:
        """Return the settings of one group, without tables.

        Args:
            group: Name of the group.
        """
        return self.model_copy(update=_row(self._tables, group))

    def without_equal_tables(self) -> Self:
        """Return the same settings with a number in place of each table that has one number for all groups."""
        equal = [name for name, table in self._tables.items() if len({*table.values()}) == 1]
        return self.model_copy(update={name: getattr(self, name) for name in equal})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy as pydantic does; what is updated is no table any more.

        Args:
            update: Values by name of the setting; they are not checked.
            deep: Whether values are copied, too.
        """
        copy = super().model_copy(update=update, deep=deep)
        copy._tables = {name: table for name, table in self._tables.items() if name not in (update or {})}
        return copy

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Show tables where they were given."""
        return [(name, self._tables.get(name or "", value)) for name, value in super().__repr_args__()]


def refuse_tables(tables: Tables, strategy: str, allowed: Iterable[str]) -> None:
    """Raise `ValueError` for a setting by group where the method has one for all groups.

    Args:
        tables: Numbers by setting and group.
        strategy: Name of the method.
        allowed: Settings that the method takes by group.
    """
    for name in tables.keys() - {*allowed}:
        raise ValueError(f"{name} is a table by group, but {strategy} has one {name} for all groups: give a number, or "
                         "take a strategy that treats groups by themselves, as gs-dp-sgd")


def refuse_other_groups(tables: Tables, groups: Sequence[str]) -> None:
    """Raise `ValueError` for a table that names other groups than there are.

    Args:
        tables: Numbers by setting and group.
        groups: Names of the groups of the data, `[K]`.
    """
    for name, table in tables.items():
        if {*table} != {*groups}:
            raise ValueError(f"{name} has numbers for {', '.join(table)}, but the groups of the data are "
                             f"{', '.join(groups)}: give a number to each of these and to no other")


def _groups(given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the groups that tables name; raise `ValueError` unless all name the same, with a number each."""
    first, *others = given
    for name, table in given.items():
        if not table or not all(isinstance(group, str) for group in table) or any(map(_is_no_number, table.values())):
            raise ValueError(f"{name} is {dict(table)!r}: give a number to each group, for example "
                             f"{name} = {{F = 0.5, M = 1.0}}")
    for name in others:
        if {*given[name]} != {*given[first]}:
            raise ValueError(f"{first} has numbers for {', '.join(map(str, given[first]))}, but {name} for "
                             f"{', '.join(map(str, given[name]))}: name the same groups in both")
    return [*given[first]]


def _is_no_number(value: Any) -> bool:
    """Return whether a value is none, or a table in a table."""
    return value is None or isinstance(value, Mapping)


def _column(of_groups: Mapping[str, SettingsByGroup], name: str) -> dict[str, float]:
    """Return one setting of each group, as it was checked."""
    return {group: getattr(own, name) for group, own in of_groups.items()}


def _row(tables: Mapping[str, Mapping[str, Any]], group: str) -> dict[str, Any]:
    """Return what tables say of one group, by setting."""
    return {name: table[group] for name, table in tables.items()}
