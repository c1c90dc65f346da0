#!/usr/bin/env bash
# pyreadstat 1.3.7 (and pandas.read_spss, which calls it): one date after the year 9999 in one cell makes a whole file of
# SPSS unreadable.
#
# SPSS keeps a date as seconds since 1582, and such a value is a valid one: a slip of a key in one record. One would
# expect a missing cell, as pandas.to_datetime(errors="coerce") gives. Reading ends with "OverflowError: date value out
# of range", which names neither row nor column, and the other records cannot be had unless no date of the file is
# converted (disable_datetime_conversion=True; pandas.read_spss has no such argument in 2.3.3).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyreadstat==1.3.7" "pandas==2.3.3"
"$folder/venv/bin/python" - "$folder/people.sav" <<'PYTHON'
import sys
from importlib.metadata import version

import pandas as pd
import pyreadstat

file = sys.argv[1]
people = pd.DataFrame({"born": [13e9, 13.1e9, 9e11], "income": [1.0, 2.0, 3.0]})  # the last in the year 30,101
pyreadstat.write_sav(people, file, variable_format={"born": "DATE11"})
seen = {}
for name, read in {"pyreadstat": lambda: pyreadstat.read_sav(file)[0], "pandas": lambda: pd.read_spss(file)}.items():
    try:
        seen[name] = f"{len(read())} rows"
    except OverflowError as error:
        seen[name] = f"OverflowError: {error}"
plain = pyreadstat.read_sav(file, disable_datetime_conversion=True)[0]
print("pyreadstat", version("pyreadstat"), seen, f"without dates: {len(plain)} rows")
same = seen == dict.fromkeys(seen, "OverflowError: date value out of range") and len(plain) == 3
sys.exit(0 if same else "this has changed")
PYTHON
