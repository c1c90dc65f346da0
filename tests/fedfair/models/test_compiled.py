"""Models of `torch.compile` are trained as what they wrap, or asked for without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from fedfair.models import find
from fedfair.models.find import uncompiled
from simulations import Experiment, run

FILE = """
import torch
from torch import nn

def {name}(shape, hidden, classes):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
    return {returned}
"""


def write(folder: Path, name: str, returned: str) -> None:
    """Write a model of a user's."""
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / f"{name}.py").write_text(FILE.format(name=name, returned=returned))


def test_a_compiled_model_is_trained_as_it_is_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "swift", "torch.compile(model)")
    write(tmp_path, "plain", "model")
    made = {name: find.build(name, (), (64,), 10, 0, torch.float32) for name in ("swift", "plain")}
    assert [type(each) for each in made.values()] == [nn.Sequential] * 2
    assert all(torch.equal(a, b) for a, b in zip(*(each.parameters() for each in made.values()), strict=True))
    assert run(Experiment(dataset="digits", model="swift", steps=2)).ledger.epsilon() > 0


@pytest.mark.parametrize(("returned", "said"), [
    ("nn.Sequential(nn.Flatten(), torch.compile(nn.Linear(64, classes)))", "the layer 1 of the model is compiled"),
    ("(model.compile(), model)[1]", "the model is compiled")])
def test_a_compiled_layer_is_asked_for_without(returned: str, said: str, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "partly", returned)
    with pytest.raises(ValueError, match=said):
        find.build("partly", (), (64,), 10, 0, torch.float32)


def test_weights_of_a_compiled_model_are_its_own() -> None:
    model = nn.Linear(2, 2)
    assert uncompiled(torch.compile(model)) is model
