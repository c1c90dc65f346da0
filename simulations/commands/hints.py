"""Settings that a sentence names, as options of the command line."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import Any

from simulations.settings.names import SETTINGS

_NAMED = re.compile(r'\b([a-z_]+) = (\[[^\]]*\]|"[^"]*")')
_OPTIONS = ("encoding", "missing", "without")


def as_options(sentence: str) -> str:
    """Return the settings that a sentence recommends, as options; "" if it names none.

    Lists that are recommended for several columns are put together; of other alternatives the first one is taken.

    Args:
        sentence: Words with settings in TOML, such as `missing = "drop"`.
    """
    found: dict[str, Any] = {}
    for name, text in _NAMED.findall(sentence):
        value = _value(text)
        if name not in SETTINGS or value is None:
            continue
        if isinstance(value, list):
            found[name] = [*dict.fromkeys([*found.get(name, []), *value])]
        else:
            found.setdefault(name, value)
    return " ".join(_option(name, value) for name, value in found.items() if value)


def _value(text: str) -> Any:
    """Return a value in TOML; None for one that is cut off, as a name with brackets is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None


def _option(name: str, value: Any) -> str:
    """Write a setting as an option, quoted for a shell."""
    if name in _OPTIONS:
        names = ",".join(f'"{each}"' if "," in each or '"' in each else each for each in value
                         ) if isinstance(value, list) else value
        return f"--{name} {shlex.quote(names)}"
    listed = "[{}]".format(", ".join(f'"{each}"' for each in value)) if isinstance(value, list) else value
    return f"--set {shlex.quote(f'{name}={listed}')}"
