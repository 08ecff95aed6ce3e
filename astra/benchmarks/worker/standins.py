"""Light modules in the place of packages that a benchmark imports but, in a worker, never needs: clients of models."""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _Anything(ModuleType):
    """A module of which any name can be imported; each is a class, so that it can be subclassed and annotated with."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__module__": self.__name__})


def stand_in(name: str, **attributes: Any) -> None:
    """Make ``import name`` (and what lies above it) give a module without content beside these attributes."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        path = ".".join(parts[:depth])
        if path in sys.modules:
            continue
        module = _Anything(path)
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(path, None, is_package=True)
        sys.modules[path] = module
    for attribute, value in attributes.items():
        setattr(sys.modules[name], attribute, value)


def bare_package(name: str, folder: Path) -> None:
    """Make ``name`` a package of the modules in ``folder`` whose own ``__init__`` does not run."""
    module = ModuleType(name)
    module.__path__ = [str(folder)]
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = module
