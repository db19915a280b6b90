"""What an optional unit says of itself to all that build, choose, estimate or ask for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cores.config.core import Core

__all__ = ["Unit"]

#: What a component's area grows with; each number is a term of a sum, its factor is fitted (`gen.hw.area`).
AreaTerms = Callable[[Any], Sequence[float]]


def _ones(_config: Core) -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Unit:
    """An optional unit of the machine.

    ``settings``: a class with its fields of `NpuConfig`, what follows from them, what it changes of the core (by
    overriding) and its rules (`Core.check`). ``fields``: those that ``--features NAME`` sets, ``needs``: those of other
    units that it sets as well. ``choices``: those of ``fields`` of which 0 is a choice like others.
    """

    name: str
    settings: type[Core]
    fields: tuple[str, ...]
    needs: tuple[str, ...] = ()
    choices: frozenset[str] = frozenset()
    #: Its only field says whether it is there.
    switch: bool = False
    #: Its fields are in every ``config.json``; otherwise only those that are not 0, so that a machine without the unit
    #: is the one that it was before there was such a unit, and runs the same programs.
    always_written: bool = False
    #: Goes up where what its instructions compute changes: programs of before do not run on machines with the unit.
    revision: int = 0
    #: Values of fields in a machine of these lanes; 1 of those that are not named.
    standard: Callable[[Core], Mapping[str, int]] = _ones
    #: Component of the machine -> what its area grows with by this unit.
    area: Mapping[str, AreaTerms] = field(default_factory=dict)
    #: Whether layers can use it. No search tries others.
    computes: bool = True
    #: Whether it is part of ``--features all``, if layers can use it. Searches try it in any case.
    in_all: bool = True
    #: It makes a machine smaller, not more able: a choice of presets and by hand, none of `FEATURES`.
    reduces: bool = False
    #: Whether the importer makes other layers where the machine has it, so that the processor is left less.
    imports: bool = False

    @property
    def sets(self) -> tuple[str, ...]:
        """Fields that ``--features NAME`` sets."""
        return (*self.needs, *self.fields)

    def is_in(self, config: Core) -> bool:
        """Whether a machine has it."""
        return all(getattr(config, name) for name in self.sets if name not in self.choices)
