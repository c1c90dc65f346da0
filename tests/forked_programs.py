"""Programs that begin within a tenth of a second: forked from a process that has loaded their libraries.

A program of Flower's, or `fedfair`, needs some seconds of processor time to import PyTorch, pandas and gRPC, and a
SuperNode starts one for each message. Here one process imports these libraries once, and forks for each program that
is asked for. A folder of small programs of the same names, first on the `PATH`, asks it. Flower and fedfair themselves
are imported by each program, from where its own environment says, so that none knows anything of another.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

NAMES = ("fedfair", "flwr", "flower-superexec", "flower-superlink", "flower-supernode", "flwr-clientapp",
         "flwr-serverapp", "python")
LIBRARIES = (
    "alembic.command", "charset_normalizer", "cryptography.x509", "dill", "fastapi", "filelock", "google.protobuf",
    "grpc_health.v1.health", "httpx", "jinja2", "opt_einsum", "pandas", "pathspec", "platformdirs", "prompt_toolkit",
    "psutil", "pyarrow.parquet", "pydantic", "requests", "rich.progress", "safetensors.torch", "scipy.optimize",
    "scipy.special", "scipy.stats", "sklearn.metrics", "sqlalchemy.orm", "tomli_w", "torch.func", "typer", "uvicorn",
    "yaml")
"""What the programs import, but for Flower, Ray and fedfair, which read their environment as they are imported."""

SHIM = """#!{python}
import marshal, os, signal, socket, sys

AT_START = ("PYTHON", "LC_", "LANG", "LOCPATH", "OMP_")  # what Python and its libraries read as they begin
here = {{name: value for name, value in os.environ.items() if name.startswith(AT_START) and name != "PYTHONPATH"}}
of_python = sys.argv[1:2] in (["-"], ["-I"], ["-W"], ["-m"])  # which a process that began cannot be given
if here != {environment!r} or of_python:
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: link.send(bytes([number])))
asked = marshal.dumps(([{program!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ)))
socket.send_fds(link, [len(asked).to_bytes(4, "big")], [0, 1, 2])
link.sendall(asked)
code = int(link.recv(8) or 1)
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class Asked(NamedTuple):
    """A program to run: its words, its folder, its environment, and its standard streams."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    streams: list[int]


@contextmanager
def forked_programs() -> Iterator[Path]:
    """Start the process that forks; yield the folder of programs to put first on the `PATH`."""
    with tempfile.TemporaryDirectory(prefix="forks") as folder:
        address, binaries = f"{folder}/socket", Path(folder) / "bin"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        at_start = {name: value for name, value in environment.items()
                    if name.startswith(("PYTHON", "LC_", "LANG", "LOCPATH", "OMP_"))}
        binaries.mkdir()
        for name in NAMES:
            program = str(Path(sys.executable).parent / name)
            (binaries / name).write_text(SHIM.format(python=sys.executable, environment=at_start, program=program,
                                                     address=address))
            (binaries / name).chmod(0o755)
        with subprocess.Popen([sys.executable, __file__, address], env=environment, cwd=folder, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.read(1), "the process that forks did not begin"
            yield binaries
            server.stdin.close()  # which ends it, and all that it forked


class Forks:
    """The process that forks, and the connections to those who asked, by the process that was forked for each."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.links: dict[int, socket.socket] = {}
        self.ready = selectors.DefaultSelector()
        ended, wake = socket.socketpair()
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # it ends with the tests, which close its input
        signal.set_wakeup_fd(wake.fileno())
        self.ended = (ended, wake)
        self.ready.register(listener, selectors.EVENT_READ)
        self.ready.register(ended, selectors.EVENT_READ)
        self.ready.register(sys.stdin, selectors.EVENT_READ)

    def wait(self) -> Asked:
        """Serve; return, in a process that was forked for it, what is to be run there."""
        while True:
            for key, _ in self.ready.select():
                if key.fileobj is sys.stdin:
                    self.end()
                elif key.fileobj is self.listener:
                    if asked := self.fork():
                        return asked
                elif key.fileobj is self.ended[0]:
                    self.ended[0].recv(4096)
                    self.reap()
                else:
                    self.pass_on(key.data)

    def fork(self) -> Asked | None:
        """Accept somebody who asks, and fork; return what is asked for in the new process, None in the old one."""
        link, _ = self.listener.accept()
        with suppress(OSError, EOFError, ValueError):
            length, streams, *_ = socket.recv_fds(link, 4, 3)
            with link.makefile("rb") as file:
                words, folder, environment = marshal.loads(file.read(int.from_bytes(length, "big")))  # noqa: S302
            process = os.fork()
            if process == 0:
                self.leave(link)
                return Asked(words, folder, environment, streams)
            for stream in streams:
                os.close(stream)
            self.links[process] = link
            self.ready.register(link, selectors.EVENT_READ, process)
        return None

    def leave(self, link: socket.socket) -> None:
        """Keep nothing of the process that forks, in a new one."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.ready.close()
        for each in (*self.links.values(), *self.ended, self.listener, link):
            each.close()

    def pass_on(self, process: int) -> None:
        """Pass a signal on to a process, or kill it if the one who asked for it is gone, with what it started."""
        try:
            number = self.links[process].recv(1)
        except OSError:
            number = b""
        with suppress(ProcessLookupError):
            if number:
                os.kill(process, number[0])
            else:
                self.ready.unregister(self.links[process])
                os.killpg(process, signal.SIGKILL)

    def reap(self) -> None:
        """Tell those who asked of the processes that have ended."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                link = self.links.pop(ended[0])
                with suppress(KeyError):
                    self.ready.unregister(link)
                with suppress(OSError):
                    link.send(str(os.waitstatus_to_exitcode(ended[1])).encode())
                link.close()

    def end(self) -> None:
        """End, and kill all that was forked."""
        for process in self.links:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        os._exit(0)


def run(asked: Asked, libraries: list[str]) -> None:
    """Run the program that was asked for to its end, but without taking apart what it shares with others."""
    code = 1
    try:
        become(asked, libraries)
        start(asked.words)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        traceback.print_exc()
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)


def become(asked: Asked, libraries: list[str]) -> None:
    """Let this process be the program that was asked for: its folder, streams, environment and path of modules."""
    os.chdir(asked.folder)
    for number, stream in enumerate(asked.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked.environment)
    tempfile.tempdir = None
    named = [part for part in asked.environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[1:] = [*named, *libraries]
    importlib.import_module("numpy").random.seed()


def start(words: list[str]) -> None:
    """Start a program; of the name `python`, the text or the file that it is given."""
    name, *more = words
    if Path(name).name == "python":
        name, *more = more
    sys.argv[:] = [name, *more]
    if name != "-c":
        sys.path[0] = str(Path(name).parent)
        runpy.run_path(name, run_name="__main__")
        return
    sys.argv[:], sys.path[0] = ["-c", *more[1:]], ""
    sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(more[0], "<string>", "exec"), sys.modules["__main__"].__dict__)  # noqa: S102 - as `python -c` does


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen(128)
        os.write(1, b"r")
        wanted = Forks(listening).wait()
    run(wanted, sys.path[1:])
