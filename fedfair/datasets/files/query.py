"""A table that a query gives: rows of a PostgreSQL server or a file of DuckDB, with the types that the query declares.

The rows go some at a time from the database into a Parquet file of the user's cache (`files.in_memory.written`), and
are read from there as every Parquet file is. Nothing of the address is kept with them; its password is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from fedfair.datasets.columns.cell import repeated, spelled
from fedfair.plugins.lazy import library

if TYPE_CHECKING:
    import pyarrow as pa

_ADDRESS = re.compile(r"(postgres(?:ql)?://)(?:([^:@/?#\s]*)(?::([^@/?#\s]*))?@)?([^@?\s]*)(?:\?([^@\s]*))?")
_SCHEME = re.compile(r"postgres(ql)?:/", re.IGNORECASE)
_ROWS = 2**16  # of a batch, the most that is in memory at a time
_TYPE_MODIFIER = b"POSTGRESQL:typmod"  # of a column of exact decimals: its digits
_TYPE = b"POSTGRESQL:type"
_DUCK = b"DUCK"
"""Stands at the start of a file of DuckDB, behind a checksum."""
DUCKDB = (".duckdb", ".ddb")
"""How the name of a file of DuckDB ends, most often."""


def is_address(source: str) -> bool:
    """Return whether a source of rows is the address of a server, and no file.

    Args:
        source: Address or path.
    """
    return bool(_SCHEME.match(source))


@dataclass(frozen=True, repr=False)
class Query:
    """The rows of a query, as a source of records.

    Attributes:
        source: Address of a PostgreSQL server, postgresql://user@host:5432/database, or path of a file of DuckDB.
        sql: The query; it can change nothing there.

    Raises:
        ValueError: If the address is none, or the query is empty.
    """

    source: str
    sql: str

    def __post_init__(self) -> None:
        if is_address(self.source) and not _ADDRESS.fullmatch(self.source):  # which is not quoted: it has the password
            raise ValueError("the address of the database is none such as postgresql://user@host:5432/name: in the "
                             "name of a user and in a password @ is written %40, / is %2F and : is %3A")
        if not self.sql.strip(" ;\n\t"):
            raise ValueError('the query is empty: give one such as --sql "select * from people"')

    def __repr__(self) -> str:
        return f"Query({self.shown!r}, {self.sql!r})"

    @property
    def shown(self) -> str:
        """The source without a password, and without options, of which one may be a password."""
        parts = _ADDRESS.fullmatch(self.source)
        if parts is None:
            return self.source
        scheme, user, _, place, _ = parts.groups()
        return f"{scheme}{'' if user is None else f'{user}@'}{place}"

    @property
    def name(self) -> str:
        """What the table is called: as the file, or as the database of a server."""
        return Path(self.shown).stem if not is_address(self.source) else self.shown.rpartition("/")[2] or "table"

    def write(self, path: Path) -> None:
        """Write the rows to a Parquet file, with the types that the query declares.

        Args:
            path: The file.

        Raises:
            FileNotFoundError: If there is no such file of DuckDB.
            ValueError: If the database or the query cannot be used, it gives no rows, or a column is of a type that
                holds no plain values.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        from fedfair.datasets.files.table_file import is_plain  # here, with pandas, which other data do without

        with self._refused(), self._batches() as reader:
            twice = repeated(map(spelled, reader.schema.names))
            if twice is not None:
                raise ValueError(f"the query names column {twice!r} more than once: give each column a name by as")
            _refuse_money(reader.schema)
            schema = pa.schema([(field.name, _declared(field)) for field in reader.schema])
            strange = next((field for field in schema if not is_plain(field.type)), None)
            if strange is not None:
                raise ValueError(f"column {strange.name!r} of the query has a type that holds no plain values "
                                 f"({_type_name(strange.type)}): turn it into a number or text in the query, for "
                                 f"example by cast({strange.name} as text)")
            rows = 0
            with pq.ParquetWriter(path, schema) as file:
                for batch in reader:
                    file.write_table(_cast(pa.Table.from_batches([batch]), schema))
                    rows += len(batch)
        if not rows:
            raise ValueError(f"the query gives no rows of {self.shown}")

    @contextmanager
    def _batches(self) -> Iterator[pa.RecordBatchReader]:
        """Yield the rows, some at a time, from a connection that can only read."""
        sql = self.sql.strip(" ;\n\t")
        if is_address(self.source):
            dbapi = library("adbc_driver_postgresql.dbapi", "postgresql")
            with dbapi.connect(self.source) as connection, connection.cursor() as cursor:
                cursor.execute("set transaction read only")
                cursor.execute(sql)
                yield cursor.fetch_record_batch()
            return
        if not Path(self.source).is_file():
            raise FileNotFoundError(f"there is no file {self.source}")
        duckdb = library("duckdb", "duckdb")
        with Path(self.source).open("rb") as file:
            if _DUCK not in file.read(16):
                raise ValueError(f"{self.source} is no file of DuckDB, which a query needs: leave --sql out to read it "
                                 "as a table")
        with duckdb.connect(self.source, read_only=True) as connection:
            rows = connection.sql(sql)
            if rows is None:
                raise ValueError('the query gives no rows: give one such as --sql "select * from people"')
            yield rows.to_arrow_reader(_ROWS)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """Raise `ValueError` in place of what a database says, unless that quotes a password."""
        try:
            yield
        except (ValueError, OSError):
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("duckdb", "_duckdb", "adbc_driver_manager"):
                raise
            said = " ".join(str(error).split())
            raise ValueError(f"{self.shown} says: {said}" if not any(secret in said for secret in self._secrets())
                             else f"{self.shown} cannot be used: check user, password and host") from None

    def _secrets(self) -> set[str]:
        """Return the texts that must not be shown."""
        parts = _ADDRESS.fullmatch(self.source)
        if parts is None:
            return set()
        options = [option.partition("=") for option in (parts[5] or "").split("&")]
        given = [parts[3] or "", *(value for name, _, value in options if "pass" in unquote(name).lower())]
        return {*given, *map(unquote, given)} - {""}


def _refuse_money(schema: pa.Schema) -> None:
    """Raise `ValueError` for a column of PostgreSQL's money, which comes as a whole number of cents or the like: 12.50
    would be 1250, and no model of it could decide rows of a file.
    """
    for field in schema:
        if (field.metadata or {}).get(_TYPE) == b"money":
            raise ValueError(f"column {field.name!r} of the query has the type money, which comes without its decimals:"
                             f" turn it into a number in the query, cast({field.name} as numeric)")


def _declared(field: pa.Field) -> pa.DataType:
    """Return the type of a column: exact decimals of PostgreSQL, which come as text, have the digits it declares."""
    import pyarrow as pa

    if getattr(field.type, "type_name", "") != "numeric":
        return field.type
    modifier = int((field.metadata or {}).get(_TYPE_MODIFIER, -1)) - 4
    digits, decimals = modifier >> 16, modifier & 0x7FF
    return pa.decimal128(digits, decimals) if 0 < digits <= 38 and decimals <= digits else pa.string()


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the types of a schema; a column of another type holds texts, which write exact decimals."""
    import pyarrow as pa

    columns = [column if column.type == field.type else _decimals(column).cast(field.type)
               for column, field in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _decimals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return exact decimals as text; NaN, which PostgreSQL counts among them, is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.string())
    return pc.if_else(pc.match_substring_regex(text, "^-?[0-9.]+$"), text, pa.scalar(None, pa.string()))


def _type_name(kind: pa.DataType) -> str:
    """Return the name of a type: of one of the database's own, as the database says."""
    return str(getattr(kind, "type_name", kind))
