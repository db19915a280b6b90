"""Lanes by their MACs, and optional units by their names."""

from collections.abc import Collection

from cores.arch.stochastic import Circuit
from cores.config.derived import Derived
from cores.config.rules import ConfigError

__all__ = ["FEATURES", "PRESET_MACS", "feature_fields", "features_of", "preset_fields"]

#: Lanes and memory depths behind each ``--macs`` preset.
_PRESETS: dict[int, dict[str, int]] = {
    16: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=2, input_depth=2048),
    32: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, input_depth=2048),
    64: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=2, pixel_lanes=2, input_depth=2048),
    128: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=4, pixel_lanes=2, input_depth=4096),
    256: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=4, pixel_lanes=2, input_depth=4096),
    512: dict(oc_lanes=32, ic_lanes=32, nnz_lanes=8, pixel_lanes=2, select_fanin=16, input_depth=2048),
    1024: dict(oc_lanes=64, ic_lanes=32, nnz_lanes=8, pixel_lanes=2, select_fanin=16, input_depth=2048),
}

#: The lanes of presets with ``depthwise``, where those above do not go with it: there every lane reaches every channel
#: of a block, and multiplexers of 32 inputs take more LUTs than all else. Half of the weights of a block are multiplied
#: at once, or all, as suits the dense networks that have depthwise layers (docs/scale.md).
_DEPTHWISE: dict[int, dict[str, int]] = {
    512: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=8, pixel_lanes=2, select_fanin=16, input_depth=4096),
    1024: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=16, pixel_lanes=2, select_fanin=16, input_depth=4096),
}

PRESET_MACS = tuple(_PRESETS)

#: Optional units by the names that people use, and the fields that each sets.
FEATURES: dict[str, tuple[str, ...]] = {
    "depthwise": ("depthwise",),
    "fusion": ("depthwise", "local_store"),
    "gather": ("gather",),
    "binary": ("gather", "binary_rows"),
    "winograd": ("winograd",),
    "table": ("table",),
    "product": ("product",),
    "stochastic": ("stochastic_rows", "stochastic_circuit", "stochastic_bits"),
}

#: Fields that say which unit it is, of which 0 is one too.
_WHICH = frozenset({"stochastic_circuit"})


def preset_fields(macs: int, overrides: dict[str, int]) -> dict[str, int]:
    """The fields behind ``--macs``; ``overrides`` replace single ones. Raises ConfigError where there is none."""
    if macs not in _PRESETS:
        presets = ", ".join(map(str, _PRESETS))
        raise ConfigError(f"macs must be one of {presets} (or give the lanes by hand), not {macs!r}")
    lanes = _DEPTHWISE.get(macs, _PRESETS[macs]) if overrides.get("depthwise") else _PRESETS[macs]
    values = {**lanes, **overrides}
    if overrides.get("depthwise") and "input_depth" not in overrides:
        # The same bytes in more banks.
        values["input_depth"] //= values["oc_lanes"] // values["ic_lanes"] or 1
    return values


def features_of(config: Derived) -> list[str]:
    """Names of `FEATURES` that the machine has."""
    return [name for name, fields in FEATURES.items()
            if all(getattr(config, field) for field in fields if field not in _WHICH)]


def feature_fields(config: Derived, names: Collection[str]) -> dict[str, int]:
    """Fields that give a machine of these lanes the named units and no others; a preset those lanes that go with them.

    Raises ConfigError for another name.
    """
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise ConfigError(f"no feature {unknown[0]!r}; there are {', '.join(FEATURES)}")
    wanted = {field for name in names for field in FEATURES[name]}
    others = _other_lanes(config) if "depthwise" in wanted else {}
    oc, ic, nnz = (others.get(name, getattr(config, name)) for name in ("oc_lanes", "ic_lanes", "nnz_lanes"))
    values = {
        # Eight binary lanes for each of the int8 lanes.
        "binary_rows": oc * nnz // ic,
        "stochastic_rows": max(1, oc // 4),
        "stochastic_circuit": int(Circuit.AND_LOOP),
    }
    units = {field: values.get(field, 1) if field in wanted else 0
             for fields in FEATURES.values() for field in fields}
    return {**others, **units}


def _other_lanes(config: Derived) -> dict[str, int]:
    """What ``depthwise`` makes of the lanes and banks of a preset; nothing of lanes that are another's."""
    preset, others = _PRESETS.get(config.macs, {}), _DEPTHWISE.get(config.macs, {})
    if not others or any(getattr(config, name) != value for name, value in preset.items()):
        return {}
    return preset_fields(config.macs, {"depthwise": 1})
