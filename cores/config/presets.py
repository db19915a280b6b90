"""Lanes by their MACs, and optional units by their names."""

from collections.abc import Callable, Collection, Iterable, Sequence

from cores.config.core import ConfigError
from cores.config.units import UNITS, Settings

__all__ = [
    "ALL_PRESET_MACS", "COMPUTING_FEATURES", "FEATURES", "MODEL_PURPOSES", "PRESET_MACS", "PURPOSES", "TRIED_FEATURES",
    "feature_fields", "features_of", "features_together", "preset_fields",
]

#: What machines for small devices have in common.
_TINY = dict(pixel_lanes=1, input_depth=4096, queue_depth=1, store_lanes=1, cycles_only=1)
#: Lanes and memory depths of each ``--macs`` preset, by what it is for: networks with zeros among their weights, whose
#: lanes select the channels that have some; or dense ones, whose lanes take the channels as they come, in fewer LUTs;
#: or small devices, on which all that can be narrow is.
_PRESETS: dict[str, dict[int, dict[str, int]]] = {
    "sparse": {
        16: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=2, input_depth=2048),
        32: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, input_depth=2048),
        64: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=2, pixel_lanes=2, input_depth=2048),
        128: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=4, pixel_lanes=2, input_depth=4096),
        256: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=4, pixel_lanes=2, input_depth=4096),
        512: dict(oc_lanes=32, ic_lanes=32, nnz_lanes=8, pixel_lanes=2, select_fanin=16, input_depth=2048),
        1024: dict(oc_lanes=64, ic_lanes=32, nnz_lanes=8, pixel_lanes=2, select_fanin=16, input_depth=2048),
    },
    "dense": {
        16: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=2, input_depth=2048),
        32: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, select_fanin=4, input_depth=2048),
        64: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=4, pixel_lanes=2, select_fanin=2, input_depth=2048),
        128: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=8, pixel_lanes=2, select_fanin=1, input_depth=4096),
        256: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=8, pixel_lanes=2, select_fanin=2, input_depth=4096),
        512: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=16, pixel_lanes=2, select_fanin=1, input_depth=4096),
        1024: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=16, pixel_lanes=2, select_fanin=1, input_depth=4096),
        2048: dict(oc_lanes=32, ic_lanes=32, nnz_lanes=32, pixel_lanes=2, select_fanin=1, input_depth=4096),
        4096: dict(oc_lanes=64, ic_lanes=32, nnz_lanes=32, pixel_lanes=2, select_fanin=1, input_depth=4096),
    },
    "tiny": {
        4: dict(oc_lanes=4, ic_lanes=4, nnz_lanes=1, **_TINY),
        8: dict(oc_lanes=4, ic_lanes=4, nnz_lanes=2, select_fanin=2, **_TINY),
        16: dict(oc_lanes=8, ic_lanes=4, nnz_lanes=2, select_fanin=2, **_TINY),
    },
}
#: What a preset can be for; the first unless something else is asked for.
PURPOSES = tuple(_PRESETS)
#: Those that a machine for a model is chosen from. A tiny one is slower than any of the others.
MODEL_PURPOSES = tuple(purpose for purpose in PURPOSES if purpose != "tiny")

_LANES = ("oc_lanes", "ic_lanes", "pixel_lanes")

#: Sizes of the presets for the first purpose, which any network can use; and of those for any.
PRESET_MACS = tuple(_PRESETS[PURPOSES[0]])
ALL_PRESET_MACS = tuple(sorted({macs for presets in _PRESETS.values() for macs in presets}))

#: Optional units by the names that people use, and the fields that each sets.
FEATURES: dict[str, tuple[str, ...]] = {unit.name: unit.sets for unit in UNITS if not unit.reduces}
#: Those that layers can use, and of these ``--features all``.
TRIED_FEATURES = tuple(unit.name for unit in UNITS if unit.computes)
COMPUTING_FEATURES = tuple(unit.name for unit in UNITS if unit.computes and unit.in_all)


def preset_fields(macs: int, overrides: dict[str, int], purpose: str = PURPOSES[0]) -> dict[str, int]:
    """The fields of a preset; ``overrides`` replace single ones. Raises ConfigError where there is none."""
    if purpose not in _PRESETS:
        raise ConfigError(f"a preset is for {' or '.join(PURPOSES)}, not for {purpose!r}", code="unknown-name")
    presets = _PRESETS[purpose]
    if macs not in presets:
        has_it = [f"--for {other} has it, " for other, others in _PRESETS.items() if macs in others]
        for_it = "" if purpose == PURPOSES[0] else f" with --for {purpose}"
        raise ConfigError(f"macs must be one of {', '.join(map(str, presets))}{for_it} ({''.join(has_it)}or give the "
                          f"lanes by hand), not {macs!r}", code="unknown-name")
    values = {**presets[macs], **overrides}
    if "input_depth" not in overrides and all(isinstance(values[lanes], int) and values[lanes] > 0 for lanes in _LANES):
        # The same bytes, in however many banks. Lanes that cannot be are refused where the machine is made.
        machine = Settings(**values)
        values["input_depth"] = values["input_depth"] * machine.pixel_lanes // max(1, machine.banks)
    return values


def features_of(config: Settings) -> list[str]:
    """Names of `FEATURES` that the machine has."""
    return [unit.name for unit in UNITS if unit.name in FEATURES and unit.is_in(config)]


def feature_fields(config: Settings, names: Collection[str]) -> dict[str, int]:
    """Fields that give a machine of these lanes the named units and no others.

    Raises ConfigError for another name.
    """
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise ConfigError(f"no feature {unknown[0]!r}; there are {', '.join(FEATURES)}", code="unknown-name")
    wanted = {field for name in names for field in FEATURES[name]}
    values = {field: value for unit in UNITS for field, value in unit.standard(config).items()}
    return {field: values.get(field, 1) if field in wanted else 0 for fields in FEATURES.values() for field in fields}


def features_together(make: Callable[[Sequence[str]], object], names: Iterable[str]
                      ) -> tuple[list[str], dict[str, list[str]]]:
    """Those of ``names`` that a machine can have, each beside those before it, and reason -> names of the others.

    ``make`` raises ConfigError for features that it cannot have.
    """
    kept: list[str] = []
    left_out: dict[str, list[str]] = {}
    for name in names:
        try:
            make([*kept, name])
            kept.append(name)
        except ConfigError as error:
            left_out.setdefault(str(error), []).append(name)
    return kept, left_out
