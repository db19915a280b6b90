"""What the program is called."""

import sys
from pathlib import Path

__all__ = ["called", "speaker"]

_SCRIPT = "npugen"


def called() -> str:
    """What the user has typed to start it: ``npugen`` or ``python -m gen``."""
    return _SCRIPT if Path(sys.argv[0]).name == _SCRIPT else "python -m gen"


def speaker(command: str | None = None) -> str:
    """Who says so, at the start of a line on stderr: ``gen run``."""
    return " ".join([called().removeprefix("python -m "), *([command] if command else [])])
