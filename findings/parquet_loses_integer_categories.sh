#!/usr/bin/env bash
# pandas 3.1.1 with pyarrow 26.0.1: a category of whole numbers does not come back from Parquet; one of texts does.
#
# The file says twice that the column is a category: in the pandas metadata ("categorical") and in the Arrow schema that
# is kept as ARROW:schema (dictionary<values=int64>). Readers give plain int64 all the same, and float64 where a value is
# missing, so codes of wards or occupations become numbers to compute with. Feather keeps both kinds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pandas==3.1.1" "pyarrow==26.0.1"
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import base64
import json
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

folder = sys.argv[1]
frame = pd.DataFrame({"ward": pd.Categorical([3, 1, 3]), "gap": pd.Categorical([3, None, 3]),
                      "sex": pd.Categorical(["f", "m", "f"])})
frame.to_parquet(f"{folder}/own.parquet")
frame.to_feather(f"{folder}/own.feather")
metadata = pq.read_metadata(f"{folder}/own.parquet").metadata
said = [column["pandas_type"] for column in json.loads(metadata[b"pandas"])["columns"]]
arrow = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(metadata[b"ARROW:schema"])))
seen = {"parquet": [str(kind) for kind in pd.read_parquet(f"{folder}/own.parquet").dtypes],
        "feather": [str(kind) for kind in pd.read_feather(f"{folder}/own.feather").dtypes]}
print(pd.__version__, pa.__version__, said, [str(field.type) for field in arrow], seen, sep="\n")
expected = {"parquet": ["int64", "float64", "category"], "feather": ["category"] * 3}
raise SystemExit(0 if seen == expected and said == ["categorical"] * 3 else "behaviour changed")
PYTHON
