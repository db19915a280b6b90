"""Which state of the hardware's sources a measurement is of."""

import hashlib
from functools import cache
from pathlib import Path

import cores

__all__ = ["hardware_digest"]


@cache
def hardware_digest() -> str:
    """Changes with the sources that the hardware is made from; 64 hexadecimal digits."""
    root = Path(cores.__path__[0])
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
