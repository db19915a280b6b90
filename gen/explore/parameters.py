"""Parameters of an integer machine and of the program on it: what values they have, and the machine of a point."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boards.board import Board
from boards.presets import USUAL_MACS, default_macs
from boards.registry import BOARDS
from cores.arch.registers import LANES
from cores.config import ALL_PRESET_MACS, FEATURES, PRESET_MACS, PURPOSES, NpuConfig

from .errors import SpaceError
from .space import Point, Space, Value

__all__ = ["BOARD_CLOCK", "DEFAULTS", "IDEAL", "MEMORIES", "config_of", "default_axes", "space_of"]

#: Of ``memory``: a beat a cycle in each direction; else a board's.
IDEAL = "ideal"
MEMORIES = (IDEAL, *BOARDS)
#: Of ``clock``: what is known of the machine on the board (`gen.hw.clock`); else MHz.
BOARD_CLOCK = "board"
_MAX_MHZ = 10_000

_FIELDS = tuple(field.name for field in dataclasses.fields(NpuConfig))

#: What a point has that does not say; a density of 1 leaves all weights as they are.
DEFAULTS: Mapping[str, Value] = {
    "macs": USUAL_MACS, "for": PURPOSES[0], "features": "none", "density": 1.0, "memory": IDEAL, "clock": BOARD_CLOCK}


def _macs(value: Any) -> Value:
    if _whole(value) not in ALL_PRESET_MACS:
        raise ValueError(f"must be one of {', '.join(map(str, ALL_PRESET_MACS))} (or vary the lanes)")
    return _whole(value)


def _purpose(value: Any) -> Value:
    if value not in PURPOSES:
        raise ValueError(f"must be {' or '.join(PURPOSES)}")
    return str(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be an integer")
    return value


def _features(value: Any) -> Value:
    """Names joined by +, in the order of `FEATURES`."""
    names = value if isinstance(value, list) else str(value).replace(",", "+").split("+")
    names = [str(name).strip() for name in names]
    if names in (["none"], []):
        return "none"
    if not FEATURES.keys() >= set(names):
        raise ValueError(f"must be of {', '.join(FEATURES)}, joined by +, or none")
    return "+".join(name for name in FEATURES if name in names)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return float(value)


def _density(value: Any) -> Value:
    if not 0 < _number(value) <= 1:
        raise ValueError("must be above 0 and at most 1")
    return _number(value)


def _memory(value: Any) -> Value:
    if value not in MEMORIES:
        raise ValueError(f"must be one of {', '.join(MEMORIES)}")
    return str(value)


def _clock(value: Any) -> Value:
    if value == BOARD_CLOCK:
        return BOARD_CLOCK
    if not 0 < _number(value) <= _MAX_MHZ:
        raise ValueError(f"must be {BOARD_CLOCK}, or above 0 and at most {_MAX_MHZ:,} MHz")
    return _number(value)


_PARAMETERS: Mapping[str, Callable[[Any], Value]] = {
    "macs": _macs, "for": _purpose, **dict.fromkeys(_FIELDS, _whole), "features": _features, "density": _density,
    "memory": _memory, "clock": _clock}


def space_of(axes: Mapping[str, Any]) -> Space:
    """A space of parameters by their names, each with a value or a list of values.

    Raises SpaceError for an unknown parameter and for a value that it cannot have on any machine.
    """
    unknown = next((name for name in axes if name not in _PARAMETERS), None)
    if unknown is not None:
        raise SpaceError(f"no parameter {unknown!r}; there are {', '.join(_PARAMETERS)}", code="unknown-name")
    return Space({name: [_checked(name, value) for value in _listed(name, values)] for name, values in axes.items()})


def _listed(name: str, values: Any) -> Sequence[Any]:
    if isinstance(values, dict) or values is None:
        raise SpaceError(f"{name}: must be a value or a list of values")
    return values if isinstance(values, list | tuple) else [values]


def _checked(name: str, value: Any) -> Value:
    try:
        return _PARAMETERS[name](value)
    except ValueError as error:
        raise SpaceError(f"{name}: {error}, not {value!r}") from None


def default_axes() -> dict[str, Sequence[Value]]:
    """What is looked at unless something else is asked for: the presets, with the units that any network can use."""
    return {"macs": PRESET_MACS, "features": ("none", "depthwise", "gather", "fusion", "fusion+gather")}


def config_of(board: Board, point: Point) -> NpuConfig:
    """The machine of a point. Raises ConfigError for one that cannot be built."""
    fields = {name: int(value) for name, value in point.items() if name in _FIELDS}
    purpose = str(point.get("for", DEFAULTS["for"]))
    preset = int(point.get("macs", default_macs(purpose))), purpose
    features = str(point.get("features", DEFAULTS["features"]))
    lanes = board.config(*preset, **{name: value for name, value in fields.items()
                                      if name in (*LANES, "select_fanin")})
    units = lanes.feature_fields([] if features == "none" else features.split("+"))
    return board.config(*preset, **{**units, **fields})
