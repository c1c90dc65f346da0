"""The notebooks run from the first cell to the last, and are stored without outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks_and_they_are_kept_without_outputs() -> None:
    assert len(NOTEBOOKS) == 2
    cells = [cell for path in NOTEBOOKS for cell in json.loads(path.read_text())["cells"]]
    assert [cell["source"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat  # of the extra `dev`
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('{"epochs": 30}', '{"epochs": 3}')  # seconds in place of minutes
    NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}).execute()


@pytest.mark.slow
def test_a_run_shows_a_bar_that_goes_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    shown: list[str] = []
    code = ("from simulations import Experiment, run\n"
            "result = run(Experiment(dataset='digits', steps=40, batch_size=32, hidden=(8,)))")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client = NotebookClient(notebook, resources={"metadata": {"path": tmp_path}})
    process = client.process_message
    monkeypatch.setattr(client, "process_message", lambda message, *rest: (
        shown.append(message["content"].get("data", {}).get("text/html", "")), process(message, *rest))[1])
    client.execute()
    assert any("<progress" in html for html in shown)
    assert "<progress" not in [html for html in shown if html][-1]
