"""The favourable class by name or number: a number that is a label's name is that label."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulations.cli import app
from strategies.server.threshold_settings import ThresholdSettings
from tests.for_each import for_each


@for_each(("value", "labels", "number"), [
    (1, ("1", "2"), 0), (2, ("1", "2"), 1), ("1", ("1", "2"), 0), (1, ("0", "1"), 1), (0, ("0", "1"), 0),
    (-1, ("-1", "1"), 0), (1, ("-1", "1"), 1), (1, ("1.0", "2.0"), 0), (1, ("no", "yes"), 1), (0, ("no", "yes"), 0),
    (True, ("false", "true"), 1), (False, ("False", "True"), 0), ("yes", ("no", "yes"), 1), (None, ("a", "b"), None),
    (3, tuple("0123456789"), 3)])
def test_a_number_that_is_a_label_s_name_is_that_label(value: object, labels: tuple[str, ...], number: int | None
                                                       ) -> None:
    assert ThresholdSettings(favourable=value).favourable_class(labels) == number  # type: ignore[arg-type]


@for_each(("value", "labels", "says"), [
    (0, ("1", "2"), "favourable is 0, but the labels are '1', '2': give one of them"),
    (5, ("1", "2"), "favourable is 5, but the labels are"),
    (2, ("no", "yes"), "there are 2 classes: it must be one of"),
    (-1, ("no", "yes"), "give the number of a class"), ("1", ("no", "yes"), "unknown favourable class '1'")])
def test_a_number_beside_labels_that_are_numbers_is_refused(value: object, labels: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("..", r"\.\.")):
        ThresholdSettings(favourable=value).favourable_class(labels)  # type: ignore[arg-type]


def credit(folder: Path) -> Path:
    """Write a file with German credit's coding: 1 is good, 2 is bad."""
    file = folder / "credit.csv"
    rows = [f"{i % 7},{1 + (i % 7 > 4)},{'fm'[i % 2]}" for i in range(120)]
    file.write_text("\n".join(["x,risk,sex", *rows]) + "\n")
    return file


@pytest.mark.parametrize(("chosen", "says"), [
    ((), "Favourable class: '2' of risk: rates say how often '2' is decided; set favourable to choose another."),
    (("--set", "favourable=1"), "Favourable class: '1' of risk: rates say how often '1' is decided.")])
def test_it_is_always_printed(tmp_path: Path, chosen: tuple[str, ...], says: str) -> None:
    for command in (["run", "--strategy", "sgd"], ["compare", "--strategies", "sgd", "--seeds", "2", "--jobs", "1"]):
        result = CliRunner().invoke(app, [*command, "--csv", str(credit(tmp_path)), "--label", "risk", "--group", "sex",
                                          "--set", "steps=2", "--set", "model=logistic", "--set", "batch_size=16",
                                          *chosen])
        assert result.exit_code == 0, result.output
        assert says in " ".join(result.stdout.split())
