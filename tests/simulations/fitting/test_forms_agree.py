"""One model in four forms (`fedfair predict`, predict.py, ONNX, FairPrivateClassifier) decides on the same rows alike,
or refuses them alike, whichever file or table holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from simulations.fitting.classifier import FairPrivateClassifier
from simulations.fitting.fit_folder import Story
from simulations.fitting.onnx_model import onnx_model
from simulations.fitting.save import save
from simulations.results.classifier import predict
from tests.simulations.fitting.forms import by_command, by_program

ROWS = 1500
LEARNED: dict[str, dict[str, list[Any]]] = {
    "loans": {"amount": [1200.5, 52400.0, -3.25, 0.0], "term, months": [12, 36, 60], "plz": ["01067", "80331", "20095"],
              "own home": [True, False]},
    "readmissions": {"stay": [0, 3, 14, 90], "übergabe": ["ja", "nein", "weiß nicht"], "ward": ["1A", "2B", "10"],
                     "urgent": ["yes", "no"]},
    "salaries": {"years": [0.5, 7.25, 31.0], "title": ['clerk "B"', "head; deputy", "O'Neil"], "part time": ["Y", "N"]}}
"""What the columns of three tables hold."""

pytestmark = pytest.mark.slow

STRANGE = {float: ["61 years", "57.157,10", "1,5", "40 %"], int: ["12 mths", "many", "1.2.3", "5‰"]}
"""What no column of numbers has."""


class Forms(NamedTuple):
    """One fit in its forms.

    Attributes:
        folder: The folder of the fit, with predict.py.
        classifier: The classifier of scikit-learn that was fitted.
        session: The ONNX form.
        learned: Values of each column of the training.
    """

    folder: Path
    classifier: FairPrivateClassifier
    session: onnxruntime.InferenceSession
    learned: dict[str, list[Any]]

    @property
    def numbers(self) -> list[str]:
        """Columns with numbers."""
        return [name for name, values in self.learned.items() if isinstance(values[0], float | int)
                and not isinstance(values[0], bool)]


@pytest.fixture(scope="module", params=LEARNED)
def forms(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Forms:
    """Fit a table by the classifier, and save its folder."""
    learned, draws = LEARNED[request.param], np.random.default_rng(len(request.param))
    places = {name: draws.integers(0, len(values), ROWS) for name, values in learned.items()}
    frame = pd.DataFrame({name: [learned[name][place] for place in own] for name, own in places.items()})
    score = np.sum([own / own.max() for own in places.values()], axis=0) + draws.normal(0, .2, ROWS)
    classifier = FairPrivateClassifier(epsilon=50.0, random_state=1).fit(
        frame, score > len(learned) / 2, sensitive_features=draws.choice(["f", "m"], ROWS))
    folder = tmp_path_factory.mktemp("forms") / request.param
    save(classifier.fitted_, folder)
    return Forms(folder, classifier, onnxruntime.InferenceSession(onnx_model(Story.read(folder))), learned)


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the cells as a file of text has them; a gap is empty."""
    return pd.DataFrame({name: ["" if pd.isna(cell) else str(cell) for cell in column]
                         for name, column in frame.items()})


def in_records(frame: pd.DataFrame, path: Path) -> None:
    """Write a record in each line, as JSON."""
    frame.to_json(path, orient="records", lines=True)


TEXT: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "comma.csv": lambda frame, path: as_text(frame).to_csv(path, index=False),
    "semicolon.csv": lambda frame, path: as_text(frame).to_csv(path, index=False, sep=";", encoding="utf-8-sig"),
    "tab.tsv": lambda frame, path: as_text(frame).to_csv(path, index=False, sep="\t", quoting=1)}
"""Files that predict.py reads too."""
TYPED: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "rows.parquet": lambda frame, path: frame.to_parquet(path),
    "rows.feather": lambda frame, path: frame.to_feather(path),
    "rows.xlsx": lambda frame, path: frame.to_excel(path, index=False), "rows.jsonl": in_records,
    "packed.csv.gz": lambda frame, path: as_text(frame).to_csv(path, index=False)}
MEMORY: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame, "nullable": lambda frame: frame.convert_dtypes(),
    "polars": pl.from_pandas, "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "text": as_text}


