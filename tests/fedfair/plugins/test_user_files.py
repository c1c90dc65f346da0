"""Files of the user's: run once for each of their states."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedfair.mechanisms.clipping import CLIP_RULES
from fedfair.plugins.user_files import UserFileError, defined_in, find_in_file, name_in_file

COUNTED = """
import time
from pathlib import Path

with Path(__file__).with_name("runs.txt").open("a") as runs:
    runs.write("x")
time.sleep(0.05)

class Thing:
    pass
"""

RULE = """
from __future__ import annotations

from dataclasses import dataclass

from fedfair.mechanisms.clipping import CLIP_RULES

@CLIP_RULES.register("halved")
@dataclass(frozen=True)
class Halved:
    clip_norm: float
"""


def runs(file: Path) -> int:
    return len((file.parent / "runs.txt").read_text())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "counted.py").write_text(COUNTED)
    return tmp_path / "counted.py"


def test_a_file_is_run_once_and_its_classes_stay_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = defined_in(file)
    assert [*first] == ["Thing"]
    monkeypatch.chdir(file.parent)
    assert defined_in(Path("counted.py"))["Thing"] is first["Thing"]
    assert runs(file) == 1


def test_threads_that_ask_together_get_one_class(file: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        things = {defined["Thing"] for defined in threads.map(defined_in, [file] * 8)}
    assert (len(things), runs(file)) == (1, 1)


def test_a_file_that_is_changed_is_run_again(file: Path) -> None:
    first = defined_in(file)
    file.write_text(COUNTED.replace("Thing", "Other"))
    assert [*defined_in(file)] == ["Other"]
    later = file.stat().st_mtime_ns + 1
    os.utime(file, ns=(later, later))
    assert defined_in(file)["Other"] is not first["Thing"]
    assert runs(file) == 3


def test_a_file_that_fails_is_run_again_until_it_does_not(tmp_path: Path) -> None:
    file, folder = tmp_path / "late.py", tmp_path / "made"
    file.write_text(f"from pathlib import Path\nPath({str(folder)!r}, 'x').write_text('')\nclass Late: ...\n")
    with pytest.raises(UserFileError, match=r"late\.py, line 2: FileNotFoundError: "):
        defined_in(file)
    folder.mkdir()
    assert [*defined_in(file)] == ["Late"]
    assert "user_file_late" not in sys.modules


def test_a_file_may_ask_for_another(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("class Inner: ...")
    (tmp_path / "outer.py").write_text(
        "from pathlib import Path\nfrom fedfair.plugins.user_files import defined_in\n"
        "class Outer(defined_in(Path(__file__).with_name('inner.py'))['Inner']): ...")
    assert defined_in(tmp_path / "outer.py")["Outer"].__base__ is defined_in(tmp_path / "inner.py")["Inner"]


def test_a_file_may_be_called_like_a_module_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("import json\ndef written(): return json.dumps([1])")
    assert defined_in(tmp_path / "json.py")["written"]() == "[1]"


def test_a_clip_rule_in_a_file_is_found_again_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLIP_RULES, "_values", {**CLIP_RULES._values})
    file = tmp_path / "halved.py"
    file.write_text(RULE)
    before = defined_in(file)["Halved"](1.0)
    assert defined_in(file)["Halved"] is CLIP_RULES["halved"]
    assert CLIP_RULES.name_of(before) == "halved"


def test_another_process_need_not_find_the_file(file: Path) -> None:
    from ray import cloudpickle

    thing = cloudpickle.loads(cloudpickle.dumps(defined_in(file)["Thing"]()))
    assert type(thing).__name__ == "Thing"


def test_a_file_is_not_run_for_a_name_that_it_does_not_define(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name may come from a server."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / "mine.py").write_text("class Mine:\n    pass\n")
    assert find_in_file("setup.X") is None
    assert find_in_file("../setup.X") is None
    assert name_in_file(find_in_file("mine.Mine")) == "mine.Mine"
    assert name_in_file(Path) is None


@pytest.mark.parametrize("content", [b"x = 1\n\0\n", "class A: pass\n".encode("utf-16"),
                                     b"x = " + b"-" * 20_000 + b"1"])
def test_a_file_in_which_python_finds_no_line_to_blame_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_bytes(content)
    with pytest.raises(UserFileError, match=r"odd\.py cannot be read as Python"):
        defined_in(file)
