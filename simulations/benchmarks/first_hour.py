"""How long the first comparison on a file of one's own takes, and whether its models learn anything.

Made-up files like German credit (1,000 records) and like OULAD (20,000) go through the default commands.
`python -m simulations.benchmarks.first_hour [--busy N]`: with N busy loops beside.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

_FEDFAIR = [sys.executable, "-c", "from simulations.cli import app; app()"]


def like_german_credit(records: int = 1_000) -> pd.DataFrame:
    """Return made-up loans with the kinds of columns of German credit.

    Args:
        records: Number of rows.
    """
    draws = np.random.default_rng(0)
    age, months = draws.integers(19, 75, records), draws.choice([6, 12, 18, 24, 36, 48], records)
    amount = (draws.gamma(2, 900, records) + 60 * months).round()
    account = draws.choice(["none", "below 0", "0 to 200", "above 200"], records, p=[0.39, 0.27, 0.27, 0.07])
    sex = draws.choice(["female", "male"], records, p=[0.31, 0.69])
    score = 1.4 + 2 * (account == "none") - 0.08 * (months - 12) + 0.03 * (age - 35) + 0.3 * (sex == "male")
    good = draws.random(records) < 1 / (1 + np.exp(-score))
    return pd.DataFrame({"account": account, "months": months, "amount": amount, "age": age, "sex": sex,
                         "housing": draws.choice(["own", "rent", "free"], records, p=[0.7, 0.2, 0.1]),
                         "purpose": draws.choice(["car", "furniture", "radio", "business", "education"], records),
                         "risk": np.where(good, "good", "bad")})


def like_oulad(records: int = 20_000) -> pd.DataFrame:
    """Return made-up students with the kinds of columns of OULAD's table of students.

    Args:
        records: Number of rows.
    """
    draws = np.random.default_rng(1)
    clicks, disability = draws.gamma(1.2, 900, records).round(), draws.choice(["N", "Y"], records, p=[0.9, 0.1])
    attempts, credits_ = draws.poisson(0.2, records), draws.choice([30, 60, 90, 120], records)
    education = draws.choice(["A Level", "Lower Than A Level", "HE Qualification", "No Formal quals"], records,
                             p=[0.43, 0.4, 0.15, 0.02])
    score = (-0.9 + 0.0012 * clicks - 0.6 * attempts - 0.4 * (disability == "Y") - 0.006 * credits_
             + 0.5 * (education == "HE Qualification"))
    passed = draws.random(records) < 1 / (1 + np.exp(-score))
    return pd.DataFrame({"module": draws.choice([*"ABCDEFG"], records), "gender": draws.choice(["M", "F"], records),
                         "region": draws.choice([f"region {number}" for number in range(13)], records),
                         "highest education": education, "disability": disability, "attempts": attempts,
                         "credits": credits_, "clicks": clicks, "result": np.where(passed, "Pass", "Fail")})


def compared(file: Path, label: str, group: str) -> tuple[float, pd.DataFrame, list[str]]:
    """Return the seconds that the default comparison takes, its summary, and what it found.

    Args:
        file: Table.
        label: Column to predict.
        group: Column of the groups.
    """
    start = time.perf_counter()
    words = ["compare", "--csv", str(file), "--label", label, "--group", group, "--json"]
    done = subprocess.run([*_FEDFAIR, *words], check=True, capture_output=True, text=True)  # noqa: S603 - fixed words
    said = json.loads(done.stdout)
    return time.perf_counter() - start, pd.DataFrame(said["summary"]), list(said.get("findings", []))


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep some processes busy beside the work.

    Args:
        loops: Number of processes.
    """
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def main() -> None:
    """Time the default commands on both files, and say what their models learned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside the work")
    with tempfile.TemporaryDirectory() as folder, busy(parser.parse_args().busy):
        for name, table, label, group in (("credit", like_german_credit(), "risk", "sex"),
                                          ("oulad", like_oulad(), "result", "disability")):
            file = Path(folder, f"{name}.csv")
            table.to_csv(file, index=False)
            seconds, summary, findings = compared(file, label, group)
            most = table[label].value_counts(normalize=True).max()
            print(f"{name}: {len(table):,} records, {seconds:.0f} s, majority class {most:.3f}")
            for row in summary.to_dict("records"):
                print(f"  {row['strategy']}: accuracy {row['accuracy_mean']:.3f}, epsilon {row['epsilon'] or 'none'}")
            for sentence in findings:
                print(f"  {sentence}")


if __name__ == "__main__":
    main()
