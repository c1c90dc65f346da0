"""Another Python environment: the packages of this one, behind those that a test puts in front."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path


def other_environment(folder: Path) -> Path:
    """Make an environment with Flower's programs; return the folder of its own packages, which come first."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "behind.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    for script in Path(sys.executable).parent.glob("fl[ow]*"):
        _, _, rest = script.read_text().partition("\n")
        (folder / "bin" / script.name).write_text(f"#!{folder / 'bin' / 'python'}\n{rest}")
        (folder / "bin" / script.name).chmod(0o755)
    return packages
