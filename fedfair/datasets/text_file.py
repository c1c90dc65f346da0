"""The text of a file: unpacked if it is compressed, and decoded."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
from pathlib import Path

from charset_normalizer import from_bytes

_PACKED = ((b"\x1f\x8b", gzip.decompress), (b"BZh", bz2.decompress), (b"\xfd7zXZ\x00", lzma.decompress))
_OTHER_SCRIPTS = ("Cyrillic", "Greek", "Hebrew", "Arabic", "Thai", "CJK", "Hiragana", "Katakana", "Hangul")
_MARKED = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
           (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def read_text(path: Path, encoding: str | None = None) -> str:
    """Return the text of a file, with one kind of line end; gzip, bzip2, xz and zip files are unpacked.

    Args:
        path: File.
        encoding: Name of the encoding; by default that of its byte order mark, or else UTF-8.

    Returns:
        The text, without a byte order mark.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be unpacked, or is no text in that encoding.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is a folder: name a file in it" if path.is_dir() else
                                f"there is no file {path}")
    content = _unpacked(path)
    text = _decoded(content, path, encoding or next((name for mark, name in _MARKED if content.startswith(mark)), None))
    if "\0" in text:
        raise ValueError(f"{path} is not text: save it as CSV in UTF-8, or give the setting encoding, for example "
                         'encoding = "utf-16-le"')
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _unpacked(path: Path) -> bytes:
    """Return the content of a file, unpacked if it is compressed, whatever its name is."""
    content = path.read_bytes()
    try:
        for mark, unpack in _PACKED:
            if content.startswith(mark):
                return unpack(content)
        return _only_member(content, path) if content.startswith(b"PK\x03\x04") else content
    except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, RuntimeError) as error:
        raise ValueError(f"{path} cannot be unpacked ({error}): check that it was copied whole, or unpack it yourself"
                         ) from error


def _only_member(content: bytes, path: Path) -> bytes:
    """Return the only file of a zip archive; raise `ValueError` if there are several."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
        if len(names) != 1:
            raise ValueError(f"{path} holds {len(names)} files ({', '.join(names[:5])}): unpack the one that you mean")
        return archive.read(names[0])


def _decoded(content: bytes, path: Path, encoding: str | None) -> str:
    """Decode bytes, by default as UTF-8; raise `ValueError` with the encoding that they seem to have."""
    try:
        return content.decode(encoding or "utf-8")
    except LookupError as error:
        raise ValueError(f"encoding is {encoding!r}, which Python does not know: give a name such as utf-8, cp1252 or "
                         "utf-16") from error
    except UnicodeError as error:
        raise ValueError(f"{path} is not text in {'UTF-8' if encoding is None else encoding}{_guess(content)}"
                         ) from error


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
