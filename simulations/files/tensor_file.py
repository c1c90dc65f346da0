"""Files of tensors, whose errors are those of other files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

_NUMBER = re.compile(r"os error (\d+)")


def save_tensors(tensors: Mapping[str, Tensor], file: Path, described: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file of safetensors.

    Args:
        tensors: By name; contiguous.
        file: The file.
        described: What it says of them.

    Raises:
        OSError: If it cannot be written, as on a full disk; safetensors has an error of its own for that.
    """
    try:
        save_file(dict(tensors), file, None if described is None else dict(described))
    except SafetensorError as error:
        number = _NUMBER.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
