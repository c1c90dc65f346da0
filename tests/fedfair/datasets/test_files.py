"""Public files are read only if they are whole and right; otherwise one clear sentence."""

from __future__ import annotations

import gzip
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from fedfair.datasets import DATASETS, adult, dutch
from fedfair.datasets.files import PublicFile, fetch


@pytest.mark.parametrize("name", ["adult", "dutch"])
def test_a_truncated_file_is_refused_in_one_sentence(name: str, data_dir: Path, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"adult": "adult.data", "dutch": "dutch.csv"}[name]
    for file in ("adult.data", "adult.test", "dutch.csv"):
        shutil.copy(data_dir / file, tmp_path / file)
    (tmp_path / first).chmod(0o644)
    with (tmp_path / first).open("r+b") as file:
        file.truncate(100_000)
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=rf"{first} is not the published file .* it is truncated or changed") as error:
        DATASETS[name].load(None)
    assert "\n" not in str(error.value)


def test_a_changed_file_is_refused(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (data_dir / "dutch.csv").read_text()
    (tmp_path / "dutch.csv").write_text(text.replace("male", "mele", 1))
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=r"dutch\.csv is not the published file"):
        dutch.load()


def test_a_missing_file_says_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"adult\.data is not in FEDFAIR_DATA_DIR .*: put it there"):
        adult.load()


def test_a_download_that_fails_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDFAIR_DATA_DIR", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path)
    with pytest.raises(FileNotFoundError, match="could not download nothing"):
        fetch(PublicFile("nothing.csv", "http://127.0.0.1:9/nothing.csv", "0" * 64))


def test_what_is_hashed_may_be_the_content_of_a_gzip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrors compress differently."""
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    file = PublicFile("a.gz", "http://127.0.0.1:9/a.gz", sha256(b"content").hexdigest(), content=gzip.decompress)
    for level in (1, 9):
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"content", level))
        assert fetch(file) == tmp_path / "a.gz"
    for wrong in (gzip.compress(b"contents"), gzip.compress(b"content")[:-9], b"content", b""):
        (tmp_path / "a.gz").write_bytes(wrong)
        with pytest.raises(ValueError, match=r"a\.gz is not the published file"):
            fetch(file)


def test_a_wrong_download_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def retrieve(url: str, known_hash: None, fname: str, path: Path, progressbar: bool) -> str:
        (tmp_path / fname).write_bytes(b"right" if url.endswith("right") else b"wrong")
        return str(tmp_path / fname)

    monkeypatch.delenv("FEDFAIR_DATA_DIR", raising=False)
    monkeypatch.setattr("pooch.retrieve", retrieve)
    digest = sha256(b"right").hexdigest()
    assert fetch(PublicFile("a", "http://127.0.0.1:9/right", digest)).read_bytes() == b"right"
    with pytest.raises(ValueError, match=r"the download of b from .* is truncated or changed: try again"):
        fetch(PublicFile("b", "http://127.0.0.1:9/other", digest))
    assert not (tmp_path / "b").exists()
