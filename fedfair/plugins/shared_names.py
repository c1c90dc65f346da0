"""A project that has a package `strategies` or `simulations` of its own keeps it, beside fedfair's of that name.

Python knows one package of a name. So fedfair's looks for modules in its own folder first, then in the project's, and
for what it does not define itself in the project's `__init__.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parents[2]


def share(*packages: str) -> None:
    """Let Python find these packages of fedfair together with those of a project, if it has any of such a name."""
    folders = {package: _folders_of_project(package) for package in packages}
    shared = {package: found for package, found in folders.items() if found}
    if shared:
        earlier = {package: sys.modules.pop(package) for package in shared if _is_of_project(package)}
        sys.meta_path.insert(0, _Finder(shared, earlier))


class _Finder(MetaPathFinder):
    """Finds fedfair's packages, with the folders of the project's packages of the same name."""

    def __init__(self, folders: dict[str, list[Path]], earlier: dict[str, ModuleType]) -> None:
        self._folders, self._earlier = folders, earlier

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name not in self._folders:
            return None
        searched = [str(folder) for folder in (_HERE / name, *self._folders[name])]
        spec = spec_from_file_location(name, _HERE / name / "__init__.py", submodule_search_locations=searched)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def with_the_projects(module: ModuleType) -> None:
                """Run fedfair's package, and let it ask the project's for what it does not define."""
                run(module)
                vars(module)["__getattr__"] = self._attribute_of(name, searched, vars(module).get("__getattr__"))

            spec.loader.exec_module = with_the_projects  # type: ignore[method-assign]
        return spec

    def _attribute_of(self, name: str, searched: list[str], lazily: Callable[[str], Any] | None) -> Any:
        """Return the `__getattr__` of a package (PEP 562), which looks into the project's package.

        What fedfair's package imports `lazily` comes first.
        """

        @lru_cache(maxsize=1)
        def project() -> ModuleType | None:
            """Return the project's package, as it was imported before, or run now."""
            if name in self._earlier:
                return self._earlier[name]
            own = next((path for path in (folder / "__init__.py" for folder in self._folders[name]) if path.is_file()),
                       None)
            spec = spec_from_file_location(name, own, submodule_search_locations=searched) if own else None
            if spec is None or spec.loader is None:
                return None
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        def find(attribute: str) -> Any:
            """Return an attribute of fedfair's or of the project's package; raise `AttributeError` if none has it."""
            if lazily is not None:
                with suppress(AttributeError):
                    return lazily(attribute)
            if not attribute.startswith("__") and hasattr(project(), attribute):
                return getattr(project(), attribute)
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

        return find


def _folders_of_project(package: str) -> list[Path]:
    """Return the folders of this name that Python would look into, without those of fedfair or another copy of it."""
    path = [*sys.path]  # Flower's other thread takes entries out of it
    entries = dict.fromkeys(Path(entry or ".").resolve() for entry in path)
    return [entry / package for entry in entries if (entry / package).is_dir()
            and not (entry / "fedfair" / "client_app.py").is_file()]


def _is_of_project(package: str) -> bool:
    """Say whether a package of this name was imported that is not fedfair's."""
    file = getattr(sys.modules.get(package), "__file__", None)
    return package in sys.modules and (file is None or Path(file).resolve().parent != _HERE / package)
