"""What it means that a device cannot be opened."""

from __future__ import annotations

from ..errors import DriverError
from .ladder import Finding

__all__ = ["not_opened"]

#: Code of the error -> what is most likely wrong, what to do next.
_CAUSES = {
    "no-device": ("the bitstream or the kernel module is not loaded, or the device tree has another name",
                  "load both, see docs/driver.md; `ls /sys/class/uio` shows the devices, --device uio:NAME takes one"),
    "transport": ("nothing answers there, or what answers is no server of this project",
                  "start `npudriver serve` (or the SoC's bridge) on the board, and compare address and port"),
}


def not_opened(error: DriverError) -> Finding | None:
    """The finding of an ``error`` of opening the device; None for one that says that the call was wrong."""
    if error.code not in _CAUSES:
        return None
    wrong, following = _CAUSES[error.code]
    return Finding("open", str(error), wrong, following)
