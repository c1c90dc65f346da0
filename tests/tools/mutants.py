"""Forty planted mistakes, each of which the tests must find: proof that a change of tests made none of them blind.

A mistake is a line of mathematics or of a rule that is replaced by a wrong one: noise without its sensitivity, a rate
of twice what is charged, a record in the wrong part. It is looked for by its text, not by a path, so that the list
stays as modules move. Each is planted alone in a copy of the tree, in which a few test files then run.

    python -m tests.tools.mutants --out now.json
    python -m tests.tools.mutants --tree ../before --only clip-less-than-one counts-charged-apart

In the end the tests that found a mistake run without one, and must pass. Tests of real data take the folder that
FEDFAIR_DATA_DIR names. The program ends with 1 unless all mistakes that were tried die.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TREE = Path(__file__).resolve().parents[2]
PACKAGES = ("fedfair", "strategies")
"""Packages in which mistakes are planted."""

_LIMIT = 1800  # seconds for the tests of one mistake; a mistake that keeps them from ending is none for this list
_PRELOADED = ("torch", "numpy", "pandas", "scipy.special", "scipy.optimize", "flwr.app", "flwr.serverapp", "hypothesis",
              "pytest", "pydantic", "sklearn")

Verdict = Literal["dies", "survives", "not found", "breaks"]
"""Whether a test failed; "breaks" if the tests could not be collected, did not end, or are not there."""


@dataclass(frozen=True)
class Mutant:
    """One planted mistake.

    Attributes:
        name: Its name.
        package: Where it belongs: a part of fedfair.
        old: Text of the right code, which occurs exactly once in `PACKAGES`.
        new: Text that takes its place.
        tests: Files or folders of tests that should find it, relative to tests/. One that has moved is looked for by
            its file name.
    """

    name: str
    package: str
    old: str
    new: str
    tests: tuple[str, ...]


def _of(package: str, name: str, old: str, new: str, *tests: str) -> Mutant:
    """Return a mutant in one line."""
    return Mutant(name, package, old, new, tests)


_G, _M, _A, _P, _N, _D = (f"fedfair/{part}" for part in (
    "gradients", "mechanisms", "accounting", "protocol", "node", "datasets"))

MUTANTS: tuple[Mutant, ...] = (
    _of("gradients", "norm-without-bias", "torch.hypot(inputs, torch.ones_like(inputs))", "inputs",
        f"{_G}/test_layers.py"),
    _of("gradients", "norm-of-pairs-without-bias", "inputs if self.bias is None else inputs + 1", "inputs",
        f"{_G}/test_layers.py"),
    _of("gradients", "repeated-words-apart", "self.tokens[:, :, None] == self.tokens[:, None, :]",
        "torch.eye(self.tokens.shape[1]).expand(len(self.tokens), -1, -1)", f"{_G}/test_layers.py"),
    _of("gradients", "clipped-before-weighted", "self._weights * probe.norms", "probe.norms",
        f"{_N}/test_node.py"),
    _of("gradients", "overflowing-norms-believed", "if like.dtype != torch.float64 and not (",
        "if like.dtype == torch.float16 and not (", f"{_G}/test_extreme_norms.py"),
    _of("gradients", "state-of-a-batch-kept", "if not _is_alike(first, _seen(trial, x, y, row, seed)):",
        "if len(x) < 0:", f"{_G}/test_mixing_modules.py"),
    _of("mechanisms", "clip-less-than-one", "return (self.clip_norm / norms).clamp(max=1)",
        "return (self.clip_norm / norms).clamp(min=1)", f"{_M}/test_clipping.py"),
    _of("mechanisms", "least-sensitivity", "return max(rule.group_sensitivities(groups))",
        "return min(rule.group_sensitivities(groups))", f"{_M}/test_clipping.py"),
    _of("mechanisms", "share-of-noise-too-small", "1 / math.sqrt(clients)", "1 / clients", f"{_M}/test_noise.py"),
    _of("mechanisms", "noise-without-deviation", "torch.add(value, noise[name], alpha=deviation,",
        "torch.add(value, noise[name], alpha=1.0,", f"{_M}/test_noise.py"),
    _of("mechanisms", "rate-doubled", "np.ceil(np.asarray(rates) * 2.0**53)", "np.ceil(np.asarray(rates) * 2.0**54)",
        f"{_M}/test_sampling.py"),
    _of("mechanisms", "same-batch-every-step", 'key(noise_key, "sampling", step)', 'key(noise_key, "sampling")',
        f"{_M}/test_sampling.py"),
    _of("mechanisms", "same-noise-every-step", "map(str, (noise_key, purpose, client, step))",
        "map(str, (noise_key, purpose, client))", f"{_M}/test_randomness.py"),
    _of("mechanisms", "losses-unbounded", ".nan_to_num(1.0, posinf=1.0).clamp(0, 1)",
        ".nan_to_num(1.0, posinf=1.0).clamp(0)", f"{_M}/test_counting.py"),
    _of("accounting", "counts-charged-apart", "return 1 / math.hypot(1 / gradient, 1 / counts)",
        "return min(gradient, counts)", f"{_A}/test_events.py"),
    _of("accounting", "epsilon-rounded-down", "_rounded(value, form, ROUND_CEILING)",
        "_rounded(value, form, ROUND_FLOOR)", f"{_A}/test_figures.py"),
    _of("accounting", "a-step-skipped", "self._enter(Entry(event, first, steps, self._attempt))",
        "self._enter(Entry(event, first, steps - 1, self._attempt))", f"{_A}/test_log.py"),
    _of("accounting", "missing-noise-counted", "math.sqrt((clients - missing) / clients)", "1.0",
        f"{_A}/test_events.py"),
    _of("accounting", "own-noise-hides", "math.sqrt(max(summed**2 - share**2, 0.0))", "summed",
        f"{_A}/test_ledger.py"),
    _of("accounting", "selection-charged-as-one-trial", "extra + count * most_gained(release)", "extra",
        f"{_A}/test_selection.py"),
    _of("accounting", "odometer-without-union", "math.log(len(_ORDERS) / left)", "math.log(1 / left)",
        f"{_A}/test_odometer.py"),
    _of("protocol", "noise-without-sensitivity",
        "share * self.noise_multiplier * sensitivity(self.rule, len(self.rates))", "share * self.noise_multiplier",
        "strategies/server/test_released_noise.py"),
    _of("protocol", "claim-beyond-noise", "claim > 1.000001 * there", "claim > 1e9 * there",
        f"{_P}/test_round.py"),
    _of("protocol", "others-noise-promised", "share * math.sqrt(clients)", "share * clients",
        "hazards/test_own_sites.py"),
    _of("protocol", "counts-unpromised", "None if self.query is None else self.count_noise_multiplier", "None",
        "hazards/test_obedient_nodes.py"),
    _of("protocol", "epochs-renumbered", "self.step * steps)", "self.step)", "strategies/test_methods.py"),
    _of("protocol", "one-round-charged", "budget.rounds * steps", "steps",
        "strategies/server/test_existing_app.py"),
    _of("node", "gradient-not-finite-kept", "finite = probe.norms.isfinite().cpu()",
        "finite = torch.ones(len(rows), dtype=torch.bool)", f"{_N}/test_node.py"),
    _of("node", "divided-by-realised-batch", "released.sums[name] / epoch.batch_size",
        "released.sums[name] / max(len(groups), 1)", f"{_N}/test_node.py"),
    _of("node", "policy-unread", "if name not in listed:", "if name is None:", "hazards/test_obedient_nodes.py"),
    _of("node", "budget-exceeded", "if not stays_within(releases, limit, delta):", "if not data:",
        f"{_N}/test_node_ledger.py"),
    _of("node", "batch-settled-twice", 'self.promised.pop(line["settles"], None)',
        'self.promised.get(line["settles"], None)', f"{_N}/test_node_ledger.py"),
    _of("datasets", "valid-for-test", "data.take(train), data.take(valid), data.take(test), published",
        "data.take(train), data.take(test), data.take(valid), published", f"{_D}/test_prepare.py"),
    _of("datasets", "one-split-for-all-seeds", '_shuffled(members, seed, "split")', '_shuffled(members, 0, "split")',
        f"{_D}/test_prepare.py"),
    _of("datasets", "categories-in-order-of-rows", "categories = sorted(_different(", "categories = list(_different(",
        f"{_D}/features/test_encoder.py"),
    _of("datasets", "two-bins-at-an-end", "within &= numbers < high if", "within &= numbers <= high if",
        f"{_D}/features/test_bounded.py"),
    _of("datasets", "beyond-the-range", "return scaled.clamp(0, 1) if self.within else scaled", "return scaled",
        f"{_D}/features/test_features.py"),
    _of("datasets", "rows-beyond-norm-one", "self.longest / norms.clamp(min=self.longest)",
        "self.longest / max(self.longest, 1e-9)", f"{_D}/features/test_bounded.py"),
    _of("datasets", "statistics-of-test-part", "values = parts.train.x[:, list(columns)]",
        "values = parts.test.x[:, list(columns)]", f"{_D}/test_prepare.py"),
    _of("datasets", "nodes-share-numbers", "data.records + (node << 32)", "data.records + node",
        "simulations/engines/test_own_files.py"),
)


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant.

    Attributes:
        name: Its name.
        package: Its package.
        verdict: See `Verdict`.
        found_by: The first test that failed, or why there is none.
    """

    name: str
    package: str
    verdict: Verdict
    found_by: str


