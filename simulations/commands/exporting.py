"""`fedfair export`: a fit's model for programs without fedfair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.commands.terminal import say


def export(
    folder: Annotated[Path, typer.Argument(help="Folder that `fedfair fit` wrote.")],
    onnx: Annotated[Path | None, typer.Option(help="ONNX file to write; needs fedfair[onnx].")] = None,
    python: Annotated[Path | None, typer.Option(help="Python program to write, which needs no package.")] = None,
) -> None:
    """Write a fit's model as ONNX or as a plain Python program, at no cost in privacy.

    Example: fedfair export out/people --onnx people.onnx
    """
    from simulations.fitting.onnx_model import onnx_model
    from simulations.fitting.program import program
    from simulations.fitting.story import Story
    from simulations.results.atomic_files import refuse_as_file, write_bytes, write_text

    if onnx is None and python is None:
        raise ValueError("nothing to export: give --onnx FILE or --python FILE")
    story = Story.read(folder)
    for file in filter(None, (onnx, python)):
        refuse_as_file(file)
    if onnx is not None:
        write_bytes(onnx, onnx_model(story))
        say(f"saved in {onnx}")
    if python is not None:
        write_text(python, program(story))
        say(f"saved in {python}")
