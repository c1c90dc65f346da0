"""`fedfair predict`: apply a trained model to the rows of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedfair.datasets.names import spreadsheet_cell, visible
from simulations.commands.options import Encoding, names_of
from simulations.results.atomic_files import refuse_as_file, write_text


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
    from fedfair.datasets.reading import Asked
    from fedfair.datasets.table_file import read_table
    from simulations.results import prediction  # here, because only this command needs scikit-learn

    if out is not None:
        refuse_as_file(out)
    rows = prediction.predict(folder, read_table(file, Asked(encoding=encoding)).frame, run, names_of(group))
    text = rows.assign(predicted=rows["predicted"].map(spreadsheet_cell)).to_csv(index=False)
    if out is None:
        print(visible(text, keep="\n") if sys.stdout.isatty() else text, end="")
    else:
        write_text(out, text)
        print(f"saved in {out}")
