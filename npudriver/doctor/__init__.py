"""Bring-up: a ladder of checks of a device, each of which says in one line what it found.

A check is a `Check` of `LADDER`, in order; the first that fails ends the ladder, as those above it rely on it.
"""

from .check import Bench, CheckError
from .ladder import LADDER, Check, Finding, examine
from .opening import not_opened

__all__ = ["Bench", "Check", "CheckError", "Finding", "LADDER", "examine", "not_opened"]
