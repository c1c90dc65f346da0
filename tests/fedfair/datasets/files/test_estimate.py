"""What reading takes is said before a table is read, from what its files state of themselves."""

from __future__ import annotations

import bz2
import gzip
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fedfair.datasets.files.chunks import chunks_of, read_files, read_rows
from fedfair.datasets.files.estimate import CHUNKS, WHOLE, Extent, Rate, announce, extent_of, memory_of, seconds_of
from fedfair.datasets.files.text_file import text_size

TABLE = pd.DataFrame({"years": range(1000), "town": ["Bonn", "Kiel"] * 500, "hired": ["yes", "no"] * 500})
TEXT = TABLE.to_csv(index=False).encode()
PLENTY = 1e18
LARGE = 4 * 10**9


@pytest.fixture(autouse=True)
def all_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what is told as well as what is warned of."""
    caplog.set_level(logging.INFO, "fedfair.datasets")


def sparse(path: Path, start: bytes) -> Path:
    """Write a file that takes no room, and says that it is large."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(LARGE)
    return path


def zipped(path: Path) -> None:
    """Write a zip file of one table."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("people.csv", TEXT)


@pytest.mark.parametrize(("name", "write", "said"), [
    ("people.csv", lambda path: path.write_bytes(TEXT), "0 MB of text in 3 columns"),
    ("people.csv.gz", lambda path: path.write_bytes(gzip.compress(TEXT)), "0 MB of text in 3 columns"),
    ("people.parquet", TABLE.to_parquet, "1,000 rows of 3 columns"),
    ("people.feather", TABLE.to_feather, "0 MB of Arrow"),
    ("people.json", lambda path: TABLE.to_json(path, orient="records"), "0 MB of JSON"),
    ("people.xlsx", lambda path: TABLE.to_excel(path, index=False), "0 MB of a workbook, unpacked")])
def test_each_format_says_how_large_it_is(name: str, write: Callable[[Path], object], said: str, tmp_path: Path,
                                          caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / name
    write(file)
    announce(file, [file], WHOLE, least=0, free=PLENTY)
    assert caplog.messages == [f"{file} is read: {said}; that takes about 10 seconds"]
    assert caplog.records[0].levelno == logging.INFO


def test_nothing_is_said_of_a_table_that_is_read_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(TEXT)
    announce(file, [file], WHOLE, free=PLENTY)
    read_files(file)
    assert caplog.messages == []


def test_little_memory_is_warned_of_however_fast_the_table_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                    ) -> None:
    file = tmp_path / "people.parquet"
    TABLE.to_parquet(file)
    rates = {"parquet": Rate(of_cell=1e6)}
    announce(file, [file], rates, free=3e9)
    assert caplog.messages == []
    announce(file, [file], rates, free=2e9)
    assert caplog.records[0].levelno == logging.WARNING
    assert "about 3.0 GB of memory, of which 2.0 GB are free" in caplog.text


def test_what_a_packed_file_holds_is_told_without_unpacking_it(tmp_path: Path) -> None:
    packed, put_together, archive = tmp_path / "a.gz", tmp_path / "b.gz", tmp_path / "c.zip"
    packed.write_bytes(gzip.compress(TEXT))
    put_together.write_bytes(gzip.compress(TEXT) + gzip.compress(b""))
    zipped(archive)
    assert (text_size(packed), text_size(archive)) == (len(TEXT), len(TEXT))
    assert text_size(put_together) == 4 * put_together.stat().st_size
    other = tmp_path / "d.bz2"
    other.write_bytes(bz2.compress(TEXT))
    assert text_size(other) == 4 * other.stat().st_size


def test_a_gzip_file_that_counts_anew_after_4_gib_is_taken_for_as_large_as_tables_are(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    with file.open("wb") as stream:
        stream.write(gzip.compress(b"years,hired\n"))
        stream.truncate(3 * 2**30)
        stream.seek(3 * 2**30 - 4)
        stream.write((5).to_bytes(4, "little"))
    assert text_size(file) == 5 + 3 * 2**32


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_first_line_alone_tells_the_columns_however_lines_end(end: bytes, tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(end.join([b"years;town;hired", b"1,5;Bonn;yes,no", b"2,5;Kiel;no"]))
    assert extent_of([file]).columns == 3


def test_files_of_one_table_are_added_up(tmp_path: Path) -> None:
    files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for file in files:
        TABLE.to_parquet(file)
    assert extent_of(files) == Extent(sum(file.stat().st_size for file in files), 3, 2000,
                                      "2,000 rows of 3 columns, 2 files")


def test_time_and_memory_follow_from_sizes_rows_and_columns() -> None:
    extent, rate = Extent(3_000_000, 10, 200_000, ""), Rate(2.0, 5.0, 0.5, 7.0, 11.0)
    assert seconds_of(extent, rate) == pytest.approx(2.0 * 3 + 5.0 * 2 + 0.5 * 10)
    assert memory_of(extent, rate) == pytest.approx(7.0 * 3_000_000 + 11.0 * 2_000_000)


@pytest.mark.parametrize("read", [read_files, read_rows, chunks_of])
def test_every_reader_says_it_before_it_reads(read: Callable[[Path], object], tmp_path: Path,
                                              caplog: pytest.LogCaptureFixture) -> None:
    """The file is one of text by its first line, and broken from there on: it is said all the same."""
    file = sparse(tmp_path / "people.csv", b"years,\xff\xfe,hired\n")
    with pytest.raises(ValueError, match=r"is not text"):
        read(file)
    assert "4.0 GB of text in 3 columns" in caplog.text


def test_a_file_that_knows_its_types_is_announced_by_all_readers(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                 ) -> None:
    file = sparse(tmp_path / "people.xpt", b"no such file")
    for number, read in enumerate((read_files, read_rows, chunks_of), 1):
        with pytest.raises(ValueError, match=r"cannot be read"):
            read(file)
        assert len(caplog.messages) == number
        assert "4.0 GB of a program for statistics" in caplog.messages[-1]


@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz", "people.parquet", "people.xlsx", "people.feather"])
def test_a_broken_file_is_left_to_its_reader(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / name
    announce(file, [file], CHUNKS, least=0, free=PLENTY)
    file.write_bytes(b"\x1f\x8b\x00" if name.endswith("gz") else b"")
    announce(file, [file], CHUNKS, least=0, free=PLENTY)
    assert all("0 MB" in message for message in caplog.messages)


def test_nothing_is_said_of_what_a_table_holds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As many bytes of other records make the same sentence."""
    file = tmp_path / "people.csv"
    for town in (b"Bonn", b"Kiel"):
        file.write_bytes(b"years,town\n" + b"41," + town + b"\n")
        announce(file, [file], WHOLE, least=0, free=PLENTY)
    assert caplog.messages[0] == caplog.messages[1]
