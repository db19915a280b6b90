"""What the program is called."""

import os
import sys

__all__ = ["called", "speaker"]

_SCRIPT = "npugen"


def called() -> str:
    """What the user has typed to start it: ``npugen`` or ``python -m gen``."""
    return _SCRIPT if os.path.basename(sys.argv[0]) == _SCRIPT else "python -m gen"


def speaker(command: str | None = None) -> str:
    """Who says so, at the start of a line on stderr: ``gen run``."""
    return " ".join([called().removeprefix("python -m "), *([command] if command else [])])
