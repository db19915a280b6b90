"""Where the project's files are, and where results are kept that take long to make again."""

import os
import tomllib
from functools import cache
from pathlib import Path

import platformdirs

from cores.errors import NpugenError
from npudriver.files import read_text

__all__ = ["FolderError", "cache_folder", "checkout"]

_NAME = "npugen"
_CHOSEN = "NPUGEN_BUILD"


class FolderError(NpugenError):
    """A place for results where there can be none."""

    code = "bad-folder"


@cache
def checkout() -> Path | None:
    """The folder of the sources that run, or None where the package is installed."""
    root = Path(__file__).resolve().parents[1]
    try:
        project = tomllib.loads(read_text(root / "pyproject.toml"))["project"]["name"]
    except (OSError, ValueError, KeyError):  # what other packages leave beside ours is no checkout
        return None
    return root if project == _NAME else None


def cache_folder() -> Path:
    """NPUGEN_BUILD, else the checkout's ``build``, else the user's folder for caches: never where we are installed.

    Raises FolderError where NPUGEN_BUILD cannot be one.
    """
    if chosen := os.environ.get(_CHOSEN):
        folder = Path(chosen)
        at = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), folder)
        if os.path.lexists(at) and not at.is_dir():
            raise FolderError(f"{_CHOSEN}={chosen}: {at} is no folder; name one where results can be kept")
        return folder
    root = checkout()
    return platformdirs.user_cache_path(_NAME) if root is None else root / "build"
