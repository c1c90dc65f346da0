"""A fit, the check and predictions take the rows of a query: of DuckDB, and of a PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedfair.datasets.files import in_memory
from fedfair.datasets.files.query import Query
from simulations.cli import app
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.save import save
from tests.ports import free_ports

ROWS = 1200
SQL = "select * from people"
SECRET = "s3cr&t/@word"  # noqa: S105 - of a server that this test starts
WRITTEN = "s3cr%26t%2F%40word"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tables of a test in its own folder."""
    monkeypatch.setattr(in_memory.pooch, "os_cache", lambda project: tmp_path / project)
    return tmp_path / "fedfair" / "tables"


def people() -> pd.DataFrame:
    draws = np.random.default_rng(3)
    income, town = draws.normal(0, 1, ROWS).round(3), draws.choice(["x", "y"], ROWS)
    return pd.DataFrame({"income": income, "town": town, "sex": draws.choice(["f", "m"], ROWS),
                         "good": np.where(income + (town == "y") > .5, "yes", "no")})


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Return a file of DuckDB with the people."""
    frame = people()  # noqa: F841 - DuckDB reads it by its name
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute("create table people as select * from frame")
    return str(tmp_path / "people.duckdb")


def told(*words: str) -> str:
    """Return what a command prints; fail if it fails."""
    run = CliRunner().invoke(app, [*words])
    assert run.exit_code == 0, run.output
    return " ".join(run.output.split())


def texts(folder: Path) -> bytes:
    """Return all that the files of a folder hold."""
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def test_the_commands_take_a_query(database: str, tmp_path: Path, cache: Path) -> None:
    asked = [database, "--sql", SQL, "--label", "good", "--group", "sex"]
    checked = told("data", "check", *asked)
    assert f"Next: fedfair fit {database} --label good --group sex --sql '{SQL}' --out out/people" in checked
    told("fit", *asked, "--epsilon", "20", "--out", str(tmp_path / "out"))
    told("predict", str(tmp_path / "out"), database, "--sql", f"{SQL} limit 300", "--out", str(tmp_path / "new.csv"))
    found = pd.read_csv(tmp_path / "new.csv")
    assert len(found) == 300
    assert (found["predicted"] == found["good"]).mean() > .85
    in_memory._remove_all()
    assert not [*cache.rglob("*.parquet")]
    refused = CliRunner().invoke(app, ["fit", *asked[:1], *asked[3:]])
    assert refused.exit_code == 2
    assert "needs a query, which says what rows the table has" in " ".join(refused.output.split())


SEEDED: dict[str, Any] = {"randomness": "seeded", "seed": 3}


@pytest.mark.parametrize("settings", [SEEDED, {**SEEDED, "split": (.7, .1, .2)}], ids=["all train", "held out"])
def test_the_order_of_rows_changes_nothing(settings: dict[str, Any], database: str, tmp_path: Path) -> None:
    """A query has no order: a database may give the same rows in another one after every change."""
    for number, sql in enumerate((SQL, f"{SQL} order by hash(income), town, sex")):
        made = fit(Wanted(Query(database, sql), "good", "sex", 20.0, settings=settings))
        save(made, tmp_path / str(number))
    assert made.result.experiment.duplicates == ("together" if "split" in settings else "apart")
    for name in ("front.parquet", "figures.csv", "calibration.csv", "ledger.json", "metrics.parquet"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes(), name
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("0", "1"))
    for name, weight in one.items():  # sums of doubles differ in their last digits, which the noise's margin covers
        torch.testing.assert_close(weight, other[name], atol=1e-9, rtol=0)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Yield the address of a server of its own, which no other user of this machine can read."""
    folder, (port,) = Path(mkdtemp(prefix="fedfair-pg-")), free_ports(1)
    bins = shutil.which("initdb") or next(iter(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")))))
    owner: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    (folder / "password").write_text(SECRET)
    if owner:  # a server refuses to be root's
        for each in (folder, folder / "password"):
            shutil.chown(each, **owner)
    control = Path(os.path.realpath(bins)).parent / "pg_ctl"

    def call(*words: str) -> None:
        """Run a program of the server as the user that may."""
        subprocess.run([*words], check=True, cwd=folder, stdout=subprocess.DEVNULL, **owner)

    call(os.path.realpath(bins), "-D", str(folder / "data"), "-U", "ann", "-A", "scram-sha-256", "--no-sync",
         "--pwfile", str(folder / "password"), "-E", "UTF8", "--locale", "C")
    call(str(control), "-D", str(folder / "data"), "-w", "-l", str(folder / "log"), "-o",
         f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off", "start")
    try:
        yield f"postgresql://ann:{WRITTEN}@127.0.0.1:{port}/postgres"
    finally:
        call(str(control), "-D", str(folder / "data"), "-m", "immediate", "stop")
        shutil.rmtree(folder)


def execute(server: str, *statements: str) -> None:
    """Change the server's tables."""
    import adbc_driver_postgresql.dbapi as dbapi

    with dbapi.connect(server, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.slow
def test_a_server_s_types_are_kept_and_nothing_is_changed(server: str, tmp_path: Path) -> None:
    execute(server, "create type mood as enum ('low', 'high')",
            "create table typed as select i::int as whole, (i * 1.5)::numeric(9, 2) as exact, "
            "case when i = 1 then 'NaN' else i * 1.5 end::numeric(9, 2) as odd, i::numeric as any, i::float8 as pay, "
            "i % 2 = 0 as smoker, date '2020-01-01' + i as born, timestamptz '2020-01-01 12:00+01' as seen, "
            "time '10:00' as hour, 'x'::char(3) as short, 'low'::mood as mood from generate_series(0, 9) i")
    Query(server, "select * from typed order by whole").write(tmp_path / "rows.parquet")
    kinds = pd.read_parquet(tmp_path / "rows.parquet", dtype_backend="pyarrow").dtypes.astype(str)
    assert kinds["exact"] == kinds["odd"] == "decimal128(9, 2)[pyarrow]"
    assert kinds["born"] == "date32[day][pyarrow]"
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert rows["odd"].isna().tolist() == [False, True, *[False] * 8]
    assert rows["any"].tolist() == [str(number) for number in range(10)]
    assert rows["mood"].tolist() == ["low"] * 10
    with pytest.raises(ValueError, match=r"column 'host' of the query has .*inet.* by cast\(host as text\)"):
        Query(server, "select inet '127.0.0.1' as host").write(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"column 'pay' of the query has the type money.* cast\(pay as numeric\)"):
        Query(server, "select 12.5::money as pay").write(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="read-only transaction"):
        Query(server, "with gone as (delete from typed returning *) select whole from gone").write(
            tmp_path / "rows.parquet")
    wrong = Query(server.replace(WRITTEN, "an0ther"), "select 1")
    with pytest.raises(ValueError, match="password authentication failed") as refused:
        wrong.write(tmp_path / "rows.parquet")
    assert "an0ther" not in str(refused.value)


@pytest.mark.slow
def test_the_commands_take_a_server_and_keep_no_password(server: str, tmp_path: Path) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    rows = ", ".join(str(tuple(row)) for row in people().astype(object).values.tolist())
    execute(server, "create table people (income float8, town text, sex text, good text)",
            f"insert into people values {rows}")  # noqa: S608
    asked = [server, "--sql", SQL, "--label", "good", "--group", "sex"]
    said = [told("data", "check", *asked),
            told("fit", *asked, "--epsilon", "20", "--count-in", str(tmp_path / "spent.json"), "--out",
                 str(tmp_path / "out")),
            told("predict", str(tmp_path / "out"), server, "--sql", f"{SQL} limit 300")]
    assert f"Next: fedfair fit {server.replace(f':{WRITTEN}', '')} --label" in said[0]
    kept = texts(tmp_path / "out") + (tmp_path / "spent.json").read_bytes()
    for secret in (SECRET, WRITTEN, server):
        assert all(secret not in each for each in said)
        assert secret.encode() not in kept
    assert b"127.0.0.1" not in kept
    made = [fit(Wanted(data, "good", "sex", 20.0, settings=SEEDED)) for data in (Query(server, SQL),
                                                                               tmp_path / "people.csv")]
    assert made[0].kinds == made[1].kinds == ("income",)