def places(tree: Path, text: str) -> list[Path]:
    """Return the files of `PACKAGES` that hold a text, each as often as it occurs.

    Args:
        tree: Root of the project.
        text: What is looked for.
    """
    files = [path for package in PACKAGES for path in sorted((tree / package).rglob("*.py"))]
    return [path for path in files for _ in range(path.read_text(encoding="utf-8").count(text))]


def present(tree: Path, tests: Iterable[str]) -> list[str]:
    """Return those files and folders of tests that are there, relative to the tree.

    Args:
        tree: Root of the project.
        tests: Relative to tests/; one that is not there is looked for by its file name.
    """
    root, found = tree / "tests", dict[str, None]()
    for test in tests:
        paths = [root / test] if (root / test).exists() else sorted(root.rglob(Path(test).name))
        found |= dict.fromkeys(str(path.relative_to(tree)) for path in paths)
    return list(found)


def copied(tree: Path, place: Path) -> Path:
    """Copy the files that git knows of a tree, as they are on the disk, and return the copy.

    Args:
        tree: Root of the project.
        place: Folder that is made.
    """
    place.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=tree, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (tree / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tree / name, place / name)
    return place


class _NoShrinking:
    """A plugin of pytest: one example is enough to find a mistake, and Hypothesis need not look for a small one."""

    def pytest_sessionstart(self) -> None:
        """Leave the shrinking of examples out, once the tests' own profile is loaded."""
        import hypothesis

        phases = [phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.shrink]
        hypothesis.settings.register_profile("mutants", hypothesis.settings(), phases=phases)
        hypothesis.settings.load_profile("mutants")


