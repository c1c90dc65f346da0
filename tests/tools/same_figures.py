"""The figures of 69 runs and 3 fits, bit by bit: two trees that print the same ones compute the same.

A refactoring changes no number. Nine methods on adult, dutch and digits with three seeds each cover both modes, the
trust models, count queries, thresholds, private preprocessing and figures; four of them need two groups, which digits
has not. The program uses only what stays the same in every tree: `simulations.Experiment`, `simulations.run` and
`fedfair fit`. Bits differ between machines and versions of PyTorch, so that both trees must run on the same machine:

    export FEDFAIR_DATA_DIR=/the/data/files
    git worktree add ../before COMMIT
    PYTHONPATH=../before python tests/tools/same_figures.py --out before.json
    python -m tests.tools.same_figures --out after.json --against before.json

Some minutes each. `--only adult/dpsgd-f fit` takes the runs whose name holds one of these words. The program ends
with 1 if a figure differs, or is in one tree alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

os.environ["OMP_NUM_THREADS"] = "1"  # before PyTorch, whose sums depend on how many threads share them

Figures = dict[str, str]
"""What is compared, by name: a value that is short, or a digest."""

LENGTH: Mapping[str, Any] = {"steps": 30, "batch_size": 512, "eval_every": 1, "learning_rate": 0.1}
EPOCHS: Mapping[str, Any] = {"epochs": 1, "batch_size": 1024, "learning_rate": 0.1}

OF_ALL: Mapping[str, Mapping[str, Any]] = {
    "sgd": {**LENGTH, "momentum": 0.9, "metrics": ["f1_macro"]},
    "dpsgd": {**LENGTH, "noise": "discrete", "dtype": "float64", "trust": "distributed", "target_epsilon": 2.0},
    "dpsgd-f": {**LENGTH, "average": 0.9, "weight_decay": 1e-4, "count_noise_multiplier": 4.0},
    "dpsgd-global-adapt": {**EPOCHS, "sync": "epoch", "trust": "local", "options": {"bound": 5.0}},
    "gs-dp-sgd": {**EPOCHS, "target_epsilon": 3.0},
}
"""Settings of methods for any number of groups."""

OF_TWO_GROUPS: Mapping[str, Mapping[str, Any]] = {
    "gs-dp-sgd-to": {**LENGTH, "sync": "step", "threshold_epsilon": 1.0},
    "fairlens": {**LENGTH, "options": {"gamma1": 0.5}},
    "raco": {**LENGTH, "optimizer": "adam", "learning_rate": 0.01, "preprocessing": "private", "target_epsilon": 2.0,
             "threshold": "by-group"},
    "moments": {"features": "binned", "model": "linear", "preprocessing": "private", "missing": "keep",
                "figures": "private", "sampling_rate": 1.0, "noise": "discrete", "dtype": "float64",
                "target_epsilon": 1.0, "options": {"gap": 0.05, "logistic_steps": "auto"}},
}
"""Settings of methods for the two groups of a table."""

DATASETS = {"adult": {**OF_ALL, **OF_TWO_GROUPS}, "dutch": {**OF_ALL, **OF_TWO_GROUPS}, "digits": OF_ALL}
SEEDS = (0, 1, 2)

TABLES = {"adult": ("income", "sex"), "bank": ("y", "marital"), "dutch": ("occupation", "sex")}
"""Label and group of the tables that are fitted."""
ADULT = ("age", "workclass", "fnlwgt", "education", "years", "marital", "job", "relationship", "race", "sex", "gain",
         "loss", "hours", "country", "income")
"""Names of the columns of adult.data, which has none."""


def digest(data: bytes) -> str:
    """Return the first half of a SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()[:32]


def of_weights(weights: Mapping[str, Tensor]) -> str:
    """Return a digest of names, shapes, types and bytes of tensors, in the order of names."""
    parts = []
    for name, tensor in sorted(weights.items()):
        parts += [f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(),
                  tensor.detach().cpu().contiguous().numpy().tobytes()]
    return digest(b"\0".join(parts))


def of_metrics(table: pd.DataFrame) -> Figures:
    """Return a digest of each metric's values by round, split and group: all digits, in the order of keys."""
    figures = {}
    for metric, rows in table.groupby("metric"):
        values = [f"{int(row['round'])} {row['split']} {row['group']} {float(row['value'])!r}"
                  for row in rows.to_dict("records")]
        figures[f"metrics.{metric}"] = digest("\n".join(sorted(values)).encode())
    return figures


