"""What the program is called."""

import os
import sys

__all__ = ["called", "speaker"]

_SCRIPT = "npugen"


def called() -> str:
    """What the user has typed to start it: ``npugen``, ``python -m npugen`` or ``python -m gen``."""
    folder, name = os.path.split(sys.argv[0])
    if name == _SCRIPT:
        return _SCRIPT
    return f"python -m {_SCRIPT if os.path.basename(folder) == _SCRIPT and name == '__main__.py' else 'gen'}"


def speaker(command: str | None = None) -> str:
    """Who says so, at the start of a line on stderr: ``gen run``."""
    return " ".join([called().removeprefix("python -m "), *([command] if command else [])])
