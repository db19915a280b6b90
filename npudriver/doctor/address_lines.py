"""Lines of the register port's addresses that are stuck, found by which registers are seen in place of others."""

from __future__ import annotations

from typing import Mapping, Sequence

__all__ = ["lost_writes", "seen_elsewhere", "shadows"]

#: The lowest line that tells registers apart, which are of four bytes.
_FIRST = 2


def _named(line: int, level: int) -> str:
    return f"address line {line} of the register port is stuck at {level}"


def seen_elsewhere(wanted: Mapping[int, int], found: Mapping[int, int]) -> str:
    """The line by which reads lead to others of the same registers, "" if none explains them. Address -> value."""
    for line in range(_FIRST, max(wanted).bit_length()):
        for level in (0, 1):
            if all(found[at] == wanted.get(at & ~(1 << line) | level << line) for at in wanted):
                return _named(line, level)
    return ""


def shadows(addresses: Sequence[int], known: Sequence[int]) -> Mapping[int, Sequence[int]]:
    """Line -> where the ``known`` registers would be seen once more, were it stuck at 0: of lines that none of their
    addresses has, up to the last of all ``addresses``.
    """
    return {line: [at | 1 << line for at in known]
            for line in range(max(known).bit_length(), max(addresses).bit_length())}


def lost_writes(arrived: Mapping[int, bool]) -> str:
    """The line by which writes to some registers are lost, or all lines that explain it; "" if none does.

    ``arrived``: address -> whether a write there has changed what is read there.
    """
    if all(arrived.values()) or not any(arrived.values()):
        return ""
    explained = [_named(line, level) for line in range(_FIRST, max(arrived).bit_length()) for level in (0, 1)
                 if all((at >> line & 1 == level) == here for at, here in arrived.items())]
    return ", or ".join(explained)
