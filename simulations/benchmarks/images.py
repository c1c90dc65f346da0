"""Cost of many images: a private run on made-up ones in CelebA's format, from the start of the program to its end.

python -m simulations.benchmarks.images [--images 20000] [--steps 20] [--out FILE.json]

CelebA itself has 202,599 images (Liu et al. 2015), which the program reads as 64 x 64. The made-up ones are JPEGs of
that size in Hugging Face's format, whose brightness tells the label, and are gone afterwards. The process that trains
is alone, with one thread; its evaluation of all images, gradients included, takes most of its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from simulations.benchmarks.measuring import Figures, Out, Target, report, spent
from simulations.commands.terminal import plain_errors

_SIDE, _COARSE, _SHADES = 64, 4, 20
_ALLOWED = 4.0  # GiB
_VALID, _TEST = 0.098, 0.098  # of the images
_RUN = """
import sys
from simulations.engines.run import run
from simulations.settings.experiment import Experiment
run(Experiment(dataset="celeba", strategy="dpsgd-f", model="cnn", steps=int(sys.argv[1]), batch_size=256,
               target_epsilon=3.0, eval_every=1e6))
"""
_LOAD = """
from simulations.settings.experiment import Experiment
Experiment(dataset="celeba").task.data()
"""


@plain_errors
def images(images: Annotated[int, typer.Option(min=1000, help="Number of images; CelebA has 202,599.")] = 20_000,
           steps: Annotated[int, typer.Option(min=1, help="Private steps.")] = 20, out: Out = None) -> None:
    """Measure reading, and a run with reading and evaluation."""
    with TemporaryDirectory() as folder:
        _save(Path(folder), images)
        told = {"FEDFAIR_DATA_DIR": folder}
        costs = {"reading": spent([_LOAD], told), f"a run of {steps} steps": spent([_RUN, str(steps)], told)}
    rows: list[Figures] = [{"what": what, "CPU s": seconds, "GiB": memory}
                           for what, (seconds, memory) in costs.items()]
    raw = images * 3 * _SIDE**2 / 2**30
    report(f"{images:,} images of {_SIDE} x {_SIDE}, {raw:.2f} GiB as bytes", rows, [
        Target(f"{what}, GiB", memory, _ALLOWED) for what, (_, memory) in costs.items()], out)


def _save(folder: Path, images: int) -> None:
    """Save made-up images in three parts, as CelebA has them, in a folder celeba."""
    from datasets import Dataset, DatasetDict, Features, Image, Value

    columns = Features({"image": Image(), "Male": Value("bool"), "Eyeglasses": Value("bool"),
                        "celeb_id": Value("int64")})
    valid, test = round(_VALID * images), round(_TEST * images)
    sizes = {"train": images - valid - test, "valid": valid, "test": test}
    made = {name: Dataset.from_generator(made_up, features=columns, gen_kwargs={"number": size, "seed": seed},
                                         cache_dir=str(folder / "made"))
            for seed, (name, size) in enumerate(sizes.items())}
    DatasetDict(made).save_to_disk(folder / "celeba")


def made_up(number: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield records of images, with the columns that are read of CelebA.

    Args:
        number: How many.
        seed: What the draws follow from.
    """
    from PIL import Image

    draws = np.random.default_rng(seed)
    for place in range(number):
        male, glasses = bool(draws.integers(2)), bool(draws.random() < 0.07)
        coarse = draws.integers(0, 256 - _SHADES, (_COARSE, _COARSE, 3)) + _SHADES * male
        coded = BytesIO()
        Image.fromarray(coarse.astype(np.uint8)).resize((_SIDE, _SIDE)).save(coded, "JPEG")
        yield {"image": {"bytes": coded.getvalue(), "path": None}, "Male": male, "Eyeglasses": glasses,
               "celeb_id": place // 20}


app = typer.Typer(add_completion=False)
app.command()(images)

if __name__ == "__main__":
    app()
