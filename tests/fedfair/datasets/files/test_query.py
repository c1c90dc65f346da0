"""Rows of a query: types as the database declares them, in any order, read only, and never a password."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedfair.datasets.files import in_memory, query
from fedfair.datasets.files.chunks import chunks_of
from fedfair.datasets.files.query import Query
from fedfair.datasets.split import Together, dealt
from fedfair.datasets.table import from_csv
from fedfair.protocol.task import Task

TYPED = """create type mood as enum ('low', 'high');
create table people as select i::int as whole, i::hugeint as huge, (i * 1.5)::decimal(9, 2) as exact,
    i * .5::double as pay, 'town ' || (i % 3) as town, i % 2 = 0 as smoker, date '2020-01-01' + i::int as born,
    timestamp '2020-01-01 12:00' as seen, time '10:00' as hour, (case when i % 2 = 0 then 'low' end)::mood as mood,
    case when i % 3 = 0 then 'yes' else 'no' end as good, case when i % 5 < 2 then 'f' else 'm' end as sex
    from range(60) r(i)"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tables of a test in its own folder."""
    monkeypatch.setattr(in_memory.pooch, "os_cache", lambda project: tmp_path / project)
    return tmp_path


@pytest.fixture
def people(tmp_path: Path) -> str:
    """Return a file of DuckDB with a table of many types."""
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute(TYPED)
    return str(tmp_path / "people.duckdb")


def test_types_are_those_of_the_database(people: str, tmp_path: Path) -> None:
    Query(people, "select * from people order by whole;").write(tmp_path / "rows.parquet")
    chunks = chunks_of(tmp_path / "rows.parquet")
    assert chunks.declared == (("born", "date"), ("seen", "date"))
    frame = next(chunks.frames())
    assert len(frame) == 60
    assert [str(frame[name].dtype) for name in ("whole", "pay", "smoker")] == ["Int32", "float64", "boolean"]
    assert frame["exact"].tolist()[:3] == [0, 1.5, 3]
    assert frame["mood"].isna().sum() == 30
    assert pq.read_schema(tmp_path / "rows.parquet").names[:3] == ["whole", "huge", "exact"]


def test_a_query_changes_nothing(people: str, tmp_path: Path) -> None:
    for sql in ("delete from people", "create table other as select 1 as x"):
        with pytest.raises(ValueError, match="read-only"):
            Query(people, sql).write(tmp_path / "rows.parquet")
    assert len(duckdb.connect(people).sql("select * from people")) == 60


WRONG: dict[str, tuple[str, type[Exception], str]] = {
    "empty": (" ; ", ValueError, "the query is empty"),
    "no rows": ("select * from people where whole > 99", ValueError, "gives no rows of .*people.duckdb"),
    "unknown": ("select nope from people", ValueError, "people.duckdb says: Binder Error: .*nope"),
    "twice": ("select whole as a, town as a from people", ValueError, "names column 'a' more than once"),
    "twice but for a space": ('select whole as a, town as " a" from people', ValueError, "column 'a' more than once"),
    "a list": ("select [1, 2] as a", ValueError, r"column 'a' of the query has a type .* by cast\(a as text\)"),
    "an interval": ("select interval 3 day as a", ValueError, "a type that holds no plain values"),
    "no query": ("load nothing_such", ValueError, "says: ")}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str, people: str, tmp_path: Path) -> None:
    sql, kind, said = WRONG[name]
    with pytest.raises(kind, match=said):
        Query(people, sql).write(tmp_path / "rows.parquet")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing.duckdb"):
        Query(str(tmp_path / "nothing.duckdb"), "select 1").write(tmp_path / "rows.parquet")
    (tmp_path / "text.duckdb").write_text("a,b\n1,2\n" * 99)
    with pytest.raises(ValueError, match=r"text.duckdb is no file of DuckDB, which a query needs: leave --sql out"):
        Query(str(tmp_path / "text.duckdb"), "select 1").write(tmp_path / "rows.parquet")


@pytest.mark.parametrize(("source", "extra"), [("x.duckdb", "duckdb"), ("postgresql://a@b/c", "postgresql")])
def test_without_its_library_a_sentence_says_what_to_install(source: str, extra: str, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "x.duckdb").touch()
    monkeypatch.chdir(tmp_path)
    for module in ("duckdb", "adbc_driver_postgresql", "adbc_driver_postgresql.dbapi"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"pip install 'fedfair\[{extra}\]'"):
        Query(source, "select 1").write(tmp_path / "rows.parquet")


SECRET = st.text(st.sampled_from("abcXYZ019 @:/?#%&=+'\"\\"), min_size=6, max_size=12)
PLACES: list[Callable[[str], str]] = [
    lambda secret: f"postgresql://ann:{secret}@localhost:1/people",
    lambda secret: f"postgres://:{secret}@localhost:1/people?sslmode=disable",
    lambda secret: f"postgresql://ann@localhost:1/people?password={secret}",
    lambda secret: f"postgresql://ann@localhost:1/people?connect_timeout=1&sslpassword={secret}&host={secret}"]


@example("a%zzbc1", PLACES[0])  # which the server's library quotes
@given(SECRET, st.sampled_from(PLACES))
def test_no_password_is_shown(secret: str, place: Callable[[str], str]) -> None:
    """Neither in an error, whoever says it, nor in what is shown of a query, however badly it is written."""
    try:
        query = Query(place(secret), "select 1")
        shown = [repr(query), query.shown, query.name]
        query.write(Path("unused.parquet"))
    except ValueError as error:
        shown = [*locals().get("shown", ()), str(error)]
    assert all(secret not in text for text in shown)
    assert all("people" in text or "address" in text for text in shown)


def test_rows_are_dealt_by_what_they_hold(people: str, tmp_path: Path) -> None:
    """Another order, or rows fewer before them, move no row to another part."""
    wanted = "select whole, town, sex, good from people"
    parts = []
    for number, order in enumerate(("order by whole", "order by whole desc", "where whole > 9")):
        path = tmp_path / f"{number}.parquet"
        Query(people, f"{wanted} {order}").write(path)
        data = from_csv(path, "good", "sex")
        places = dealt(data, (.5, .2), 0, Together(participants=False, duplicates=True))
        parts.append({int(data.x[row, 0]): part for part, rows in enumerate(places) for row in rows.tolist()})
    assert parts[0] == parts[1]
    assert {whole: part for whole, part in parts[0].items() if whole > 9} == parts[2]
    assert sorted({*parts[0].values()}) == [0, 1, 2]
    task = Task(csv=Query(people, wanted), label="good", group="sex")
    assert (task.duplicates, task.dataset, Path(str(task.csv)).name) == ("together", "table", "table.parquet")
    assert Task(csv=Query(people, wanted), label="good", group="sex", participant="town").duplicates == "apart"


def test_a_table_in_memory_is_dealt_as_before() -> None:
    frame = pd.DataFrame({"x": range(60), "sex": ["f", "m"] * 30, "good": ["no", "no", "yes"] * 20})
    assert Task(csv=frame, label="good", group="sex").duplicates == "apart"


def test_money_which_comes_in_cents_is_refused() -> None:
    """As a driver of PostgreSQL declares it."""
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"POSTGRESQL:type": "int8"}),
                        pa.field("pay", pa.int64(), metadata={"POSTGRESQL:type": "money"})])
    with pytest.raises(ValueError, match=r"column 'pay' of the query has the type money"):
        query._refuse_money(schema)
    query._refuse_money(schema.remove(1))
