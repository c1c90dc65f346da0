"""Python files of the user's, found by name: methods and models that are not published.

What goes wrong in one of them is said in one sentence, with file and line instead of a traceback.
"""

from __future__ import annotations

import ast
import linecache
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from inspect import unwrap
from pathlib import Path
from threading import RLock
from traceback import FrameSummary, extract_tb
from types import CodeType, ModuleType
from typing import Any, ParamSpec

_HERE = Path(__file__).resolve().parents[2]
_LIBRARIES = tuple(str(folder) for folder in (
    *(_HERE / package for package in ("fedfair", "strategies", "simulations")),
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))))

P = ParamSpec("P")
_OF_CALLER = "of_caller"  # an attribute of errors

_FILES: dict[str, str] = {}
"""The files of the user's that were run, as their code names them, and their modules' names."""

METHOD_FOLDERS = ("", "strategies")
"""The folders, below the current one, in which files with methods, clip rules, queries and exchanges are looked up."""

_PREFIX = "user_file_"  # of the module of a user's file; not its name alone, which a module that it imports may have
_State = tuple[Path, int, int]  # of a file: where it is, when it was changed, and its size
_DEFINED: dict[_State, Mapping[str, Any]] = {}
_LOCK = RLock()  # held again where one file asks for another


class UserFileError(ValueError):
    """A mistake in a file of the user's; the message names the file and the line."""


def _note_user_file(path: Path, module: str) -> None:
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


def file_name(name: str) -> str:
    """Return the name of the file that defines "my-method": my_method.py."""
    return f"{name.replace('-', '_')}.py"


def user_file(name: str, folders: Iterable[str]) -> Path | None:
    """Return the file that defines `name`, from the first of the folders, below the current one, that has it.

    A name with anything but letters, digits, _ and - has no file: it cannot lead to another folder.
    """
    file = file_name(name)
    if not Path(file).stem.isidentifier() or Path(file).name != file:
        return None
    return next((path for path in (Path(folder, file) for folder in folders) if path.is_file()), None)


def defined_in(path: Path) -> Mapping[str, Any]:
    """Return the classes and functions that a file defines, by name, without those that it imports.

    The file is run to get them, once in a process unless it is changed: every caller gets the same classes. Raises
    `fedfair.plugins.user_files.UserFileError` with the line for what is wrong in it.
    """
    status = path.stat()
    state = (path.resolve(), status.st_mtime_ns, status.st_size)
    with _LOCK:
        if state not in _DEFINED:
            _DEFINED[state] = _run(path)
        return _DEFINED[state]


def name_in_file(definition: Any) -> str | None:
    """Return the name "file.Class" of a class or function that a user's file defines, or None for any other."""
    module = str(definition.__module__)
    return f"{module.removeprefix(_PREFIX)}.{definition.__name__}" if module.startswith(_PREFIX) else None


def find_in_file(name: str) -> Any:
    """Return what `name_in_file` names, from a file in `METHOD_FOLDERS`; None if there is no such file or name.

    The name may come from a server. So a file is read first, and run only if it defines the name at its top level.
    """
    stem, _, key = name.partition(".")
    path = user_file(stem, METHOD_FOLDERS)
    if path is None or key not in _top_level(path):
        return None
    return defined_in(path).get(key)


def _top_level(path: Path) -> set[str]:
    """Return the names of the classes and functions that a file defines at its top level, without running it."""
    _note_user_file(path, f"{_PREFIX}{path.stem}")
    with blaming_user_files():
        program = _as_python(path, ast.parse)
    return {node.name for node in program.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _as_python(path: Path, parse: Callable[[bytes, str], Any]) -> Any:
    """Parse or compile a file; raise `UserFileError` for one in which Python itself finds no line to blame."""
    try:
        return parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SyntaxError) and error.filename:
            raise
        said = "it is nested too deep" if isinstance(error, RecursionError | MemoryError) else error
        raise UserFileError(f"{path} cannot be read as Python ({said}): save it as text in UTF-8, or write it in "
                            "shorter expressions") from None


def _run(path: Path) -> Mapping[str, Any]:
    """Run a file, and return what it defines; raise `UserFileError` with the line for what is wrong in it."""
    _note_user_file(path, f"{_PREFIX}{path.stem}")
    with blaming_user_files():
        return _executed(path)


def _executed(path: Path) -> Mapping[str, Any]:
    """Compile and run a file, and return what it defines."""
    name = f"{_PREFIX}{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    # Not by importlib: its bytecode is taken as current for a file of the same size within the same second.
    program = _as_python(path, partial(compile, mode="exec"))
    sys.modules[name] = module  # where dataclasses look up their annotations
    try:
        exec(program, vars(module))  # noqa: S102 - the user's own file
    finally:
        del sys.modules[name]  # else pickle would expect other processes to find the module by this name
    return {key: value for key, value in vars(module).items() if getattr(value, "__module__", None) == name}
