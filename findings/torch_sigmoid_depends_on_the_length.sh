#!/usr/bin/env bash
# torch 2.13.0: the sigmoid of a number depends on how many other numbers are in the tensor.
#
# On a CPU, elementwise functions take numbers in vectors, some at a time, and those that are left over one by one, by
# another implementation. Of sigmoid these two differ in the last bit, in float32 and in float64; of tanh and exp they
# do not. So a model that scores a batch and the same model that scores its rows one by one give other last
# bits, although no sum is involved, and so does a row whose place in the batch changes.
# Seen: of 4,096 numbers, 161 sigmoids in float32 and 97 in float64 are others when each is computed alone. Calls whose
# length is a multiple of 32 leave no number over: a batch that is filled up to that gives the same bits anywhere.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "torch==2.13.0" "numpy==2.4.3"
ATEN_CPU_CAPABILITY=avx2 "$folder/venv/bin/python" - <<'PYTHON'
import torch

torch.set_num_threads(1)
numbers = torch.randn(4096, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def others(function: object, dtype: torch.dtype, at_once: int) -> int:
    """Count the results that are others when so many numbers are computed at once."""
    x = numbers.to(dtype)
    return int((function(x) != torch.cat([function(part) for part in x.split(at_once)])).sum())


seen = {f"{function.__name__}, {dtype}, {at_once} at once": others(function, dtype, at_once)
        for function in (torch.sigmoid, torch.tanh, torch.exp) for dtype in (torch.float32, torch.float64)
        for at_once in (1, 32)}
for what, count in seen.items():
    print(f"{what}: {count} of 4096 are others")
differ = [what for what, count in seen.items() if count]
expected = ["sigmoid, torch.float32, 1 at once", "sigmoid, torch.float64, 1 at once"]
raise SystemExit(0 if differ == expected and torch.__version__.startswith("2.13.0") else f"behaviour changed: {differ}")
PYTHON
