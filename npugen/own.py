"""Whether the modules that Python finds are this package's: their names are short, and others may have them, too."""

import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["MODULES", "require_own"]

#: What is installed beside this package.
MODULES = ("boards", "cores", "gen", "npudriver", "sim")


def require_own() -> None:
    """Raises ImportError, in one line, where another module of such a name is found first."""
    folder = Path(__file__).resolve().parents[1]
    for name in MODULES:
        loaded = sys.modules.get(name)
        spec = loaded.__spec__ if loaded is not None else find_spec(name)
        place = None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)
        if place is None:
            raise ImportError(f"npugen: its module {name} is missing beside {folder / 'npugen'}; install npugen again")
        if Path(place).resolve().parent not in (folder / name, folder):
            raise ImportError(f"npugen: Python finds another module {name}, {place}, before npugen's in {folder}; "
                              "rename it, or run Python elsewhere or in an environment of its own")
