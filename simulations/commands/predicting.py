"""`fedfair predict`: apply a trained model to the rows of a file."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfair.datasets.names import spreadsheet_cell, visible
from simulations.commands.options import Encoding, names_of
from simulations.results.atomic_files import refuse_as_file, write_text

if TYPE_CHECKING:
    import pandas as pd


def predict(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run on a table, or of a comparison.")],
    file: Annotated[Path, typer.Argument(help="CSV file with the columns that the run was trained on.")],
    run: Annotated[str | None, typer.Option(help="Run of a comparison, for example dpsgd-f/seed-0.")] = None,
    group: Annotated[str, typer.Option(help="Columns that name each row's group, separated by commas, for a "
                                       "model with a threshold; by default the run's.")] = "",
    encoding: Encoding = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; by default the rows are printed.")] = None,
) -> None:
    """Add the predicted class and the probability of each class to every row of a file.

    Example: fedfair predict out/people new.csv --out predicted.csv
    """
    from simulations.results.prediction import predict as predicted  # here: only this command needs scikit-learn

    if out is not None:
        refuse_as_file(out)
    rows = predicted(folder, _rows(file, encoding, folder), run, names_of(group))
    text = rows.assign(predicted=rows["predicted"].map(spreadsheet_cell)).to_csv(index=False)
    if out is None:
        print(visible(text, keep="\n") if sys.stdout.isatty() else text, end="")
    else:
        write_text(out, text)
        print(f"saved in {out}")


def _rows(file: Path, encoding: str | None, folder: Path) -> pd.DataFrame:
    """Return the rows of a file; where they are not in UTF-8, they are in the encoding of the training's file.

    Raises what `fedfair.datasets.table_file.read_table` raises.
    """
    from fedfair.datasets.reading import Asked
    from fedfair.datasets.table_file import read_table

    try:
        return read_table(file, Asked(encoding=encoding)).frame
    except ValueError:
        of_the_training = None if encoding else _encoding(folder / "config.toml")
        if not of_the_training:
            raise
        return read_table(file, Asked(encoding=of_the_training)).frame


def _encoding(config: Path) -> str | None:
    """Return the encoding in the settings of a run or a comparison; None if they are not there, or name none."""
    if not config.is_file():
        return None
    written = tomllib.loads(config.read_text(encoding="utf-8"))
    found = written.get("settings", written).get("encoding")
    return None if found is None else str(found)
