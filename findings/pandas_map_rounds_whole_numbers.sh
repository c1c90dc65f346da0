#!/usr/bin/env bash
# pandas 3.1.1: mapping a column of objects by a function that returns what it is given can change the values.
#
# `Series.map` infers a type for the results. Where they are whole numbers beside a fraction, or beside a missing value,
# all of them become doubles, and whole numbers beyond 2**53 are rounded: an account number of 19 digits is another one
# after `map(lambda value: value)`. Whether it is depends on the other rows. `infer_objects()` does the same.
# Seen: the 19 digits end in ...977 before and in ...976 after. Building the column anew, `pd.Series([...], dtype=object)`,
# keeps them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pandas==3.1.1"
"$folder/venv/bin/python" - <<'PYTHON'
import pandas as pd

code = 2**60 + 1  # 1152921504606846977


def after(*values: object) -> list[object]:
    return pd.Series(values, dtype=object).map(lambda value: value).tolist()


seen = {
    "alone": after(code, 5)[0],
    "beside a fraction": after(code, 1.5)[0],
    "beside a missing value": after(code, None)[0],
    "beside a text": after(code, "x")[0],
    "infer_objects, beside a fraction": pd.Series([code, 1.5], dtype=object).infer_objects()[0],
}
for where, value in seen.items():
    print(f"{where}: {int(value)}, off by {code - int(value)}")
rounded = [where for where, value in seen.items() if int(value) != code]
expected = ["beside a fraction", "beside a missing value", "infer_objects, beside a fraction"]
raise SystemExit(0 if rounded == expected and pd.__version__ == "3.1.1" else f"behaviour changed: {rounded}")
PYTHON
