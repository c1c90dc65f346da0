"""What is found in a table, and what the user says of it: numbers, marks, names, bands, layouts, formats."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from fedfair.datasets.columns.cell import spelled
from fedfair.datasets.columns.convention import Asked, in_bands
from fedfair.datasets.columns.kinds import understand
from fedfair.datasets.columns.quantities import plain
from fedfair.datasets.columns.texts import doubtful_mark, same_capitals
from fedfair.datasets.columns.tidy import reading_of, tidied
from fedfair.datasets.features.encoder import encode
from fedfair.datasets.features.features import standardise
from fedfair.datasets.files.csv_file import layout_of
from fedfair.datasets.files.table_file import read_table
from fedfair.datasets.grouped import Parts
from fedfair.datasets.names import as_text, names_in
from fedfair.datasets.split import Missing
from fedfair.datasets.table import from_csv, from_table, group_names
from fedfair.protocol.task import Task
from tests.for_each import for_each

ROWS = 60


def table(**columns: Any) -> pd.DataFrame:
    """Make a table with a label and a group; every column is repeated to its end."""
    named = {"good": [0, 1, 1], "sex": ["f", "m"], **columns}
    return pd.DataFrame({name: [values[i % len(values)] for i in range(ROWS)] for name, values in named.items()})


WRITTEN = [
    ("12", "12", "12"), ("1,250", "1250", "1.250"), ("1.250", "1.250", "1250"), ("0,125", None, "0.125"),
    ("1,234,567.5", "1234567.5", None), ("1.234.567,5", None, "1234567.5"), ("1 234,5", None, "1234.5"),
    ("12'345.5", "12345.5", None), ("12,34,567", "1234567", None), ("1234,567", None, "1234.567"),
    ("$41,200", "41200", "41.200"), ("-$5", "-5", "-5"), ("$-5", "-5", "-5"), ("(5.5)", "-5.5", None),
    ("\u22125", "-5", "-5"), ("1e-3", "1e-3", "1e-3"), ("45.1 %", "45.1", None),
    (".5", ".5", None), ("1.2.3", None, None),
    ("12:30", None, None), ("01.01.2015", None, None), ("1,2,3", None, None), ("(5", None, None), ("", None, None),
    ("branch 14", None, None), ("5%%", None, None), ("1,25.000", None, None), ("٣", None, None)]
"""Texts, and the numbers that they are with a decimal point, and with a decimal comma."""


def test_numbers_as_people_write_them() -> None:
    assert [(text, plain(text, "."), plain(text, ",")) for text, _, _ in WRITTEN] == WRITTEN


def test_one_convention_is_found_from_all_columns() -> None:
    share = ["0,125", "1,250", "1", "2"]
    assert tidied(frame := table(share=share), reading_of(frame, Asked(), ";"))["share"].max() == 2
    frame = table(share=["1,250", "2,500"], pay=["12,5", "3"])
    assert tidied(frame, reading_of(frame, Asked(), ";"))["share"].tolist()[:2] == [1.25, 2.5]
    doubtful = table(share=["1,250", "2,500"])
    with pytest.raises(ValueError, match=r'whether its comma is before decimals .* decimal = "\." or decimal = ","'):
        reading_of(doubtful, Asked(), ";")
    for mark, value in ((".", 1250), (",", 1.25)):
        asked = Asked(decimal=(("", mark),))  # type: ignore[arg-type]
        assert tidied(doubtful, reading_of(doubtful, asked, ";"))["share"].iloc[0] == value


def test_columns_that_contradict_each_other_are_refused() -> None:
    frame = table(pay=["1234.5", "7"], share=["0,5", "0,7"])
    with pytest.raises(ValueError, match=r'decimal = \{ share = "," \}'):
        reading_of(frame, Asked(), ",")
    found = tidied(frame, reading_of(frame, Asked(decimal=(("share", ","),)), ","))
    assert (found["pay"].max(), found["share"].max()) == (1234.5, 0.7)


@for_each(("values", "taken"), [
    (["$5", "7"], "number"), (["5%", "7"], "category"), (["$5", "€7"], "category"), (["007", "12"], "category"),
    (["7", "12"], "number"), (["5 EUR", "7 EUR"], "number"), (["5", "6", "Unknown"], "number"),
    (["5", "6", "k.A."], "number")])
def test_signs_codes_and_words(values: list[str], taken: str) -> None:
    frame = table(x=values)
    assert next(c for c in understand(tidied(frame, reading_of(frame, Asked())), "good", "sex")
                if c.name == "x").kind == taken


@for_each(("values", "mark"), [
    ([1, 2, 3, -999, -999], -999), ([18, 40, 65, 999, 999], 999), ([5, -3, 7, -999, -999], None),
    ([1, 2, 3, -999], None), ([1, -1, 1, -1], None), ([100, 900, 950, 999, 999], None), ([0, 5, 27, 999, 999], 999)])
def test_marks_for_missing_values_lie_apart(values: list[int], mark: int | None) -> None:
    assert doubtful_mark(pd.Series(values)) == mark


def test_a_mark_is_asked_for_and_then_missing() -> None:
    frame = table(income=[100, 2000, 300, 4000, -999])
    with pytest.raises(ValueError, match=r'-999 in 12 rows.* give missing_marks = \["-999"\], or missing_marks = \[\]'):
        from_table(frame, "good", "sex")
    assert len(from_table(frame, "good", "sex", "drop", asked=Asked(missing_marks=("-999",)))) == 48
    assert from_table(frame, "good", "sex", asked=Asked(missing_marks=())).x[:, 0].min() == -999


def test_names_have_one_spelling() -> None:
    assert spelled("  Ma\u0301laga \u00a0 x\u200b") == "Málaga x"
    frame = table(sex=["Ma\u0301laga", "Málaga ", "Sevilla"])
    assert from_table(frame, "good", "sex").names == ("Málaga", "Sevilla")


def test_one_number_in_two_writings_is_asked_about() -> None:
    """A spreadsheet made 1 of 01 in one of the files."""
    frame = table(county=["01", "02", "1"])
    found = next(c for c in understand(tidied(frame, reading_of(frame, Asked())), "good", "sex") if c.name == "county")
    assert found.question
    assert "'county' has '01' and '1', which are one number" in found.question
    as_number = Asked(numeric=("county",))
    assert tidied(frame, reading_of(frame, as_number))["county"].tolist()[:3] == [1, 2, 1]


@pytest.mark.parametrize("role", ["sex", "good"])
@pytest.mark.parametrize("missing", ["refuse", "keep"])
def test_a_group_or_class_in_two_writings_is_refused_unless_it_is_a_code(role: str, missing: Missing) -> None:
    frame = table(**{role: ["01", "2", "1"], "age": [1, 2, 3, 4]})
    with pytest.raises(ValueError, match=f"column '{role}' has '01' and '1', which are one number"):
        from_table(frame, "good", "sex", missing)
    numbers = None if missing == "refuse" else ("age",)
    data = from_table(frame, "good", "sex", missing, numbers=numbers, asked=Asked(categorical=(role,)))
    assert (data.names if role == "sex" else data.labels) == ("01", "1", "2")


def test_names_that_differ_by_capitals_are_asked_about() -> None:
    frame = table(sex=["Female", "female", "Male", "Female"], town=["x", "X", "y"])
    with pytest.raises(ValueError, match="'Female' and 'female', which differ by capital letters alone"):
        from_table(frame, "good", "sex")
    data = from_table(frame, "good", "sex", asked=Asked(capitals="same"))
    assert data.names == ("Female", "Male")
    assert from_table(frame, "good", "sex", asked=Asked(capitals="different")).names == ("Female", "Male", "female")
    rows = pd.DataFrame({"sex": ["FEMALE"], "town": ["Y"]})
    assert encode(rows, data.encoding).sum() == 2
    assert same_capitals(pd.Series(["a", "A", "A", None], dtype="string")).tolist()[:3] == ["A"] * 3


def test_a_protected_number_is_put_into_bands() -> None:
    frame = table(age=list(range(18, 78)), sex=["f", "m"])
    with pytest.raises(ValueError, match=r"is a number with 60 different values, .* for example bands = "):
        from_table(frame, "good", "age")
    asked = Asked(bands=(("", (25.0, 60.0)),))
    data = from_table(frame, "good", "age", asked=asked)
    assert data.names == ("under 25", "25 to under 60", "60 and over")
    assert data.group_sizes() == (7, 35, 18)
    assert data.numeric == (0,)  # the number itself stays the feature
    assert group_names(pd.DataFrame({"age": ["24", "25", "60"]}), ["age"], data.encoding.reading) == list(data.names)
    with pytest.raises(ValueError, match=r"bands is \[60, 25\]: give rising numbers"):
        in_bands(frame["age"], [60, 25])
    with pytest.raises(ValueError, match="bands are for numbers"):
        in_bands(frame["sex"], [60])


def test_bands_cross_with_other_columns(tmp_path: Path) -> None:
    table(age=list(range(18, 78))).to_csv(tmp_path / "own.csv", index=False)
    task = Task(csv=str(tmp_path / "own.csv"), label="good", group="sex,age", bands={"age": [40]},
                attribute_in_model=True)
    assert Task.model_validate_json(task.text) == task
    assert task.data().train.names == ("f & under 40", "f & 40 and over", "m & under 40", "m & 40 and over")
    with pytest.raises(ValueError, match="say which it is for, for example bands"):
        Task(csv=str(tmp_path / "own.csv"), label="good", group="sex,age", bands=[40])


def test_a_name_may_hold_a_comma(tmp_path: Path) -> None:
    table(**{"Sex, as recorded": ["f", "m"], "age": [1, 2, 3]}).to_csv(tmp_path / "own.csv", index=False)
    own = {"csv": str(tmp_path / "own.csv"), "label": "good"}
    for group in ("Sex, as recorded", ["Sex, as recorded"], '"Sex, as recorded"'):
        assert Task(**own, group=group).attributes == ("Sex, as recorded",)
    assert Task(**own, group=["Sex, as recorded", "age"]).attributes == ("Sex, as recorded", "age")
    assert Task(**own, group="sex, age").attributes == ("sex", "age")
    assert names_in(as_text(["a, b", 'c "d"', "e"])) == ["a, b", 'c "d"', "e"]


class Lines(NamedTuple):
    """A text in memory."""

    text: str

    def lines(self, first: int = 0) -> Iterator[str]:
        """Yield the lines from that number on."""
        return iter(self.text.splitlines(keepends=True)[first:])


@for_each(("text", "separator", "quote"), [
    ("a;b\n1,5;2\n", ";", '"'), ('"a, b";"c, d"\n1;2\n', ";", '"'), ("a|b\n1|2\n", "|", '"'),
    ("a  b   c\n1  x 3\n", " ", '"'), ("sep=;\na,b;c\n1;2\n", ";", '"'), ("'a,b','c'\n'1','2'\n", ",", "'"),
    ('"a\nb",c\n1,2\n', ",", '"'), ("a\tb\n1,5\t2\n", "\t", '"')])
def test_what_separates_and_what_quotes(text: str, separator: str, quote: str) -> None:
    layout = layout_of(Lines(text), "own.csv")
    assert (layout.separator, layout.quote) == (separator, quote)


def test_two_separators_that_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="a comma as well as a semicolon: say which with the setting separator"):
        layout_of(Lines("a,b;c\n1,2;3\n"), "own.csv")
    assert layout_of(Lines("a,b;c\n1,2;3\n"), "own.csv", ";").separator == ";"


@pytest.mark.parametrize(("content", "message"), [
    (b"19.5,f,1\n20.5,m,0\n", "as a line of values has: put a line with the names"),
    (b"a,b\n1,\x00\n", "is not text: save it as CSV in UTF-8, or give the setting encoding"),
    (b"\x1f\x8bxx", "cannot be unpacked")])
def test_files_that_are_no_tables(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "own.csv")


def test_other_formats_and_archives(tmp_path: Path) -> None:
    frame = table(age=[1, 2, 3], town=["x", "y"])
    frame.to_feather(tmp_path / "own.feather")
    frame.to_json(tmp_path / "own.jsonl", orient="records", lines=True)
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as archive:
        archive.writestr("own.csv", frame.to_csv(index=False))
    frame.to_csv(tmp_path / "own.csv", index=False)
    expected = from_csv(tmp_path / "own.csv", "good", "sex")
    for name in ("own.feather", "own.jsonl", "own.zip"):
        assert torch.equal(from_csv(tmp_path / name, "good", "sex").x, expected.x)
    with pd.ExcelWriter(tmp_path / "own.xlsx") as book:
        frame.to_excel(book, sheet_name="people", index=False)
        frame.head(3).to_excel(book, sheet_name="notes", index=False)
    with pytest.raises(ValueError, match="has the sheets 'people', 'notes': say which with the setting sheet"):
        from_csv(tmp_path / "own.xlsx", "good", "sex")
    assert torch.equal(from_csv(tmp_path / "own.xlsx", "good", "sex", asked=Asked(sheet="people")).x, expected.x)
    (tmp_path / "own.pkl").write_bytes(b"")
    with pytest.raises(ValueError, match="a pickle, which can run code, which fedfair does not read"):
        read_table(tmp_path / "own.pkl")


@for_each(("name", "values", "kind"), [
    ("customer_id", [7 * i % 61 + 1000 for i in range(ROWS)], "identifier"), ("personId", list(range(99, 39, -1)),
                                                               "identifier"),
    ("id", list(range(ROWS)), "row number"), ("day", [20240101 + i % 28 for i in range(ROWS)], "date"),
    ("width", list(range(ROWS)), "number"), ("paid", [7 * i % 61 for i in range(ROWS)], "number")])
def test_numbers_that_are_no_numbers(name: str, values: list[int], kind: str) -> None:
    frame = table(**{name: values})
    found = next(c for c in understand(tidied(frame), "good", "sex") if c.name == name)
    assert found.kind == kind
    assert understand(tidied(frame), "good", "sex", asked=Asked(numeric=(name,)))[2].kind == "number"


def test_codes_are_categories_where_the_user_says_so() -> None:
    frame = table(job=[10, 230, 4700])
    data = from_table(frame, "good", "sex", asked=Asked(categorical=("job",)))
    assert data.categories == ("f", "m", "10", "230", "4700")
    assert encode(pd.DataFrame({"job": ["230"], "sex": ["f"]}), data.encoding).tolist() == [[1, 0, 0, 1, 0]]
    with pytest.raises(ValueError, match=r'give categorical = \["zip"\]'):
        from_table(table(zip=[10039, 10040, 94110]), "good", "sex")
    with pytest.raises(ValueError, match="unknown column 'jab': did you mean 'job'"):
        from_table(frame, "good", "sex", asked=Asked(categorical=("jab",)))


def test_a_column_is_constant_up_to_rounding() -> None:
    data = from_table(table(fee=[0.1, 0.1, 0.2]), "good", "sex")
    constant = data.take(torch.tensor([row for row in range(ROWS) if row % 3 < 2]))
    part = standardise(Parts(constant, data, data))
    assert part.test.x[:, 0].abs().max() < 1


def test_numbers_beyond_reckoning_are_refused() -> None:
    with pytest.raises(ValueError, match="with which nothing can be computed"):
        from_table(table(pay=[1e200, 2.0, 3.0]), "good", "sex")
    assert np.isfinite(from_table(table(pay=[1e90, 2.0, 3.0]), "good", "sex").x).all()


def test_bands_of_a_number_without_a_public_range_are_its_categories(tmp_path: Path) -> None:
    frame = table(age=list(range(18, 78)), town=["x", "y"])
    frame.to_csv(tmp_path / "own.csv", index=False)
    task = Task(csv=str(tmp_path / "own.csv"), label="good", group="age", bands=[40], dtype="float64",
                attribute_in_model=True, categories={"town": ["x", "y"], "sex": ["f", "m"]})
    train = task.data().train
    assert {*train.columns} == {"age", "sex", "town"}
    assert train.encoding.categories("age") == ("40 and over", "under 40")
    assert torch.equal(encode(frame.iloc[train.records.numpy()].astype(str), train.encoding), train.x)


def test_words_are_answers_in_the_columns_that_the_settings_name_and_records_with_them_are_kept() -> None:
    frame = table(country=["NA", "DE", "None", ""], score=["1", "NA", "3", "4"], sex=["f", "f", "m"])
    asked = Asked(answers=("country",), missing_marks=("DE",))
    read = tidied(frame, reading_of(frame, asked))
    assert read["country"].fillna("gap").tolist()[:4] == ["NA", "gap", "None", "gap"]
    assert read["score"].tolist()[:4] == pytest.approx([1, np.nan, 3, 4], nan_ok=True)
    data = from_table(frame, "good", "sex", "drop", asked=Asked(answers=("country",)))
    assert len(data) == ROWS // 2  # without the rows that have no country, or no score
    assert {feature.category for feature in data.encoding.features if feature.column == "country"} == {"NA", "None"}
    with pytest.raises(ValueError, match=r'name a column where that is an answer, for example answers'):
        from_table(frame, "good", "sex")
    with pytest.raises(ValueError, match="unknown column 'land'"):
        from_table(frame, "good", "sex", asked=Asked(answers=("land",)))