def _pytest_in(tree: Path, tests: Sequence[str], output: Path) -> None:
    """Run tests in this process, which has been forked for them, and leave it with pytest's exit status."""
    import pytest

    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True  # two mistakes of one length, planted within a second, would share what was compiled
    sys.path.insert(0, str(tree))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", *PACKAGES, "simulations")]:
        del sys.modules[name]
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        arguments = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "-o",
                     "faulthandler_timeout=0", *tests]
        status = int(pytest.main(arguments, plugins=[_NoShrinking()]))
        sys.stdout.flush()
    sys.exit(status)


def run_tests(tree: Path, tests: Sequence[str]) -> tuple[Verdict, str]:
    """Run tests in a process of their own until one fails; what they import of other projects is imported here, once.

    Args:
        tree: Root of a copy of the project.
        tests: Files, folders, or names of single tests, relative to it.

    Returns:
        "dies" if a test failed, with its name; "survives" if all pass; else "breaks", with the end of what was printed.
    """
    for name in _PRELOADED:
        importlib.import_module(name)
    output = tree.parent / "output.txt"
    process = multiprocessing.get_context("fork").Process(target=_pytest_in, args=(tree, tests, output))
    process.start()
    process.join(_LIMIT)
    if process.exitcode is None:
        process.kill()
        return "breaks", f"no end after {_LIMIT} seconds"
    said = output.read_text(encoding="utf-8", errors="replace")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", said, re.MULTILINE)
    if process.exitcode == 1 and failed:
        return "dies", failed[1]
    return ("survives", "all its tests pass") if process.exitcode == 0 else ("breaks", said[-300:])


def outcome(copy: Path, mutant: Mutant) -> Outcome:
    """Plant one mistake in a copy of the tree, run its tests, and take the mistake out again.

    Args:
        copy: Root of the copy.
        mutant: The mistake.
    """
    at, tests = places(copy, mutant.old), present(copy, mutant.tests)
    if len(at) != 1:
        return Outcome(mutant.name, mutant.package, "not found", f"its text occurs {len(at)} times")
    if not tests:
        return Outcome(mutant.name, mutant.package, "breaks", "none of its tests is there")
    right = at[0].read_text(encoding="utf-8")
    try:
        at[0].write_text(right.replace(mutant.old, mutant.new), encoding="utf-8")
        return Outcome(mutant.name, mutant.package, *run_tests(copy, tests))
    finally:
        at[0].write_text(right, encoding="utf-8")


def main() -> int:
    """Try mutants, print what becomes of each, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=TREE, help="root of the project, by default this one")
    parser.add_argument("--only", nargs="+", default=[], help="names of mutants")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    asked = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not asked.only or mutant.name in asked.only]
    with tempfile.TemporaryDirectory() as place:
        copy = copied(asked.tree.resolve(), Path(place).resolve() / "tree")
        outcomes = []
        for mutant in chosen:
            outcomes.append(outcome(copy, mutant))
            print(f"{outcomes[-1].verdict}: {mutant.name} ({outcomes[-1].found_by})", flush=True)
            if asked.out:
                asked.out.write_text(json.dumps([vars(one) for one in outcomes], indent=1) + "\n", encoding="utf-8")
        finders = [*dict.fromkeys(one.found_by for one in outcomes if one.verdict == "dies")]
        right, said = run_tests(copy, finders)
    died = sum(one.verdict == "dies" for one in outcomes)
    print(f"{died} of {len(outcomes)} die; without a mistake: {right}, {said}")
    return 0 if died == len(outcomes) and right == "survives" else 1


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # before PyTorch
    sys.exit(main())
