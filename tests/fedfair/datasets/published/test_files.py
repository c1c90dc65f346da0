"""Public files are read only if they are whole and right; otherwise one clear sentence."""

from __future__ import annotations

import gzip
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from fedfair.datasets import DATASETS
from fedfair.datasets.published import images
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.datasets.published.tables import ADULT, DUTCH


def packed(content: bytes, level: int = 9) -> bytes:
    """Compress without the time of day, which would make two archives of one content differ."""
    return gzip.compress(content, level, mtime=0)


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
        DUTCH.load()


def test_a_missing_file_says_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"adult\.data is not in FEDFAIR_DATA_DIR .*: put it there"):
        ADULT.load()


def test_a_download_that_fails_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDFAIR_DATA_DIR", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path)
    with pytest.raises(FileNotFoundError, match="could not download nothing"):
        fetch(PublicFile("nothing.csv", "http://127.0.0.1:9/nothing.csv", "0" * 64))


def archive_of(content: bytes, *archives: bytes) -> PublicFile:
    """Describe a gzip file that holds some content, and that is known in some forms."""
    return PublicFile("a.gz", "http://127.0.0.1:9/a.gz", sha256(content).hexdigest(), unpacked,
                      tuple(sha256(archive).hexdigest() for archive in archives))


def unpacked(archive: bytes) -> bytes:
    """Unpack, and note that this was done."""
    UNPACKED.append(archive)
    return gzip.decompress(archive)


UNPACKED: list[bytes] = []


def test_the_content_of_a_known_archive_is_hashed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrors compress differently."""
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    known = [packed(b"content", level) for level in (1, 9)]
    for archive in known:
        (tmp_path / "a.gz").write_bytes(archive)
        assert fetch(archive_of(b"content", *known)) == tmp_path / "a.gz"
    for wrong in (packed(b"contents"), packed(b"content")[:-9], b"content", b""):
        (tmp_path / "a.gz").write_bytes(wrong)
        with pytest.raises(ValueError, match=r"a\.gz is not the published file"):
            fetch(archive_of(b"content", wrong))


@pytest.mark.parametrize("archive", [
    packed(bytes(10**6)), packed(b"content", 5) + b"\0", packed(b"content")[:-9], b"content", b""],
    ids=["another content", "a byte more", "cut off", "not an archive", "empty"])
def test_an_unknown_archive_is_refused_before_it_is_unpacked(archive: bytes, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    UNPACKED.clear()
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    (tmp_path / "a.gz").write_bytes(archive)
    with pytest.raises(ValueError, match=r"a\.gz is not the published file"):
        fetch(archive_of(b"content", packed(b"content", 9)))
    monkeypatch.delenv("FEDFAIR_DATA_DIR")
    monkeypatch.setattr("pooch.retrieve", lambda *_, **__: str(tmp_path / "a.gz"))
    with pytest.raises(ValueError, match=r"the download of a\.gz from .* is truncated or changed"):
        fetch(archive_of(b"content", packed(b"content", 9)))
    assert UNPACKED == []
    assert not (tmp_path / "a.gz").exists()


def test_every_archive_among_the_data_sets_is_known_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[PublicFile] = []
    monkeypatch.setattr(images, "fetch", lambda file: files.append(file) or pytest.fail("enough"))
    for name in images._MNIST_SHA256:
        with pytest.raises(pytest.fail.Exception):
            images._idx(name)
    assert all(len(file.archives) == 2 and file.content is gzip.decompress for file in files)


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
