"""The text of a file: unpacked if it is compressed, and decoded, a portion at a time."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO, cast

from charset_normalizer import from_bytes

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_PACKED: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (_GZIP, gzip.GzipFile), (b"BZh", bz2.BZ2File), (b"\xfd7zXZ\x00", lzma.LZMAFile))
_OTHER_SCRIPTS = ("Cyrillic", "Greek", "Hebrew", "Arabic", "Thai", "CJK", "Hiragana", "Katakana", "Hangul")
_MARKED = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
           (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_PORTION = 2**20  # characters
_UNPACKED = 4  # times as large as packed is a table of text, about
_LINE = 2**24  # bytes of a first line that are looked at
_LAPS = 2**32  # bytes, after which a gzip file counts those of its content anew


class Text(NamedTuple):
    """The text of a file that has been read once, so that it can be; it is read again as often as it is wanted.

    Args:
        path: File.
        encoding: Name of its encoding.
    """

    path: Path
    encoding: str

    @contextmanager
    def open(self) -> Iterator[TextIO]:
        """Yield the text as a stream, without a byte order mark and with one kind of line end."""
        with (_unpacking(self.path), _unpacked(self.path) as content,
              io.TextIOWrapper(content, self.encoding) as text):
            if text.read(1) != "\ufeff":
                text.seek(0)
            yield text

    def portions(self) -> Iterator[str]:
        """Yield the text from its start to its end."""
        with self.open() as text:
            while portion := text.read(_PORTION):
                yield portion

    def lines(self, first: int = 0) -> Iterator[str]:
        """Yield the lines from that number on, with their ends.

        Args:
            first: Number of lines to leave out.
        """
        with self.open() as text:
            for number, line in enumerate(text):
                if number >= first:
                    yield line


class Lines(NamedTuple):
    """The lines of a file, each of which is decoded by itself.

    What ends a line is what ends the first one. A sign that ends lines in other files is part of a line here, and
    bytes that are no text are the sign U+FFFD, so that no line decides where another one begins or how it is read. In
    an encoding of words of two or four bytes a line begins behind the end of the one before, wherever that stands: a
    byte too many makes one line unreadable, not all below it. So U+0A05 U+4E00 ends a line in UTF-16 with the low byte
    first, 05 0A 00 4E: these four bytes are also a line of an odd number of bytes, its end, and the next line's first
    byte, and what is right for one reading lets a record swallow the next in the other.

    Args:
        path: File.
        encoding: Name of its encoding.
        end: Sign that ends its lines, a line feed or, in old files, a carriage return.
    """

    path: Path
    encoding: str
    end: str

    def lines(self, first: int = 0) -> Iterator[str]:
        """Yield the lines from that number on, without their ends.

        Args:
            first: Number of lines to leave out.
        """
        with _unpacking(self.path), _unpacked(self.path) as content:
            for number, line in enumerate(self._of_bytes(content)):
                if number >= first:
                    text = line.decode(self.encoding, "replace")
                    yield text.removesuffix(self.end).rstrip("\r").removeprefix("\ufeff")

    def _of_bytes(self, content: IO[bytes]) -> Iterator[bytes]:
        """Yield the bytes of each line."""
        if not _ends_by_a_byte(self.encoding):
            yield from _split(content, self.end.encode(self.encoding))
            return
        with io.TextIOWrapper(content, "latin-1", newline=self.end) as text:  # which splits faster
            for line in text:
                yield line.encode("latin-1")


def _split(content: IO[bytes], end: bytes) -> Iterator[bytes]:
    """Yield what stands between the ends of lines, at whatever places these are."""
    rest = b""
    while portion := content.read(_PORTION):
        *lines, rest = (rest + portion).split(end)
        yield from lines
    if rest:
        yield rest


def _ends_by_a_byte(encoding: str) -> bool:
    """Return whether a line feed is one byte in an encoding, which no other sign has, as in all but those of words."""
    return "\n\n".encode(encoding).endswith(b"\n\n")


def text_of(path: Path, encoding: str | None = None) -> Text:
    """Return the text of a file; gzip, bzip2, xz and zip files are unpacked.

    Args:
        path: File.
        encoding: Name of the encoding; by default that of its byte order mark, or else UTF-8.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be unpacked, or is no text in that encoding.
    """
    with _readable(path, encoding):
        text = Text(path, encoding or _marked(path) or "utf-8")
        has_zeros = any("\0" in portion for portion in text.portions())
    _refuse_zeros(has_zeros, path)
    return text


def text_by_line(path: Path, encoding: str | None = None) -> Lines:
    """Return the lines of a file of which no line but the first can be the cause of an error; see `text_of`.

    Args:
        path: File.
        encoding: Name of the encoding; by default that of its byte order mark, or else UTF-8.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be unpacked, or its first line is no text in that encoding.
    """
    with _readable(path, encoding):
        text = Lines(path, _of_one_order(encoding or _marked(path) or "utf-8", path), "\n")
        if "\r" in next(text.lines(), ""):
            text = text._replace(end="\r")
        first = next(text.lines(), "")
        if "\ufffd" in first:
            raise UnicodeDecodeError(text.encoding, first.encode(), 0, 1, "the first line")
    _refuse_zeros("\0" in first, path)
    return text


@contextmanager
def _readable(path: Path, encoding: str | None) -> Iterator[None]:
    """Raise `FileNotFoundError` or `ValueError`, with one sentence, in place of what goes wrong with a file of text."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is a folder: name a file in it" if path.is_dir() else
                                f"there is no file {path}")
    try:
        with _unpacking(path):
            yield
    except LookupError as error:
        raise ValueError(f"encoding is {encoding!r}, which Python does not know: give a name such as utf-8, cp1252 or "
                         "utf-16") from error
    except UnicodeError as error:
        content = error.object if isinstance(error, UnicodeDecodeError) else b""
        raise ValueError(f"{path} is not text in {'UTF-8' if encoding is None else encoding}{_guess(content)}"
                         ) from error


