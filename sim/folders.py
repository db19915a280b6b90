"""Where the project's files are, and where results are kept that take long to make again."""

import os
import tomllib
from functools import cache
from pathlib import Path

import platformdirs

__all__ = ["cache_folder", "checkout"]

_NAME = "npugen"


@cache
def checkout() -> Path | None:
    """The folder of the sources that run, or None where the package is installed."""
    root = Path(__file__).resolve().parents[1]
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text())["project"]["name"]
    except (OSError, ValueError, KeyError):  # what other packages leave beside ours is no checkout
        return None
    return root if project == _NAME else None


def cache_folder() -> Path:
    """NPUGEN_BUILD, else the checkout's ``build``, else the user's folder for caches: never where we are installed."""
    if chosen := os.environ.get("NPUGEN_BUILD"):
        return Path(chosen)
    root = checkout()
    return platformdirs.user_cache_path(_NAME) if root is None else root / "build"
