"""What went wrong in a file of the user's, in one sentence with file and line instead of a traceback."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import unwrap
from pathlib import Path
from traceback import FrameSummary, extract_tb
from types import CodeType
from typing import Any, ParamSpec

_HERE = Path(__file__).resolve().parents[2]
_LIBRARIES = tuple(str(folder) for folder in (
    *(_HERE / package for package in ("fedfair", "strategies", "simulations")),
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))))

P = ParamSpec("P")
_OF_CALLER = "of_caller"  # an attribute of errors

_FILES: dict[str, str] = {}
"""The files of the user's that were run, as their code names them, and their modules' names."""


class UserFileError(ValueError):
    """A mistake in a file of the user's; the message names the file and the line."""


def note_user_file(path: Path, module: str) -> None:
    """Note that the code compiled under the name `path` is the user's, wherever it lies, and its module's name."""
    _FILES[str(path)] = module


def place_of(definition: Any) -> str:
    """Return "FILE, line N" of a function or class, or its name if it has no file."""
    definition = unwrap(definition)
    code = getattr(definition, "__code__", None)
    if isinstance(code, CodeType):
        return f"{_shown(code.co_filename)}, line {code.co_firstlineno}"
    module = sys.modules.get(definition.__module__)
    files = [file for file, name in _FILES.items() if name == definition.__module__]
    for file in filter(None, [*reversed(files), getattr(module, "__file__", None)]):
        linecache.checkcache(file)
        for number, line in enumerate(linecache.getlines(file), 1):
            if line.split("(")[0].split(":")[0].strip() == f"class {definition.__name__}":
                return f"{_shown(file)}, line {number}"
    return f"class {definition.__name__}"


def sentence_of(error: BaseException, quoted: bool = True) -> str | None:
    """Return where an error comes from in a file of the user's, and what it is; None if no such file is involved.

    Args:
        error: The error, as it was caught.
        quoted: Whether the error's own words are part of the sentence. On a node they may quote records.
    """
    if isinstance(error, SyntaxError) and error.filename and _is_of_user(error.filename):
        line = f" (`{error.text.strip()}`)" if error.text and error.text.strip() else ""
        return f"{_shown(error.filename)}, line {error.lineno}, is not valid Python: {error.msg}{line}; correct it"
    frame = next((frame for frame in reversed(extract_tb(error.__traceback__)) if _is_of_user(frame.filename)), None)
    if frame is None:
        return None
    kind, function = type(error).__name__, "" if frame.name == "<module>" else f", in {frame.name}"
    if not quoted:
        said = f"raises {kind}"
    elif isinstance(error, ImportError):
        said = f"cannot import what it needs: {error}: install it, or correct the name"
    elif isinstance(error, SystemExit):
        said = "ends the whole program: let it raise an error, or return"
    elif type(error) is ValueError:
        said = str(error)
    else:
        said = f"{kind}: {error}" if str(error) else kind
    where = f"{_shown(frame.filename)}, line {frame.lineno}{function}"
    return f"{where}{', ' if not quoted or isinstance(error, ImportError) else ': '}{said}{_source(frame)}"


@contextmanager
def blaming_user_files() -> Iterator[None]:
    """Turn an error that comes from a file of the user's into a `UserFileError`; raise others as they are."""
    try:
        yield
    except UserFileError:
        raise
    except (Exception, SystemExit) as error:  # a file that ends the program would end it as if all were well
        sentence = None if getattr(error, _OF_CALLER, False) else sentence_of(error)
        if sentence is None:
            raise
        raise UserFileError(sentence) from error


def of_caller(function: Callable[P, None]) -> Callable[P, None]:
    """Return a function of whoever calls a run, whose errors come back as they are.

    Args:
        function: Called along the run, for example with its progress.
    """
    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> None:
        """Call the function, and mark an error that it raises."""
        try:
            function(*args, **kwargs)
        except (Exception, SystemExit) as error:
            setattr(error, _OF_CALLER, True)
            raise

    return called


def _is_of_user(file: str) -> bool:
    """Say whether a file is neither a library's nor the program's own."""
    return file in _FILES or not (file.startswith(("<", *_LIBRARIES, sys.base_prefix)) or "site-packages" in file)


def _source(frame: FrameSummary) -> str:
    """Return a line of a program, in brackets."""
    linecache.checkcache(frame.filename)
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f" (`{line}`)" if line else ""


def _shown(file: str) -> str:
    """Return a file's path, relative to the current folder if it lies there."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
