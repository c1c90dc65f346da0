"""Settings of the features: how columns and pixels become numbers, and from where their ranges are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from fedfair.accounting.events import PUBLIC, Unit
from fedfair.datasets import DATASETS
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.features.bounded import FeatureMap
from fedfair.datasets.features.encoding import Encoding
from fedfair.datasets.features.features import Range, Standard
from fedfair.datasets.schema import RECORDS, Listed, Schema, read
from fedfair.protocol.record_settings import Finite, RecordSettings, by_column

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

class FeatureSettings(RecordSettings):
    """How the records of `RecordSettings` become features, and what is publicly known of them. Part of `Task`.

    Every field describes itself; docs/settings.md and `fedfair settings` list them.

    Examples:
        >>> settings = FeatureSettings(csv="t.csv", label="y", group="g", ranges={"x": [0, 1]}, categories={})
        >>> settings.prepares, sorted(settings.known_columns), settings.feature_map
        ('public', ['g', 'x'], None)
        >>> FeatureSettings(round_sizes=100).public("record").partition(" (")[2]
        'numbers rounded up to multiples of 100)'
    """

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
    edges: Annotated[tuple[tuple[str, tuple[Finite, ...]], ...], BeforeValidator(by_column)] | None = Field(
        default=None, json_schema_extra={"allowed": "table of lists of numbers by column", "belongs_to": "features"},
        description="Public ends between the bins of a number, { age = [25, 40, 60] }, in place of those that follow "
                    "from bins; only with features binned.")
    scalings: Annotated[tuple[Standard, ...], BeforeValidator(_listed)] | None = Field(
        default=None, json_schema_extra={"allowed": "table of two numbers by column", "belongs_to": "features"},
        description="Public mean and deviation of numeric columns, { age = [38.6, 13.7] }, only with features "
                    "standardised.")

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

    @model_validator(mode="after")
    def _features_fit(self) -> FeatureSettings:
        """Refuse settings of features that do not fit together."""
        if self.preprocessing == "records" and self.categories is not None:
            raise ValueError('categories are given, but preprocessing is "records", which takes them from the records: '
                             'take preprocessing = "public", or leave categories out')
        if self.feature_map != "binned" and (self.edges or self.bins != 10):
            raise ValueError(f"bins or edges are given, but features is {self.features!r}: take features = "
                             '"binned", or leave them out')
        if self.missing == "keep" and (self.feature_map != "binned" or self.prepares == "records"):
            raise ValueError('missing is "keep", which gives a missing number a bin of its own and takes no column by '
                             'its values: take features = "binned", and preprocessing = "private" or public ranges')
        return self

    @property
    def asked(self) -> Asked:
        """What is said of the user's file."""
        named = {*self.numbers, *(column for column, _, _ in self.ranges or ()), *filter(None, [self.record_weight]),
                 *(column for column, _ in self.quantities or ())}
        return Asked(self.separator, self.encoding, self.sheet, self.decimal or (), self.missing_marks, self.capitals,
                     self.categorical or (), tuple(sorted(named)),
                     self.bands or (), self.header_row, self.quantities or (), self.answers or ())

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

    def learned_by(self, encoding: Encoding) -> str | None:
        """Say what `learned_from_records` says, of columns that became features in this way.

        Args:
            encoding: How each column became features.

        Examples:
            >>> from fedfair.datasets.columns.convention import Reading
            >>> task = FeatureSettings(csv="t.csv", label="y", group="g", ranges={"x": [0, 1]}, categories={})
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

    def public(self, protects: Unit | Literal["row"]) -> str:
        """Return in words what everybody is assumed to know of the data, where `protects` is what is protected."""
        known = self.round_sizes > 1 and protects != "row"
        rounded = f" (numbers rounded up to multiples of {self.round_sizes})" if known else ""
        columns = "" if self.prepares != "public" else f"; ranges and categories of columns ({self._known_from})"
        file = "; the format of the file and the names of its columns" if self.is_own else ""
        sites = f"; names of sites ({self.site})" if self.site else ""
        return PUBLIC[protects] + rounded + columns + file + sites

    @property
    def _known_from(self) -> str:
        """Where ranges and categories are publicly known from."""
        replaced = self.known_from or ("the settings" if self.ranges or self.categories else "")
        public = None if self.is_own else DATASETS[self.dataset].public
        return " and ".join(filter(None, (public.source if public else "", replaced)))
