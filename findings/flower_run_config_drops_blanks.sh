#!/usr/bin/env bash
# Flower 1.42.0: `flwr run . --run-config "local-epochs = 5"` runs with the defaults, without a word.
#
# The help shows '<k1>=<v1> <k2>=<v2>' with values of TOML, where blanks around = are usual. Pairs are looked for by a
# pattern that knows no blank there; what it does not match is dropped, also beside pairs that are taken. Only a text in
# which pairs are found and that is no TOML, as with commas, is an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "flwr==1.42.0"
"$folder/venv/bin/python" - <<'PYTHON'
import tomllib
from importlib.metadata import version

from flwr.common.config import parse_config_args

texts = ("local-epochs = 5", "lr=0.1 local-epochs = 5", "lr=0.1 local-epochs=5")
seen = {text: parse_config_args([text]) for text in texts}
print(version("flwr"), seen, "TOML:", tomllib.loads(texts[0]))
expected = [{}, {"lr": 0.1}, {"lr": 0.1, "local-epochs": 5}]
raise SystemExit(0 if [*seen.values()] == expected else "behaviour changed")
PYTHON