@contextmanager
def _unpacking(path: Path) -> Iterator[None]:
    """Raise `ValueError`, with one sentence, for a file that was cut, or is locked by a password."""
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        if getattr(error, "errno", None) is not None:  # of the system, not of the file's content
            raise
        raise ValueError(f"{path} cannot be unpacked ({error}): check that it was copied whole, or unpack it yourself"
                         ) from error


def _refuse_zeros(has_zeros: bool, path: Path) -> None:
    """Raise `ValueError` for what is no text in the encoding that it was read in."""
    if has_zeros:
        raise ValueError(f"{path} is not text: save it as CSV in UTF-8, or give the setting encoding, for example "
                         'encoding = "utf-16-le"')


def first_line(path: Path) -> bytes:
    """Return the first line of a file of text, unpacked and without its end; of a very long one only the start.

    Args:
        path: File.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it cannot be unpacked.
    """
    with _unpacking(path), _unpacked(path) as content:
        return content.readline(_LINE).split(b"\r")[0]


def text_size(path: Path) -> int:
    """Return how many bytes the text of a file has, about where it is packed, without unpacking it.

    A zip file says so, and the end of a gzip file all but how often 4 GiB are to be added; one that was put together of
    several says that of its last part. Others say nothing.

    Args:
        path: File.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is a zip file of several files.
        zipfile.BadZipFile: If it is a broken one.
    """
    stored = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(6)
        if not start.startswith(_GZIP):
            packed = any(start.startswith(mark) for mark, _ in _PACKED)
            return _UNPACKED * stored if packed else _only_member(path).file_size if start.startswith(_ZIP) else stored
        file.seek(-4, io.SEEK_END)
        last = int.from_bytes(file.read(), "little")
    found = last + _LAPS * max(0, round((_UNPACKED * stored - last) / _LAPS))
    return found if found >= stored else _UNPACKED * stored


def _marked(path: Path) -> str | None:
    """Return the encoding that a byte order mark names, if there is one."""
    with _unpacked(path) as content:
        start = content.read(4)
    return next((name for mark, name in _MARKED if start.startswith(mark)), None)


def _of_one_order(encoding: str, path: Path) -> str:
    """Return an encoding of words by their order of bytes, which the start of the file names, or else the usual one."""
    if codecs.lookup(encoding).name not in ("utf-16", "utf-32"):
        return encoding
    with _unpacked(path) as content:
        is_big = content.read(4).startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
    return f"{encoding}-{'be' if is_big else 'le'}"


def _unpacked(path: Path) -> IO[bytes]:
    """Return the content of a file as a stream, unpacked if it is compressed, whatever its name is."""
    with path.open("rb") as file:
        start = file.read(6)
    for mark, unpack in _PACKED:
        if start.startswith(mark):
            return cast(IO[bytes], unpack(path))
    return zipfile.ZipFile(path).open(_only_member(path)) if start.startswith(_ZIP) else path.open("rb")


def _only_member(path: Path) -> zipfile.ZipInfo:
    """Return what a zip archive says of its only file; raise `ValueError` if there are several."""
    with zipfile.ZipFile(path) as archive:
        files = [file for file in archive.infolist() if not file.is_dir() and not file.filename.startswith("__MACOSX/")]
    if len(files) != 1:
        names = ", ".join(file.filename for file in files[:5])
        raise ValueError(f"{path} holds {len(files)} files ({names}): unpack the one that you mean")
    return files[0]


def _guess(content: bytes) -> str:
    """Return which setting might mend an encoding, and how the first word that tells encodings apart reads then."""
    best = from_bytes(content).best()
    if best is None or best.encoding in ("utf_8", "ascii"):
        return ': save it as CSV in UTF-8, or give the setting encoding, for example encoding = "cp1252"'
    latin = not any(script in alphabet for alphabet in best.alphabets for script in _OTHER_SCRIPTS)
    name = "cp1252" if latin else best.encoding  # guesses among the Latin encodings are no better than the usual one
    text = content.decode(name, "replace")
    word = next((word for word in text.replace(",", " ").replace(";", " ").split() if not word.isascii()), "")
    return (f', but may be in {name}, where it has "{word}": then set encoding = "{name}", or save '
            "it as CSV in UTF-8; where that is no word, try another encoding")
