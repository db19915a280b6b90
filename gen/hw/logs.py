"""Which boards have run the machine, as far as users' logs in docs/logs tell."""

from collections.abc import Mapping

__all__ = ["LOGS", "standing"]

#: Name of a board -> file of docs/logs with a run on it that succeeded.
LOGS: Mapping[str, str] = {}


def standing(name: str) -> str:
    """A line for reports of the board of that name: whether the machine has run on one."""
    if name in LOGS:
        return f"Tried on hardware: docs/logs/{LOGS[name]} is a log of the board {name}."
    return f"Not tried on hardware: docs/logs has no log of the board {name}."
