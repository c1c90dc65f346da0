"""A seal shows that a file changed, to the machine that has the key."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from simulations.files.file_seal import has_changed, key_file, seal


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file to seal, with a key of its own."""
    monkeypatch.setenv("FEDFAIR_STATE_DIR", str(tmp_path / "state"))
    file = tmp_path / "people.csv"
    file.write_text("a,b\n1,2\n")
    return file


def test_a_changed_file_is_noticed_and_an_equal_one_is_not(table: Path) -> None:
    sealed = seal(table)
    assert not has_changed(table, sealed)
    text = table.read_text()
    table.write_text("a,b\n1,3\n")
    assert has_changed(table, sealed)
    table.write_text(text)
    assert not has_changed(table, sealed)


def test_the_key_is_made_once_and_only_its_owner_can_read_it(table: Path) -> None:
    seal(table)
    key = key_file().read_bytes()
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    seal(table)
    assert key_file().read_bytes() == key
    assert len(set(key)) > 8


def test_another_machine_says_that_it_cannot_check(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    sealed = seal(table)
    key_file().unlink()
    table.write_text("other")
    with caplog.at_level(logging.WARNING):
        assert not has_changed(table, sealed)
    assert "another machine's key sealed it: let all machines share a folder FEDFAIR_STATE_DIR" in caplog.text


def test_without_a_place_for_a_key_there_is_no_seal(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("FEDFAIR_STATE_DIR", str(table))  # a file
    with caplog.at_level(logging.WARNING):
        assert seal(table) == ""
    assert "set FEDFAIR_STATE_DIR to a folder that can be written" in caplog.text
    assert not has_changed(table, "")


def test_a_damaged_key_is_named(table: Path) -> None:
    sealed = seal(table)
    key_file().write_bytes(b"short")
    with pytest.raises(OSError, match=r"file-key is damaged: it holds 5 bytes, not 32; remove it"):
        has_changed(table, sealed)
