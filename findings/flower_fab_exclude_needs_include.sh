#!/usr/bin/env bash
# Flower 1.42.0: an app that sets fab-exclude alone cannot be built, and the error is about fab-include.
#
# Without any of the two, files of other kinds than Flower's own list (.py, .toml, .md, ...) are left out in silence. As
# soon as fab-exclude is there, every such file left in the folder, a .gitignore or a data file, is a conflict: "matched
# "fab-include" but were removed by non-overridable built-in FAB constraints. Remove the conflicting patterns from
# "fab-include"", although there is none. An fab-include that repeats the kinds mends it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "flwr==1.42.0"
mkdir -p "$folder/app/app" "$folder/app/tests"
for file in app/__init__.py app/server.py app/client.py tests/check.py; do
    echo "app = None" > "$folder/app/$file"
done
echo "*.log" > "$folder/app/.gitignore"
"$folder/venv/bin/python" - "$folder/app" <<'PYTHON'
import io
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

from flwr.cli.build import build_fab_from_disk

folder = Path(sys.argv[1])
PROJECT = """
[project]
name = "own"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "someone"
{}
[tool.flwr.app.components]
serverapp = "app.server:app"
clientapp = "app.client:app"
"""
seen = {}
for rules in ("", 'fab-exclude = ["tests/**"]', 'fab-include = ["**/*.py"]\nfab-exclude = ["tests/**"]'):
    (folder / "pyproject.toml").write_text(PROJECT.format(rules))
    try:
        names = zipfile.ZipFile(io.BytesIO(build_fab_from_disk(folder))).namelist()
        seen[rules] = sorted(name for name in names if name.endswith(".py"))
    except ValueError as error:
        seen[rules] = str(error).splitlines()[0]
print(version("flwr"), seen)
all_files, alone, both = seen.values()
expected = ("tests/check.py" in all_files and "matched \"fab-include\"" in alone and "tests/check.py" not in both
            and "app/server.py" in both)
raise SystemExit(0 if expected else "behaviour changed")
PYTHON
