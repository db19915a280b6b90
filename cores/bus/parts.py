"""What the bus is made of where optional units make a difference: which machine has what is said here."""

from ..config import NpuConfig, part_of
from .burst_check import BurstCheck
from .limits.limit_check import LimitCheck

__all__ = ["check_of"]


def check_of(config: NpuConfig) -> BurstCheck:
    """What is asked of bursts before their addresses go out."""
    return part_of(config, BurstCheck, {"limits": LimitCheck})(config)
