"""What every client must know of a run: the data, how they are split and dealt, and the model."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from torch import nn

from fedfair.accounting.events import PUBLIC, Unit
from fedfair.datasets import DATASETS, GroupedDataset, Parts
from fedfair.datasets.agreement import Agreement
from fedfair.datasets.columns.convention import ALL, Asked, Capitals, Decimal, Quantity
from fedfair.datasets.features.bounded import FeatureMap
from fedfair.datasets.features.encoding import Encoding
from fedfair.datasets.features.features import Range, Standard
from fedfair.datasets.files.part_files import part_files, table_name
from fedfair.datasets.files.query import Query
from fedfair.datasets.names import as_text, names_in
from fedfair.datasets.partition import Shares, by_group, by_mixture, by_own_site, by_site, numbered_apart
from fedfair.datasets.schema import RECORDS, Listed, Schema, read
from fedfair.datasets.split import Missing
from fedfair.datasets.weights import LARGEST
from fedfair.models import find, published
from fedfair.plugins.registry import unknown
from fedfair.protocol.fields import MOST_CLIENTS
from fedfair.protocol.task_data import HUGGING_FACE, Preparation, prepared_data

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Width = Annotated[int, Field(ge=1, le=1_000_000_000)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]

NODES = "nodes"
"""Partition of nodes that each have a file of their own; also the name of such data."""

Preprocessing = Literal["public", "private", "records"]
"""Where the scaling of numbers and the lists of categories come from."""


def _listed(ranges: Any) -> Any:
    """Return a list of ranges from a table by column; raise `ValueError` for a range without two ends."""
    if not isinstance(ranges, dict):
        return ranges
    for column, ends in ranges.items():
        if not isinstance(ends, list | tuple) or len(ends) != 2:
            raise ValueError(f"the range of {column} is {ends!r}: give two numbers, the smaller first, for example "
                             f"ranges = {{ {column} = [0, 100] }}")
    return [(column, *ends) for column, ends in ranges.items()]


def _lists(categories: Any) -> Any:
    """Return lists of categories from a table by column; raise `ValueError` for what is no list."""
    if not isinstance(categories, dict):
        return categories
    for column, names in categories.items():
        if not isinstance(names, list | tuple) or not names:
            raise ValueError(f"the categories of {column} are {names!r}: give a list, for example "
                             f'categories = {{ {column} = ["a", "b", "other"] }}')
    return [(column, [str(name) for name in names]) for column, names in categories.items()]


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


def _by_column(value: Any) -> Any:
    """Return a list of settings by column from a table by column, or from one setting for all columns."""
    if isinstance(value, dict):
        return list(value.items())
    listed = isinstance(value, list | tuple) and all(isinstance(each, list | tuple) for each in value)
    return value if value is None or listed else [(ALL, value)]


class Task(BaseModel):
    """Data, partition and model of a run; frozen, and validated when it is made.

    Every field describes itself; docs/settings.md and `fedfair settings` list them.

    Examples:
        >>> task = Task(partition="site", clients=3, hidden=(8,), round_sizes=100)
        >>> {part: len(records) for part, records in task.data()}
        {'train': 1258, 'valid': 180, 'test': 359}
        >>> [len(client.train) for client in task.clients_data().values()], task.number_of_clients()
        ([420, 419, 419], 3)
        >>> task.public_sizes(torch.tensor([420, 0])), task.learned_from_records()
        (tensor([500,   0]), None)
        >>> task.public("record").partition(" (")[2]
        'numbers rounded up to multiples of 100)'
        >>> [tuple(parameter.shape) for parameter in task.build_model().parameters()]
        [(8, 64), (8,), (10, 8), (10,)]
        >>> task.at_node(file=None, nodes=3) == task
        True
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
    decimal: Annotated[tuple[tuple[str, Decimal], ...], BeforeValidator(_by_column)] | None = Field(
        default=None, json_schema_extra={"records": True, "allowed": "\".\" or \",\", also by column"},
        description='Decimal mark of the numbers in your file, "." or ","; the other mark is between thousands. '
                    '{score = ","} says it of one column. By default it is found from all columns; '
                    "where missing values are kept, no record may decide it, and it is a dot, unless a fit finds it "
                    "privately.")
    missing_marks: tuple[str, ...] | None = Field(
        default=None, json_schema_extra={"records": True},
        description='Cells that count as missing in your file, for example ["-999"], beside empty ones, ? and NA; [] '
                    "where numbers such as -999 are numbers.")
    capitals: Capitals = Field(
        default="refuse", json_schema_extra={"records": True},
        description="What labels or groups of your file are that differ by capital letters alone: refuse them, or take "
                    "them as the same or as different.")
    categorical: tuple[str, ...] | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Columns of your file that are categories though they hold numbers, such as codes of occupations.")
    bands: Annotated[tuple[tuple[str, tuple[Finite, ...]], ...], BeforeValidator(_by_column)] | None = Field(
        default=None, json_schema_extra={"records": True, "allowed": "list of numbers, also by column"},
        description="Bands of a protected number, by the lower ends of all but the first: [25, 60] makes the groups "
                    "under 25, 25 to under 60, and 60 and over; {age = [25, 60]} beside other protected columns.")
    quantities: Annotated[tuple[tuple[str, Quantity], ...], BeforeValidator(_pairs)] | None = Field(
        default=None, json_schema_extra={"records": True, "allowed": "table of date, duration or time by column"},
        description='Columns of your file that hold dates, durations or times of day, {born = "date"}, which are '
                    "numbers: days since 1970-01-01, days, and hours since midnight. Text is read as programs write "
                    "it, such as 2024-01-31, 3 days 12:00:00 or 13:30. By default found as kinds of columns are.")
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
    pixels: tuple[Finite, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default=(0.0, 1.0),
        description="Public mean and deviation by which pixels, scaled to [0, 1], are standardised.")
    attribute_in_model: bool = Field(
        default=False, json_schema_extra={"records": True},
        description="Whether the sensitive attributes, the columns that make the groups of a table, are features of "
                    "the model. Records are grouped by them either way.")
    without: tuple[str, ...] | None = Field(
        default=None,
        description='Columns of a table that are no features, or categories of one-hot columns ("sex=Male"). In '
                    "columns of your own file that are left out anything may stand.")
    preprocessing: Preprocessing | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Where the scaling of numbers and the lists of categories come from: public (ranges and categories "
                    "that are given here, or published with a built-in data set), private (a noisy release, charged "
                    "like any other), or records (means, deviations and categories of the records, as papers do, which "
                    "is not private). By default public where they are known, else records.")
    ranges: Annotated[tuple[Range, ...], BeforeValidator(_listed)] | None = Field(
        default=None, json_schema_extra={"allowed": "table of two numbers by column, the smaller first"},
        description="Public range of every numeric column, {age = [17, 90]}, which is scaled to [0, 1]; a one-hot "
                    "column of codes with a range becomes one number. Built-in data sets have ranges of their own, "
                    "which these replace.")
    categories: Annotated[tuple[Listed, ...], BeforeValidator(_lists)] | None = Field(
        default=None, json_schema_extra={"allowed": "table of lists of texts by column"},
        description='Public list of the categories of every column that is no number, {job = ["clerk", "nurse", '
                    '"other"]}; a value that is not listed counts as "other" where that is listed, else as none. '
                    "Built-in data sets have lists of their own, which these replace.")
    known_from: str | None = Field(
        default=None,
        description='Where ranges and categories are publicly known from, for the ledger; "records" says that they '
                    "were read off the records, which makes the guarantee nominal.")
    schema_file: str | None = Field(
        default=None, json_schema_extra={"records": True},
        description="TOML file with ranges, categories and their source, as `fedfair data schema FILE` writes it, with "
                    "label and group too. It is read at once: its content takes the place of this setting.")
    numbers: tuple[str, ...] = Field(
        default=(), json_schema_extra={"records": True},
        description="Columns of your own file that hold numbers, though they look like codes, identifiers or dates. "
                    "With preprocessing private their ranges are learned, and other columns without a range hold "
                    "categories.")
    drop_first: bool = Field(
        default=False,
        description="Whether the first category of every one-hot column is left out.")
    features: FeatureMap | None = Field(
        default=None, json_schema_extra={"records": True},
        description="Features whose norm is at most 1 for every record, so that sums of them need no clipping: binned "
                    "(a column for every category and every bin of a number), ranges or standardised (numbers scaled), "
                    "all of tables; filters or pixels of images. The last of them is constant: model linear needs no "
                    "bias. By default the numbers and categories as they are, of any norm.")
    bins: Annotated[int, Field(ge=2, le=1_000)] = Field(
        default=10, json_schema_extra={"belongs_to": "features"},
        description="Number of bins of every number, only with features binned: of equal width in its public range (of "
                    "equal ratio, if it is as wide as amounts of money), or of about equal numbers of records where "
                    "preprocessing learns them.")
    edges: Annotated[tuple[tuple[str, tuple[Finite, ...]], ...], BeforeValidator(_by_column)] | None = Field(
        default=None, json_schema_extra={"allowed": "table of lists of numbers by column", "belongs_to": "features"},
        description="Public ends between the bins of a number, { age = [25, 40, 60] }, in place of those that follow "
                    "from bins; only with features binned.")
    scalings: Annotated[tuple[Standard, ...], BeforeValidator(_listed)] | None = Field(
        default=None, json_schema_extra={"allowed": "table of two numbers by column", "belongs_to": "features"},
        description="Public mean and deviation of numeric columns, { age = [38.6, 13.7] }, only with features "
                    "standardised.")
    model: str = Field(
        default="mlp",
        description=f"Model: {', '.join(published.MODELS)}, or the name of a file in the folder models/.")
    hidden: tuple[Width, ...] = Field(
        default=(), json_schema_extra={"belongs_to": "model"},
        description="Widths of the hidden layers, for example [256, 256], or numbers of a cnn's channels; by default "
                    "the published ones.")
    seed: Annotated[int, Field(ge=0)] = Field(
        default=0, json_schema_extra={"chosen_by": "--seed or --seeds, or by seeds in a sweep"},
        description="Random seed of the split, the initial model and, with randomness seeded and all settings, of "
                    "batches and noise.")
    device: str = Field(
        default="cpu", json_schema_extra={"same_releases": True},
        description="Device that nodes compute on: cpu, or cuda on a machine that has it.")
    dtype: Literal["float32", "float64"] = Field(
        default="float32",
        description="Floating-point type of features and parameters.")

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
    def _schema_is_its_content(cls, values: Any) -> Any:
        """Put the content of a schema file in its place; what is given beside it wins."""
        if not isinstance(values, dict) or not values.get("schema_file"):
            return values
        given = {"ranges": _listed(values.get("ranges")) or (), "categories": _lists(values.get("categories")) or ()}
        schema = read(Path(values["schema_file"])).overridden(
            [Range(*entry) for entry in given["ranges"]], [Listed(*entry) for entry in given["categories"]])
        columns = {name: values.get(name) or getattr(schema, name) or None for name in ("label", "group")}
        return {**values, **columns, "schema_file": None, "ranges": schema.ranges, "categories": schema.categories,
                "known_from": values.get("known_from") or schema.source}

    @model_validator(mode="before")  # the last of them comes first
    @classmethod
    def _data_in_memory(cls, values: Any) -> Any:
        """Write a table of pandas, polars, Arrow or Ray to a file, which every process of a run can read.

        So are the rows of a query, in whichever order: they are dealt by what they hold, not by their places.
        """
        table = values.get("csv") if isinstance(values, dict) else None
        if isinstance(table, Query) or hasattr(table, "to_parquet") or hasattr(table, "to_pandas"):
            from fedfair.datasets.files.in_memory import (
                written,  # here, with pandas, which other data do without
            )

            dealt = {"duplicates": "together"} if isinstance(table, Query) and not values.get("participant") else {}
            return {"dataset": "table", **dealt, **values, "csv": str(written(table))}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Task:
        """Refuse unknown names, shares that do not sum to 1, and settings that do not fit together."""
        own = self.is_own
        if own and not (self.label and self.group):
            raise ValueError(f"{'a CSV file' if self.csv else self.dataset} needs the columns that hold label and "
                             "group: give label and group")
        self._refuse_unknown_nodes()
        self._refuse_unknown_sites()
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
        if self.preprocessing == "records" and self.categories is not None:
            raise ValueError('categories are given, but preprocessing is "records", which takes them from the records: '
                             'take preprocessing = "public", or leave categories out')
        if self.bands and self.bands[0][0] == ALL and len(self.attributes) > 1:
            raise ValueError(f"bands is {list(self.bands[0][1])}, but several columns make groups, {self.group}: say "
                             f"which it is for, for example bands = {{ {self.attributes[0]} = [25, 60] }}")
        if self.feature_map != "binned" and (self.edges or self.bins != 10):
            raise ValueError(f"bins or edges are given, but features is {self.features!r}: take features = "
                             '"binned", or leave them out')
        if self.missing == "keep" and (self.feature_map != "binned" or self.prepares == "records"):
            raise ValueError('missing is "keep", which gives a missing number a bin of its own and takes no column by '
                             'its values: take features = "binned", and preprocessing = "private" or public ranges')
        find.find_model(self.model)
        if self.partition == "natural" and self.clients is not None:
            raise ValueError(f"clients is {self.clients}, but with partition natural every participant is a client: "
                             "leave clients out")
        try:
            torch.ones(1, device=self.device).cpu()  # the device meta holds nothing
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {self.device!r} cannot be used here: take cpu, or cuda on a machine that has it"
                             ) from error
        return self

    def _refuse_unknown_sites(self) -> None:
        """Refuse a column of sites where there is no file, or one that has another role."""
        if self.site is not None and not self.csv:
            raise ValueError(f"site is {self.site!r}, a column of a file, but there is no file: give csv, or leave "
                             "site out")
        if self.site is not None and self.site in (self.label, *self.attributes, self.participant, self.record_weight):
            raise ValueError(f"site is {self.site!r}, which is the column of label, group, participant or weights too: "
                             "name a column that holds sites alone, or leave site out")

    def _refuse_unknown_nodes(self) -> None:
        """Refuse settings that do not describe the files of nodes, or that name a file for all of them."""
        known = self.agreement
        if known is None:
            return
        for name in ("csv", "clients", "balance", "imbalance"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but with partition nodes every node opens a file "
                                 "of its own, which its policy or --node-config names: leave it out")
        if self.missing == "keep":
            raise ValueError('missing is "keep", which is not known with partition nodes: take refuse, or drop')
        if self.prepares != "public":
            raise ValueError(f"partition is \"nodes\", but preprocessing is {self.prepares!r}: give a schema_file, or "
                             "ranges and categories, from which all nodes prepare their records alike")
        for name in (known.label, *known.attributes):
            known.names(name)

    def at_node(self, file: str | None, nodes: int, site: str | None = None, clients: int | None = None) -> Task:
        """Return the task with a node's own file, where nodes have files of their own; else the task as it is.

        Args:
            file: The node's file, or None if it has none.
            nodes: Number of nodes of the run.
            site: Column of the file that makes a client of each of the node's sites; None if the node is one client.
            clients: Number of clients of the run; None if each node is one, or if it is not known yet.

        Raises:
            ValueError: If the node needs a file and has none, or the column of sites has another role.
        """
        if self.partition != NODES:
            return self
        if not file:
            raise ValueError("partition is \"nodes\", but this node has no file of its own: name one by file in its "
                             "policy, or by --node-config 'data=\"FILE\"'")
        own = self.model_copy(update={"csv": file, "clients": clients or nodes, "site": site or None})
        own._refuse_unknown_sites()
        return own

    @property
    def as_sent(self) -> Task:
        """The task as the server knows it, without a node's own file."""
        mine = {"csv": None, "clients": None, "site": None}
        return self.model_copy(update=mine) if self.partition == NODES else self

    @property
    def agreement(self) -> Agreement | None:
        """What is known of nodes' own tables; None where nodes have none."""
        if self.partition != NODES:
            return None
        attributes = tuple(name for name in self.attributes if name)
        return Agreement(str(self.label), attributes, self.schema_of_columns, self.without or (), self.participant,
                         self.record_weight, self.missing, self.asked, self.site)

    @property
    def asked(self) -> Asked:
        """What is said of the user's file."""
        named = {*self.numbers, *(column for column, _, _ in self.ranges or ()), *filter(None, [self.record_weight]),
                 *(column for column, _ in self.quantities or ())}
        return Asked(self.separator, self.encoding, self.sheet, self.decimal or (), self.missing_marks, self.capitals,
                     self.categorical or (), tuple(sorted(named)),
                     self.bands or (), self.header_row, self.quantities or ())

    def data(self) -> Parts:
        """Return the prepared parts in the run's dtype, pixels as bytes; the same object for the same task and file.

        Where preprocessing is private, numbers are not scaled before their ranges have been learned.
        Raises `ValueError` or `FileNotFoundError` if they cannot be made, or a group has no training record.
        """
        return prepared_data(Preparation(**{name: getattr(self, name) for name in Preparation._fields}))

    @property
    def text(self) -> str:
        """The task as messages carry it, in JSON."""
        return _text(self)

    @property
    def modified(self) -> int:
        """When the user's file was last changed, in nanoseconds; of several, a number that changes; 0 without one."""
        return sum(file.stat().st_mtime_ns for file in part_files(Path(self.csv))) % 2**62 if self.csv else 0

    def clients_data(self, node: int = 0, nodes: int = 1, first: int | None = None) -> Shares:
        """Return the records of the clients node, node + nodes, ..., by default of all clients; validation and test
        records are dealt like training records.

        A node with a file of its own holds the clients first, first + 1, ..., one for each of its sites; by default
        from the number of the node on.
        """
        if self.partition == NODES:
            return by_own_site(numbered_apart(self.data(), node), node if first is None else first)
        parts, groups, clients = self.data(), len(self.data().train.names), self.number_of_clients()

        def holder(data: GroupedDataset) -> torch.Tensor:
            """Return the client of each record of one part."""
            if self.partition == "natural":
                return data.participant
            if self.partition == "group":
                return by_group(data.group, groups, clients)
            if self.alpha is not None:
                return by_mixture(data.group, groups, clients, self.alpha, self.seed)
            return by_site(len(data), clients, self.seed)

        return Shares.dealt(parts, {part: holder(data) for part, data in parts}, clients, node, nodes)

    def number_of_clients(self) -> int:
        """Return the number of clients that the records are dealt to; raise `ValueError` if no participant is named."""
        if self.partition == "natural":
            return self._participants()
        return self.clients or len(self.data().train.names)

    def _participants(self) -> int:
        """Return the number of participants that the data set names; raise `ValueError` if it names none."""
        named = [part.participant for _, part in self.data() if len(part.participant)]
        participants = max((int(participant.max()) + 1 for participant in named), default=0)
        if not participants:
            raise ValueError(f"{self.dataset} does not say whose its records are, as partition natural needs: take "
                             "partition site, or group")
        return participants

    def public_sizes(self, records: torch.Tensor) -> torch.Tensor:
        """Return clients' public numbers of records, rounded up: never less than the true numbers, so that no record is
        sampled at a higher rate than it is charged for, and 0 only for a client without records.
        """
        return -(-records // self.round_sizes) * self.round_sizes

    def trained_rows(self) -> int | None:
        """Return the training share of the number of rows of the user's table, which is public; None without one.

        How many rows are in the training part, and can be read, no ledger says: that depends on every one of them.

        Examples:
            >>> Task().trained_rows() is None
            True
        """
        rows = self.data().train.rows
        return round(self.split[0] * rows) if rows and self.prepares != "records" else None

    def public(self, protects: Unit | Literal["row"]) -> str:
        """Return in words what everybody is assumed to know of the data, where `protects` is what is protected."""
        known = self.round_sizes > 1 and protects != "row"
        rounded = f" (numbers rounded up to multiples of {self.round_sizes})" if known else ""
        columns = "" if self.prepares != "public" else f"; ranges and categories of columns ({self._known_from})"
        file = "; the format of the file and the names of its columns" if self.is_own else ""
        sites = f"; names of sites ({self.site})" if self.site else ""
        return PUBLIC[protects] + rounded + columns + file + sites

    @property
    def prepares(self) -> Preprocessing:
        """How columns become features: as set, or public where ranges and lists of categories are known."""
        known = self.categories is not None if self.is_own else DATASETS[self.dataset].public is not None
        return self.preprocessing or ("public" if known else "records")

    @property
    def feature_map(self) -> FeatureMap | None:
        """The kind of bounded features, where the data set tells: "binned" for a table whose kind follows from it."""
        is_table = self.is_own or DATASETS[self.dataset].public is not None
        return "binned" if self.features == "bounded" and is_table else self.features

    @property
    def schema_of_columns(self) -> Schema:
        """What is known of the columns: what the data set's source publishes, and what the settings say."""
        public = None if self.is_own or self.prepares == "private" else DATASETS[self.dataset].public
        known = public or Schema(self._known_from)
        return known.overridden(self.ranges or (), self.categories or ())

    @property
    def known_columns(self) -> frozenset[str]:
        """The columns that something is known of, with those of the groups, whose names are public by assumption."""
        return frozenset(self.schema_of_columns.columns | {name for name in self.attributes if name is not None})

    def learned_from_records(self) -> str | None:
        """Say what preprocessing learned from the records without noise, so that no epsilon covers it; None if nothing.

        Raises what `data` does.
        """
        return self.learned_by(self.data().train.encoding)

    def learned_by(self, encoding: Encoding) -> str | None:
        """Say what `learned_from_records` says, of columns that became features in this way.

        Args:
            encoding: How each column became features.

        Examples:
            >>> from fedfair.datasets.columns.convention import Reading
            >>> task = Task(csv="t.csv", label="y", group="g", ranges={"x": [0, 1]}, categories={})
            >>> "in x are written" in str(task.learned_by(Encoding((), reading=Reading(found=("x",)))))
            True
        """
        learned = []
        if encoding.reading.found and self.prepares != "records":
            learned.append(f"how the numbers in {', '.join(encoding.reading.found)} are written was found from all "
                           "rows, so that one row may change how others are read: say what stands before decimals, "
                           'decimal = "." or decimal = ","')
        features = encoding.features if self.prepares != "private" else ()
        if self.prepares == "public" and self.known_from == RECORDS:
            learned.append("ranges and categories were read off the records: replace them by what is publicly known, "
                           "and name the source in known_from")
        known = {column for column, _, _ in self.scalings or ()}
        if any(each.scaling is not None and not each.scaling.within for each in features if each.column not in known):
            learned.append("numbers are scaled by means and deviations of the training records, and one extreme record "
                           "moves all of them: give their public ranges (ranges)")
        of_records = {each.column for each in features if each.bin} - {name for name, *_ in self.ranges or ()}
        if self.prepares == "records" and of_records - {name for name, _ in self.edges or ()}:
            learned.append("the ends of bins are quantiles of the training records: give public ranges (ranges), or "
                           "the ends themselves (edges)")
        unlisted = {feature.column for feature in features if feature.category is not None}
        unlisted -= {*self.attributes, *encoding.listed}  # names of groups are public by assumption
        if unlisted:
            learned.append(f"the categories of {', '.join(sorted(unlisted))} are those that occur in the records")
        if self.is_own and features and self.prepares == "records":
            learned.append("which columns hold numbers, and which are left out, was read off the records: list the "
                           "categories too (categories, or a schema_file; {} if all columns are numbers)")
        return "; ".join(learned) or None

    def build_model(self) -> nn.Module:
        """Build the model with its initial parameters; raise `ValueError` for one that does not fit the records."""
        train = self.data().train
        find.refuse_misfit(self.model, self.hidden, train.classes, train.features(slice(0, 0)))
        return find.build(self.model, self.hidden, train.x.shape[1:], train.classes, self.seed, self.torch_dtype)

    @property
    def _known_from(self) -> str:
        """Where ranges and categories are publicly known from."""
        replaced = self.known_from or ("the settings" if self.ranges or self.categories else "")
        public = None if self.is_own else DATASETS[self.dataset].public
        return " and ".join(filter(None, (public.source if public else "", replaced)))

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

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of features and parameters."""
        return torch.float64 if self.dtype == "float64" else torch.float32


def _columns(values: dict[str, Any]) -> list[str]:
    """Return the columns of the file that settings name; none if it cannot be read, which is said later."""
    from fedfair.datasets.files.chunks import names_of  # here, with pandas, which other data do without

    try:
        asked = Asked(separator=values.get("separator"), encoding=values.get("encoding"), sheet=values.get("sheet"),
                      header_row=values.get("header_row"))
        return names_of(Path(values["csv"]), asked) if values.get("csv") else []
    except (OSError, ValueError, TypeError):
        return []


@lru_cache(maxsize=4)
def _text(task: Task) -> str:
    """Write a task as JSON once: every message of a run asks for it."""
    return task.model_dump_json()