def by_onnx(forms: Forms, frame: pd.DataFrame) -> list[str]:
    """Return the decisions of the ONNX form."""
    text = as_text(frame)
    given: dict[str, Any] = {each.name: text[[each.name]].to_numpy(dtype=object) if "string" in each.type else
                             frame[[each.name]].astype("float64").to_numpy() for each in forms.session.get_inputs()}
    return [str(label) for label in forms.session.run(None, given)[0]]


def rows_of(forms: Forms, data: st.DataObject) -> pd.DataFrame:
    """Draw rows of known values, gaps, and categories that the training never saw."""
    drawn = {}
    for name, values in forms.learned.items():
        others = [None] if name in forms.numbers or values[0] is True else [None, "never seen"]
        cells = st.lists(st.sampled_from([*values, *others]), min_size=4, max_size=4)
        drawn[name] = pd.Series([*data.draw(cells), values[0]])  # a column of gaps alone has no type
    return pd.DataFrame(drawn)


QUICK = settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate],
                 suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@QUICK
@given(data=st.data())
def test_forms_and_files_get_one_decision(forms: Forms, tmp_path: Path, data: st.DataObject) -> None:
    rows = rows_of(forms, data)
    expected = predict(forms.folder, rows)["predicted"].tolist()
    classes = np.array([each == "True" for each in expected])
    assert forms.classifier.predict(rows).tolist() == classes.tolist()
    assert by_onnx(forms, rows) == expected
    for name, write in {**TEXT, **TYPED}.items():
        write(rows, tmp_path / name)
        code, decided, said = by_command(forms.folder, tmp_path / name)
        assert (code, decided) == (0, expected), (name, said)
        if name in TEXT:
            assert by_program(forms.folder, tmp_path / name) == (code, decided, said)
    for name, held in MEMORY.items():
        assert predict(forms.folder, held(rows))["predicted"].tolist() == expected, name
        assert forms.classifier.predict(held(rows)).tolist() == classes.tolist(), name


@QUICK
@given(data=st.data())
def test_forms_and_files_give_one_refusal(forms: Forms, tmp_path: Path, data: st.DataObject) -> None:
    rows, name = rows_of(forms, data), data.draw(st.sampled_from(forms.numbers))
    place = data.draw(st.integers(0, len(rows) - 1))
    cell = data.draw(st.sampled_from(STRANGE[type(forms.learned[name][0])]))
    rows[name] = pd.Series([cell if row == place else number for row, number in enumerate(rows[name])], dtype=object)
    said = f"column {name!r} has {cell!r} in row {place + 1}"
    for file, write in {**TEXT, "rows.xlsx": TYPED["rows.xlsx"], "rows.jsonl": in_records}.items():
        write(rows, tmp_path / file)
        code, decided, stderr = by_command(forms.folder, tmp_path / file)
        assert (code, decided) == (2, []), file
        assert said in stderr, file
        if file in TEXT:
            assert by_program(forms.folder, tmp_path / file) == (2, [], stderr)
    for held in (rows, as_text(rows)):
        with pytest.raises(ValueError, match=r"column .* has .* in row") as one:
            predict(forms.folder, held)
        with pytest.raises(ValueError, match=r"column .* has .* in row") as other:
            forms.classifier.predict(held)
        assert said in str(one.value)
        assert said in str(other.value)


@QUICK
@given(data=st.data())
def test_an_absent_column_is_refused_by_all(forms: Forms, tmp_path: Path, data: st.DataObject) -> None:
    rows, name = rows_of(forms, data), data.draw(st.sampled_from(sorted(forms.learned)))
    rest = rows.drop(columns=name)
    for file, write in {**TEXT, **TYPED}.items():
        write(rest, tmp_path / file)
        code, _, stderr = by_command(forms.folder, tmp_path / file)
        assert code == 2, file
        assert f"have no column {name!r}" in stderr, file
        if file in TEXT:
            assert by_program(forms.folder, tmp_path / file) == (2, [], stderr)
    for held in MEMORY.values():
        with pytest.raises(ValueError, match="have no column"):
            predict(forms.folder, held(rest))
        with pytest.raises(ValueError, match=r"have no column|feature names|missing"):
            forms.classifier.predict(held(rest))
