"""Which state of the project's own sources a result is of."""

import hashlib
from functools import cache
from pathlib import Path

from gen.files.read import read_file

__all__ = ["sources_digest"]

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("boards", "cores", "gen", "sim")
_SUFFIXES = frozenset({".py", ".cpp", ".hpp", ".json"})


@cache
def sources_digest(*packages: str) -> str:
    """Changes with the sources of ``packages``, folders or files, else with whatever a measurement in software could
    depend on; 64 hexadecimal digits.
    """
    state = hashlib.sha256()
    for package in packages or _PACKAGES:
        place = _ROOT / package
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.suffix in _SUFFIXES:
                state.update(f"{path.relative_to(_ROOT)}\0".encode() + read_file(path))
    return state.hexdigest()
