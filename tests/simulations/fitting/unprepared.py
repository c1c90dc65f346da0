"""Twelve tables as people have them, that nobody prepared: made up, each in a format and writing of its own.

The chance of the label follows from the columns, so that the right figures are known.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

ROWS = 3000


class Unprepared(NamedTuple):
    """A table, and what a person says of it.

    Attributes:
        write: Writes the table into a folder and returns what names it: a file, a folder or a pattern.
        label: Column to predict.
        group: Column of the groups.
        good: The favourable class.
        answers: What `fedfair data check` asks a person for, as options of it.
        query: Query of a database; "" for files.
    """

    write: Callable[[Path], Path]
    label: str
    group: str
    good: str
    answers: tuple[str, ...] = ()
    query: str = ""


def _drawn(seed: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """Return draws, the place of each row's group, and a standard normal for each row."""
    draws = np.random.default_rng(seed)
    return draws, draws.integers(0, 2, ROWS), draws.normal(0, 1, ROWS)


def _where(score: np.ndarray, draws: np.random.Generator, yes: object, no: object) -> np.ndarray:
    """Return a label by a score, with the noise of a logistic model."""
    return np.where(score + draws.logistic(0, .5, ROWS) > 0, np.array(yes, object), np.array(no, object))


def loans(folder: Path) -> Path:
    """German writing: semicolons, decimal commas, points between thousands, a byte order mark; codes of post."""
    draws, woman, x = _drawn(1)
    amount = (9000 + 2500 * x).clip(500).round(2)
    frame = pd.DataFrame({
        "Betrag": [f"{each:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".") for each in amount],
        "PLZ": draws.choice(["01067", "80331", "20095", "50667"], ROWS), "Laufzeit": draws.choice([12, 24, 36], ROWS),
        "Geschlecht": np.where(woman == 1, "weiblich", "männlich"),
        "bewilligt": _where(-x + .3 * woman, draws, "ja", "nein")})
    frame.to_csv(folder / "loans.csv", sep=";", index=False, encoding="utf-8-sig")
    return folder / "loans.csv"


def readmissions(folder: Path) -> Path:
    """Parquet of a hospital: a duration, a category of whole numbers, a nullable truth value; readmission is bad."""
    draws, woman, x = _drawn(2)
    urgent = pd.array(draws.random(ROWS) < .4, dtype="boolean")
    urgent[draws.random(ROWS) < .1] = pd.NA
    pd.DataFrame({
        "stay": pd.to_timedelta((5 + 3 * x).clip(0).round(1), unit="D"), "urgent": urgent,
        "ward": pd.Categorical(draws.integers(1, 6, ROWS)), "sex": np.where(woman == 1, "F", "M"),
        "readmitted": _where(x - .5, draws, "yes", "no")}).to_parquet(folder / "readmissions.parquet")
    return folder / "readmissions.parquet"


def salaries(folder: Path) -> Path:
    """Write a workbook with a title above the names."""
    draws, woman, x = _drawn(3)
    frame = pd.DataFrame({
        "years": (10 + 5 * x).clip(0).round(), "grade": draws.choice(["junior", "senior", "lead"], ROWS),
        "gender": np.where(woman == 1, "Woman", "Man"), "over 50k": _where(x - .4 * woman, draws, "yes", "no")})
    with pd.ExcelWriter(folder / "salaries.xlsx") as book:
        frame.to_excel(book, index=False, startrow=1)
        book.book.active["A1"] = "Salaries 2025, confidential"
    return folder / "salaries.xlsx"


def hiring(folder: Path) -> Path:
    """Write a record of JSON in each line, with null where nothing was said."""
    draws, woman, x = _drawn(4)
    pd.DataFrame({
        "experience": np.where(draws.random(ROWS) < .08, np.nan, (8 + 4 * x).clip(0).round(1)),
        "degree": draws.choice(["none", "BSc", "MSc", "PhD"], ROWS), "remote": draws.random(ROWS) < .5,
        "gender": np.where(woman == 1, "female", "male"), "hired": _where(x + .5 * (1 - woman), draws, True, False),
    }).to_json(folder / "hiring.jsonl", orient="records", lines=True)
    return folder / "hiring.jsonl"


def parole(folder: Path) -> Path:
    """Tabs and Latin-1; the numbers of rows in a first column without a name; sorted by the label."""
    draws, second, x = _drawn(5)
    frame = pd.DataFrame({
        "prior": (3 + 2 * x).clip(0).round().astype(int), "age": draws.integers(18, 70, ROWS),
        "group": np.where(second == 1, "Créole", "other people"), "released": _where(-x, draws, "yes", "no")})
    frame.sort_values("released").reset_index(drop=True).to_csv(folder / "parole.tsv", sep="\t", encoding="latin-1")
    return folder / "parole.tsv"


def insurance(folder: Path) -> Path:
    """Packed; signs of money and per cent; truth values of R; a quarter of the claims is unknown."""
    draws, woman, x = _drawn(6)
    claims = np.where(draws.random(ROWS) < .25, "NA", draws.integers(0, 5, ROWS).astype(str))
    pd.DataFrame({
        "premium": [f"${1200 + 300 * each:,.2f}" for each in x], "discount": [f"{each}%" for each in draws.integers(
            0, 30, ROWS)], "claims": claims, "smoker": np.where(draws.random(ROWS) < .3, "TRUE", "FALSE"),
        "sex": np.where(woman == 1, "f", "m"), "renewed": _where(-x + .2 * woman, draws, "TRUE", "FALSE"),
    }).to_csv(folder / "insurance.csv.gz", index=False)
    return folder / "insurance.csv.gz"


def benefits(folder: Path) -> Path:
    """Folders as Spark writes them: the region is in their names."""
    draws, woman, x = _drawn(7)
    region = draws.choice(["north", "south"], ROWS)
    frame = pd.DataFrame({
        "income": (1500 + 400 * x).round(), "children": draws.integers(0, 5, ROWS),
        "sex": np.where(woman == 1, "f", "m"), "granted": _where(-x + (region == "north"), draws, "granted", "denied")})
    for name in ("north", "south"):
        (part := folder / "benefits" / f"region={name}").mkdir(parents=True)
        frame[region == name].to_parquet(part / "part-0.parquet")
    return folder / "benefits"


def exams(folder: Path) -> Path:
    """Feather; one number of three digits and one of a wide range; three groups, of which one is small."""
    draws, _, x = _drawn(8)
    school = draws.choice(["state", "private", "abroad"], ROWS, p=[.6, .38, .02])
    pd.DataFrame({
        "points": (500 + 90 * x).round(), "distance": np.exp(draws.normal(2, 1.5, ROWS)),
        "subject": pd.Categorical(draws.choice(["maths", "law", "arts"], ROWS)), "school": school,
        "admitted": _where(x + .4 * (school == "private"), draws, "yes", "no")}).to_feather(folder / "exams.feather")
    return folder / "exams.feather"


def tickets(folder: Path) -> Path:
    """Put together exports of ten months, as `cat` does: the names stand ten times in it."""
    draws, young, x = _drawn(9)
    frame = pd.DataFrame({
        "speed over": (15 + 6 * x).clip(1).round().astype(int), "road": draws.choice(["city", "motorway"], ROWS),
        "age group": np.where(young == 1, "under 25", "25 and over"), "fined": _where(x, draws, "fined", "warned")})
    text = "".join(frame[first::10].to_csv(index=False) for first in range(10))
    (folder / "tickets.csv").write_text(text)
    return folder / "tickets.csv"


def rents(folder: Path) -> Path:
    """Several words for nothing, capitals that differ, blanks around names."""
    draws, migrant, x = _drawn(10)
    pd.DataFrame({
        "income": [f" {3000 + 800 * each:.0f} " if far > .1 else word for each, far, word in zip(
            x, draws.random(ROWS), draws.choice(["n/a", "-", "?"], ROWS), strict=True)],
        "pets": draws.choice(["yes", "no "], ROWS), "origin": np.where(migrant == 1, "abroad", "here"),
        "invited": _where(x - .6 * migrant, draws, "invited", "not")}).to_csv(folder / "rents.csv", index=False)
    return folder / "rents.csv"


def survey(folder: Path) -> Path:
    """Stata, with labels of values: 1 and 2 mean man and woman."""
    draws, woman, x = _drawn(11)
    frame = pd.DataFrame({
        "weeklyhours": (36 + 8 * x).round().astype("int16"), "region": draws.integers(1, 4, ROWS).astype("int8"),
        "sex": (1 + woman).astype("int8"), "promoted": (x + draws.logistic(0, .5, ROWS) > 0).astype("int8")})
    frame.to_stata(folder / "survey.dta", write_index=False, value_labels={
        "sex": {1: "man", 2: "woman"}, "region": {1: "east", 2: "west", 3: "abroad"}, "promoted": {0: "no", 1: "yes"}})
    return folder / "survey.dta"


def triage(folder: Path) -> Path:
    """Fill a database of DuckDB; the age in years, the pulse as measured."""
    import duckdb

    draws, woman, x = _drawn(12)
    frame = pd.DataFrame({  # noqa: F841 - the query finds it by its name
        "age": draws.integers(0, 95, ROWS), "pulse": (80 + 15 * x).round(), "arrival": draws.choice(
            ["walk-in", "ambulance"], ROWS), "sex": np.where(woman == 1, "female", "male"),
        "seen_first": _where(x, draws, "first", "later")})
    with duckdb.connect(str(folder / "triage.duckdb")) as base:
        base.execute("create table visits as select * from frame")
    return folder / "triage.duckdb"


TABLES: dict[str, Unprepared] = {
    "loans": Unprepared(loans, "bewilligt", "Geschlecht", "ja", ("--set", "favourable=ja")),
    "readmissions": Unprepared(readmissions, "readmitted", "sex", "no", ("--set", "favourable=no")),
    "salaries": Unprepared(salaries, "over 50k", "gender", "yes", ("--set", "header_row=2")),
    "hiring": Unprepared(hiring, "hired", "gender", "True"),
    "parole": Unprepared(parole, "released", "group", "yes", ("--encoding", "cp1252")),
    "insurance": Unprepared(insurance, "renewed", "sex", "TRUE"),
    "benefits": Unprepared(benefits, "granted", "sex", "granted"),
    "exams": Unprepared(exams, "admitted", "school", "yes"),
    "tickets": Unprepared(tickets, "fined", "age group", "warned", ("--set", "favourable=warned")),
    "rents": Unprepared(rents, "invited", "origin", "invited", ("--set", "favourable=invited")),
    "survey": Unprepared(survey, "promoted", "sex", "yes"),
    "triage": Unprepared(triage, "seen_first", "sex", "first", ("--set", "favourable=first"), "select * from visits")}
"""The tables, by name."""
