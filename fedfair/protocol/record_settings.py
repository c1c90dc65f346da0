"""Settings of the records: which data they are, how a file is read, how they are split, and who holds them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fedfair.datasets import DATASETS
from fedfair.datasets.columns.convention import ALL, Asked, Capitals, Decimal, Quantity
from fedfair.datasets.files.part_files import part_files, table_name
from fedfair.datasets.files.query import Query
from fedfair.datasets.grouped import LARGEST_WEIGHT
from fedfair.datasets.names import as_text, names_in
from fedfair.datasets.split import Missing
from fedfair.plugins.registry import unknown
from fedfair.protocol.fields import MOST_CLIENTS
from fedfair.protocol.task_data import HUGGING_FACE

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=LARGEST_WEIGHT, allow_inf_nan=False)]

NODES = "nodes"
"""Partition of nodes that each have a file of their own; also the name of such data."""


def _weights(weights: Any) -> Any:
    """Return a list of class weights from a table by class; raise `ValueError` for what is no table."""
    if isinstance(weights, dict):
        return [(str(name), weight) for name, weight in weights.items()]
    if isinstance(weights, str):
        raise ValueError(f"class_weights is {weights!r}: give a number for each class that is publicly known, for "
                         "example class_weights = { yes = 5.0 }; weights counted from the records would tell of every "
                         "one of them")
    return weights

def _pairs(quantities: Any) -> Any:
    """Return a list of quantities by column from a table by column."""
    return list(quantities.items()) if isinstance(quantities, dict) else quantities

def by_column(value: Any) -> Any:
    """Return a list of settings by column from a table by column, or from one setting for all columns."""
    if isinstance(value, dict):
        return list(value.items())
    listed = isinstance(value, list | tuple) and all(isinstance(each, list | tuple) for each in value)
    return value if value is None or listed else [(ALL, value)]

class RecordSettings(BaseModel):
    """Which records there are, and who holds them; frozen, and validated when it is made. Part of `Task`.

    Every field describes itself; docs/settings.md and `fedfair settings` list them.

    Examples:
        >>> records = RecordSettings(csv="loans.csv", label="paid", group=["sex", "region"])
        >>> records.dataset, records.group, records.attributes, records.is_own
        ('loans', 'sex,region', ('sex', 'region'), True)
        >>> RecordSettings().attribute_columns, RecordSettings(dataset="adult").attribute_columns
        ((), ('sex',))
        >>> RecordSettings(round_sizes=100).public_sizes(torch.tensor([420, 0]))
        tensor([500,   0])
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(
        default="digits", json_schema_extra={"records": True, "chosen_by": "--dataset, or by datasets in a sweep"},
        description="Data set: a name that `fedfair data list` prints, or hf:NAME for a data set of Hugging Face's hub "
                    "or a folder in its format.")
    csv: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="File of your own, in place of a data set: CSV, Parquet, Feather, .xlsx, JSON, or of SPSS, "
                    "Stata or SAS, or a folder or a pattern of such files; it needs label and group. In Python also a "
                    "DataFrame or a data set of Ray, which is written to a file in your cache.")
    label: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Column of a file or of hf:NAME with the classes to predict.")
    group: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Column with the sensitive attribute, by default the data set's own; of several columns, separated "
                    "by commas, the intersections are the groups. A list is allowed, and a name with a comma stands in "
                    "double quotes.")
    missing: Missing = Field(
        default="refuse", json_schema_extra={"records": True},
        description="What happens to rows of a file or of hf:NAME with missing values: refuse the data, drop the rows, "
                    "or keep them, where a missing value is a category, or a bin of a number; that needs features "
                    "binned, and preprocessing public or private. Rows without a label are dropped then.")
    participant: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Column of a file or of hf:NAME that names the participant whom a record belongs to.")
    encoding: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Encoding of the text in your file, for example cp1252; by default that of its byte order mark, or "
                    "else UTF-8.")
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = Field(
        default=None, json_schema_extra={"records": True},
        description='What separates the values of a line in your file, " " for blanks; by default it is found.')
    sheet: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Sheet of your workbook; by default the only one with records.")
    header_row: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Number of the row of your workbook that has the names of the columns, from 1; what stands above "
                    "it, such as a title, is not read. By default the first.")
    decimal: Annotated[tuple[tuple[str, Decimal], ...], BeforeValidator(by_column)] | None = Field(
        default=None, json_schema_extra={"records": True, "allowed": "\".\" or \",\", also by column"},
        description='Decimal mark of the numbers in your file, "." or ","; the other mark is between thousands. '
                    '{score = ","} says it of one column. By default it is found from all columns; '
                    "where missing values are kept, no record may decide it, and it is a dot, unless a fit finds it "
                    "privately.")
    missing_marks: tuple[str, ...] | None = Field(
        default=None, json_schema_extra={"records": True},
        description='Cells that count as missing in your file, for example ["-999"], beside empty ones, ? and NA; [] '
                    "where numbers such as -999 are numbers.")
    answers: tuple[str, ...] | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Columns of your file in which NA, None and other words for a missing value are answers, as NA is "
                    "among codes of countries (Namibia): only an empty cell is missing there, and what missing_marks "
                    "says.")
    capitals: Capitals = Field(
        default="refuse", json_schema_extra={"records": True},
        description="What labels or groups of your file are that differ by capital letters alone: refuse them, or take "
                    "them as the same or as different.")
    categorical: tuple[str, ...] | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Columns of your file that are categories though they hold numbers, such as codes of occupations.")
    bands: Annotated[tuple[tuple[str, tuple[Finite, ...]], ...], BeforeValidator(by_column)] | None = Field(
        default=None, json_schema_extra={"records": True, "allowed": "list of numbers, also by column"},
        description="Bands of a protected number, by the lower ends of all but the first: [25, 60] makes the groups "
                    "under 25, 25 to under 60, and 60 and over; {age = [25, 60]} beside other protected columns.")
    quantities: Annotated[tuple[tuple[str, Quantity], ...], BeforeValidator(_pairs)] | None = Field(
        default=None, json_schema_extra={"records": True, "allowed": "date, duration, time or percentage by column"},
        description='Columns of your file that hold dates, durations, times of day or percentages, {born = "date"}, '
                    "which are numbers: days since 1970-01-01, days, hours since midnight, and per cent. Text is read "
                    "as programs write it, such as 2024-01-31, 3 days 12:00:00, 13:30 or 40 %. By default found as "
                    "kinds of columns are.")
    split: tuple[Share, Share, Share] = Field(
        default=(0.7, 0.1, 0.2), json_schema_extra={"records": True},
        description="Shares of the training, validation and test parts, which sum to 1; parts that the source "
                    "published are kept. With [1, 0, 0] nothing is held out: private figures of moments are then of "
                    "training records, each decided by a classifier that it did not train.")
    split_by: Literal["participant", "record"] | None = Field(
        default=None, json_schema_extra={"records": True},
        description="What is drawn into the parts: participants, so that all records of one are in one part and the "
                    "shares are those of participants, or single records. By default participants, where the data name "
                    "them; with partition natural, where each is a client with test records of its own, records.")
    duplicates: Literal["apart", "together"] = Field(
        default="apart", json_schema_extra={"records": True},
        description="Whether exact duplicates, records equal in features, label and group, go into one part of a split "
                    "drawn at random: apart, each by itself, or together.")
    record_weight: str | None = Field(
        default=None,
        description="Column of a file or of hf:NAME with a weight for each record, from 0 to 1e6. It multiplies the "
                    "record's loss before its gradient is clipped: clipping bounds what a record adds, whatever its "
                    "weight, so that weights cost no privacy, and have less effect the more gradients are clipped. "
                    "Metrics are not weighted.")
    site: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Column of a file that names the site of each record, such as a hospital, for private figures by "
                    "site and by group within each site. Its names are public by assumption, and it is no feature.")
    class_weights: Annotated[tuple[tuple[str, Weight], ...], BeforeValidator(_weights)] | None = Field(
        default=None, json_schema_extra={"allowed": "table of numbers by class"},
        description="Weight of each class, {yes = 5.0}, 1 for the others; it multiplies losses as record_weight does. "
                    "Weights that follow from counts of the records would not be private: give numbers that are "
                    "publicly known.")
    balance: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Published variant of the data set; `fedfair data list` prints the variants.")
    imbalance: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="How many training records of one group to keep, GROUP:RECORDS or GROUP:SHARE%, for example 8:40 "
                    "or 8:9%; by default all.")
    wrong_groups: Share = Field(
        default=0.0, json_schema_extra={"records": True},
        description="Share of the training and validation records whose group is drawn anew among all K, to see which "
                    "methods stand wrong or hidden groups; figures of the test part are of the true ones. Randomised "
                    "response with this share p hides a group with epsilon ln(1 + K (1 - p) / p), but here it is a "
                    "simulation: whoever knows the seed knows which are wrong, and no ledger counts on it.")
    partition: Literal["group", "site", "natural", "nodes"] = Field(
        default="group",
        description="How records are dealt to clients: by group, at random to sites that mix the groups, natural, one "
                    "client for each participant of the data set, or nodes, each of which is a client with a file of "
                    "its own, which a schema_file describes; the server has none.")
    clients: Annotated[int, Field(ge=1, le=MOST_CLIENTS)] | None = Field(
        default=None, json_schema_extra={"belongs_to": "partition"},
        description="Number of clients, by default that of the groups; not with partition natural or nodes.")
    round_sizes: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1,
        description="Clients tell their numbers of records rounded up to multiples of this; sampling and accounting "
                    "use the rounded numbers.")
    alpha: Annotated[float, Field(ge=1e-3, le=1e9)] | None = Field(
        default=None, json_schema_extra={"belongs_to": "partition"},
        description="Dirichlet concentration of the groups over the sites, only with partition site: the smaller, the "
                    "more the sites differ. Without it all sites are alike.")

    @model_validator(mode="before")
    @classmethod
    def _csv_is_a_dataset(cls, values: Any) -> Any:
        """Name a CSV file by its stem, and the files of nodes by that word."""
        if isinstance(values, dict) and values.get("dataset", "digits") == "digits":
            named = {"dataset": table_name(Path(values["csv"]))} if values.get("csv") else {}
            return {**values, **({"dataset": NODES} if values.get("partition") == NODES else named)}
        return values

    @model_validator(mode="before")
    @classmethod
    def _names_with_commas(cls, values: Any) -> Any:
        """Write the columns of groups as one text; a name of a column in the file may hold a comma."""
        group = values.get("group") if isinstance(values, dict) else None
        if isinstance(group, list | tuple) and all(isinstance(name, str) for name in group):
            return {**values, "group": as_text(group)}
        if isinstance(group, str) and "," in group and '"' not in group and group in _columns(values):
            return {**values, "group": as_text([group])}
        return values

    @model_validator(mode="before")
    @classmethod
    def _data_in_memory(cls, values: Any) -> Any:
        """Write a table in memory, whatever else but a path is given, to a file that every process of a run can read.

        So are the rows of a query, in whichever order: they are dealt by what they hold, not by their places.
        """
        table = values.get("csv") if isinstance(values, dict) else None
        if table is not None and not isinstance(table, str | PathLike):
            from fedfair.datasets.files.in_memory import (
                written,  # here, with pandas, which other data do without
            )

            dealt = {"duplicates": "together"} if isinstance(table, Query) and not values.get("participant") else {}
            return {"dataset": "table", **dealt, **values, "csv": str(written(table))}
        return values

    @model_validator(mode="after")
    def _records_fit(self) -> RecordSettings:
        """Refuse shares that do not sum to 1, and settings of records that do not fit together."""
        own = self.is_own
        if own and not (self.label and self.group):
            raise ValueError(f"{'a CSV file' if self.csv else self.dataset} needs the columns that hold label and "
                             "group: give label and group")
        self._refuse_unknown_sites()
        if own and self.participant is not None and self.participant == self.label:
            raise ValueError(f"participant is {self.participant!r}, the column of the label: all records of a class "
                             "would be one person's, in one part; name a column with the person of each record")
        for field in () if own else ("label", "participant", "record_weight"):
            if getattr(self, field) is not None:
                raise ValueError(f"{field} is {getattr(self, field)!r}, but {self.dataset} has its own: leave it out, "
                                 "or take csv or a data set hf:NAME")
        variants = {} if own else DATASETS[self.dataset].variants
        if self.balance is not None and self.balance not in variants:
            raise unknown(f"balance of {self.dataset}", self.balance, variants or ("none: leave it out",))
        if abs(sum(self.split) - 1) > 1e-9 or self.split[0] == 0 or (self.holds_out and self.split[2] == 0):
            raise ValueError(f"split is {list(self.split)}: the shares of train, valid and test must sum to 1, and "
                             "train and test must not be 0, unless all records train")
        if self.alpha is not None and self.partition != "site":
            raise ValueError(f"alpha is {self.alpha}, but partition is {self.partition!r}: alpha says how sites mix "
                             'the groups, so take partition = "site", or leave alpha out')
        if self.bands and self.bands[0][0] == ALL and len(self.attributes) > 1:
            raise ValueError(f"bands is {list(self.bands[0][1])}, but several columns make groups, {self.group}: say "
                             f"which it is for, for example bands = {{ {self.attributes[0]} = [25, 60] }}")
        if self.partition == "natural" and self.clients is not None:
            raise ValueError(f"clients is {self.clients}, but with partition natural every participant is a client: "
                             "leave clients out")
        return self

    def _refuse_unknown_sites(self) -> None:
        """Refuse a column of sites where there is no file, or one that has another role."""
        if self.site is not None and not self.csv:
            raise ValueError(f"site is {self.site!r}, a column of a file, but there is no file: give csv, or leave "
                             "site out")
        if self.site is not None and self.site in (self.label, *self.attributes, self.participant, self.record_weight):
            raise ValueError(f"site is {self.site!r}, which is the column of label, group, participant or weights too: "
                             "name a column that holds sites alone, or leave site out")

    @property
    def modified(self) -> int:
        """When the user's file was last changed, in nanoseconds; of several, a number that changes; 0 without one."""
        return sum(file.stat().st_mtime_ns for file in part_files(Path(self.csv))) % 2**62 if self.csv else 0

    def public_sizes(self, records: torch.Tensor) -> torch.Tensor:
        """Return clients' public numbers of records, rounded up: never less than the true numbers, so that no record is
        sampled at a higher rate than it is charged for, and 0 only for a client without records.
        """
        return -(-records // self.round_sizes) * self.round_sizes

    @property
    def is_own(self) -> bool:
        """Whether the records are the user's, not a built-in data set's."""
        return bool(self.csv) or self.dataset.startswith(HUGGING_FACE) or self.partition == NODES

    @property
    def attributes(self) -> tuple[str | None, ...]:
        """The sensitive attributes that define the groups; None for the data set's own."""
        return tuple(names_in(self.group)) if self.group else (None,)

    @property
    def attribute_columns(self) -> tuple[str, ...]:
        """The columns of the sensitive attributes, also a built-in data set's own; none where groups are no column."""
        default = None if self.is_own else DATASETS[self.dataset].attribute
        return tuple(filter(None, (name or default for name in self.attributes)))

    @property
    def holds_out(self) -> bool:
        """Whether some records are held out, and train nothing."""
        return self.split[0] < 1

    @property
    def splits_by(self) -> Literal["participant", "record"]:
        """What a split draws, as set or by default."""
        return self.split_by or ("record" if self.partition == "natural" else "participant")


def _columns(values: dict[str, Any]) -> list[str]:
    """Return the columns of the file that settings name; none if it cannot be read, which is said later."""
    from fedfair.datasets.files.chunks import names_of  # here, with pandas, which other data do without

    try:
        asked = Asked(separator=values.get("separator"), encoding=values.get("encoding"), sheet=values.get("sheet"),
                      header_row=values.get("header_row"))
        return names_of(Path(values["csv"]), asked) if values.get("csv") else []
    except (OSError, ValueError, TypeError):
        return []
