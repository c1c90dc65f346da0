"""The model, its ONNX file and its Python program decide alike."""

from __future__ import annotations

import io
import os
import runpy
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from simulations.cli import app
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.onnx_model import onnx_model
from simulations.fitting.save import save
from simulations.fitting.standalone_program import tables
from simulations.results.classifier import TrainedClassifier
from tests.simulations.fitting.conftest import people

_WORDS = st.text(string.ascii_letters, max_size=8) | st.sampled_from(["", "?", "NA", "null", "other", "missing"])


@pytest.fixture(scope="module")
def story(folder: Path) -> Story:
    return Story.read(folder)


@pytest.fixture(scope="module")
def session(story: Story) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(onnx_model(story))


@pytest.fixture(scope="module")
def model(folder: Path) -> TrainedClassifier:
    return TrainedClassifier.load(folder)


@pytest.fixture(scope="module")
def program(folder: Path) -> dict[str, Any]:
    return runpy.run_path(str(folder / "predict.py"))


def rows_of(story: Story) -> st.SearchStrategy[pd.DataFrame]:
    """Draw rows: numbers on bins' ends, just below them, anywhere, or missing; known, missing or other categories."""
    numbers, categories, _ = tables(story)
    columns: dict[str, st.SearchStrategy[Any]] = {}
    for name, (ends, _, _) in numbers.items():
        near = [*ends, *np.nextafter(ends, -np.inf).tolist(), float("nan")]
        columns[name] = st.sampled_from(near) | st.floats(allow_infinity=False)
    for name, known in categories.items():
        columns[name] = st.sampled_from(sorted(known)) | _WORDS
    return st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=40).map(pd.DataFrame)


def by_onnx(session: onnxruntime.InferenceSession, rows: pd.DataFrame) -> tuple[list[str], Any]:
    """Return labels and probabilities."""
    kinds = {each.name: object if "string" in each.type else "float64" for each in session.get_inputs()}
    label, probabilities = session.run(None, {name: rows[[name]].to_numpy(dtype=kind) for name, kind in kinds.items()})
    return list(label), probabilities


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_three_forms_of_the_model_agree(model: TrainedClassifier, program: dict[str, Any], story: Story,
                                        session: onnxruntime.InferenceSession, data: st.DataObject) -> None:
    rows = data.draw(rows_of(story))
    names = list(story.description.labels)
    expected = model.predict_proba(rows)
    labels, probabilities = by_onnx(session, rows)
    of_program = pd.DataFrame([program["probabilities"](row) for row in rows.to_dict("records")])[names].to_numpy()
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(of_program, expected, rtol=0, atol=1e-9)
    clear = np.ptp(expected, axis=1) > 1e-6
    best = np.array(names)[expected.argmax(1)]
    assert (np.array(labels)[clear] == best[clear]).all()


def test_the_program_needs_no_package(folder: Path, session: onnxruntime.InferenceSession, tmp_path: Path) -> None:
    rows = people().drop(columns="outcome")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run = subprocess.run([sys.executable, "-I", "-S", folder / "predict.py", tmp_path / "rows.csv"], check=True,
                         capture_output=True, text=True, encoding="utf-8", env={**os.environ, "PYTHONUTF8": "1"})
    (tmp_path / "predicted.csv").write_text(run.stdout, encoding="utf-8")
    predicted = pd.read_csv(tmp_path / "predicted.csv")["predicted"]
    assert predicted.tolist() == by_onnx(session, rows.assign(town=rows["town"].fillna("")))[0]
    assert predicted.nunique() == 2


def test_a_column_called_as_an_output_keeps_its_name(session: onnxruntime.InferenceSession) -> None:
    assert "label" in {each.name for each in session.get_inputs()}
    assert [each.name for each in session.get_outputs()] == ["label_", "probabilities"]


def test_a_column_called_as_a_value_inside_the_model_keeps_its_name_and_decides(tmp_path: Path) -> None:
    rows = people().rename(columns={"income": "fedfair:0", "town": "fedfair:_constant 0"})
    made = fit(Wanted(rows, "outcome", "sex", 5.0, settings={"ranges": {"fedfair:0": (0, 8000)}}))
    save(made, tmp_path / "fit")
    story = Story.read(tmp_path / "fit")
    session = onnxruntime.InferenceSession(onnx_model(story))
    written = rows.assign(label=rows["label"].fillna(""), **{"fedfair:_constant 0": rows.iloc[:, 2].fillna("")})
    decided = [story.description.labels[place] for place in TrainedClassifier.load(tmp_path / "fit").predict(rows)]
    assert by_onnx(session, written)[0] == decided
    assert len({*decided}) == 2


def test_a_class_that_a_spreadsheet_takes_for_a_formula_is_printed_alike(tmp_path: Path) -> None:
    rows = people(1500).assign(outcome=lambda frame: frame["outcome"].map({"yes": "=d", "no": "-no"}))
    save(fit(Wanted(rows, "outcome", "sex", 5.0, settings={"ranges": {"income": (0, 8000)}})), tmp_path / "fit")
    rows.drop(columns="outcome").head(50).to_csv(tmp_path / "rows.csv", index=False)
    command = CliRunner().invoke(app, ["predict", str(tmp_path / "fit"), str(tmp_path / "rows.csv")])
    program = subprocess.run([sys.executable, tmp_path / "fit" / "predict.py", tmp_path / "rows.csv"], check=True,
                             capture_output=True, encoding="utf-8")
    printed = [pd.read_csv(io.StringIO(text), dtype=str)["predicted"].tolist() for text in (command.stdout,
                                                                                            program.stdout)]
    assert printed[0] == printed[1]
    assert {*printed[0]} == {"'=d", "'-no"}
    assert runpy.run_path(str(tmp_path / "fit" / "predict.py"))["MODEL"]["classes"] == ["-no", "=d"]


def test_the_command_writes_both(folder: Path, tmp_path: Path) -> None:
    onnx, python = tmp_path / "new" / "people.onnx", tmp_path / "people.py"
    done = CliRunner().invoke(app, ["export", str(folder), "--onnx", str(onnx), "--python", str(python)])
    assert done.exit_code == 0, done.output
    assert onnx.read_bytes() == onnx_model(Story.read(folder))
    assert python.read_text(encoding="utf-8") == (folder / "predict.py").read_text(encoding="utf-8")
    for arguments, words in ((["export", str(folder)], "nothing to export"), (["export", str(tmp_path), "--onnx",
                             str(onnx)], "holds no fit"), (["export", str(folder), "--onnx", str(onnx), "--python",
                             str(onnx)], "is named for both forms"), (["ledger", str(folder), "--delta", "2"],
                             "delta is 2, but it is a probability")):
        refused = CliRunner().invoke(app, arguments)
        assert refused.exit_code == 2
        assert words in refused.stderr


def test_without_onnx_the_command_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ValueError, match=r"pip install 'fedfair\[onnx\]'"):
        onnx_model(Story.read(folder))