def of_json(values: Mapping[str, Any], name: str) -> Figures:
    """Return each value of a JSON object, as a digest where it is long."""
    texts = {f"{name}.{key}": json.dumps(value, sort_keys=True) for key, value in values.items()}
    return {key: text if len(text) < 150 else digest(text.encode()) for key, text in texts.items()}


def of_run(settings: Mapping[str, Any]) -> Figures:
    """Return the figures of one run."""
    from simulations import Experiment, run

    result = run(Experiment(**settings), engine="local")
    ledger = result.ledger
    return {"weights": of_weights(result.model.state_dict()), **of_metrics(result.metrics),
            "epsilon": repr(ledger.epsilon()), "epsilon_by_group": repr(ledger.epsilon_by_group()),
            "guarantee": ledger.guarantee}


def write_table(name: str, folder: Path) -> Path:
    """Write a table of the data folder with the names of its columns, and return the file."""
    data, path = Path(os.environ["FEDFAIR_DATA_DIR"]), folder / f"{name}.csv"
    if name == "adult":
        path.write_text(",".join(ADULT) + "\n" + (data / "adult.data").read_text().replace(", ", ","))
    else:
        shutil.copyfile(data / {"bank": "bank-full.csv", "dutch": "dutch.csv"}[name], path)
    return path


def of_fit(name: str) -> Figures:
    """Return the figures of a fit with seeded noise: its ledger, model, front, scorecard and printed figures."""
    from safetensors.torch import load_file

    import simulations

    label, group = TABLES[name]
    tree = str(Path(simulations.__file__).resolve().parents[1])
    with tempfile.TemporaryDirectory() as place:
        table = write_table(name, Path(place))
        subprocess.run(
            [sys.executable, "-c", "from simulations.cli import app; app()", "fit", table.name, "--label", label,
             "--group", group, "--epsilon", "1", "--set", "randomness=seeded", "--out", "out"],
            cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": tree})
        out = Path(place) / "out"
        files = {file: digest((out / file).read_bytes())
                 for file in ("figures.csv", "calibration.csv", "scorecard.csv")}
        return {**of_json(json.loads((out / "ledger.json").read_text()), "ledger"), **files,
                "weights": of_weights(load_file(out / "model.safetensors")),
                "front": of_weights(load_file(out / "front.safetensors"))}


def names() -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """Yield the name of every run with its settings, and of every fit with None."""
    for dataset, methods in DATASETS.items():
        for (method, settings), seed in product(methods.items(), SEEDS):
            yield f"{dataset}/{method}/{seed}", {**settings, "dataset": dataset, "strategy": method, "seed": seed}
    for table in TABLES:
        yield f"fit/{table}", None


def measure(only: Sequence[str]) -> dict[str, Figures]:
    """Return the figures of the runs whose name holds a word of `only`, or of all."""
    import torch

    import simulations

    torch.set_num_threads(1)
    print(f"the tree of {Path(simulations.__file__).resolve().parents[1]}", file=sys.stderr)
    found = {}
    for name, settings in names():
        if not only or any(word in name for word in only):
            found[name] = of_run(settings) if settings is not None else of_fit(name.partition("/")[2])
            summary = found[name].get("epsilon", found[name].get("ledger.epsilon"))
            print(f"{name}: weights {found[name]['weights'][:12]}, epsilon {summary}", file=sys.stderr, flush=True)
    return found


def differences(before: Mapping[str, Figures], after: Mapping[str, Figures]) -> Iterable[str]:
    """Yield a line for each figure that differs, or that is on one side alone."""
    for name in sorted({*before, *after}):
        one, other = before.get(name, {}), after.get(name, {})
        for figure in sorted({*one, *other}):
            if one.get(figure) != other.get(figure):
                yield f"{name} {figure}: {one.get(figure, 'absent')} before, {other.get(figure, 'absent')} now"


def main() -> int:
    """Measure, write and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--against", type=Path, help="JSON file of another tree to compare with")
    parser.add_argument("--only", nargs="+", default=[], help="words of which one is in a run's name")
    asked = parser.parse_args()
    found = measure(asked.only)
    text = json.dumps(found, indent=1, sort_keys=True)
    if asked.out:
        asked.out.write_text(text + "\n")
    elif not asked.against:
        print(text)
    if not asked.against:
        return 0
    before = json.loads(asked.against.read_text())
    known = {name: before[name] for name in before if not asked.only or name in found}
    lines = list(differences(known, found))
    print("\n".join(lines) or f"the same figures: {len(found)} of {len(before)} runs and fits")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
