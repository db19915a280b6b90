"""Profiles as scripts read them: plain values, ready for JSON."""

from dataclasses import asdict
from typing import Any

from gen.program.program import Program
from sim.profile import Record, layer_timings

__all__ = ["profile_of"]


def profile_of(program: Program, record: Record, cycles: int, clock_mhz: float) -> dict[str, Any]:
    """The profile of one inference: totals, and `sim.profile.LayerTiming` of each layer.

    ``total``'s cycles are from start to end; its ``macs`` are the dense network's, while utilisation is of those
    left, cycle by cycle.
    """
    layers = layer_timings(program, record, cycles)
    return {
        "clock_mhz": clock_mhz,
        "macs": program.config.macs,
        "total": {
            "cycles": cycles,
            "macs": sum(layer.macs for layer in layers),
            "utilisation": sum(layer.utilisation * layer.cycles for layer in layers) / cycles,
            "fps": clock_mhz * 1e6 / cycles,
            "dram_bytes": sum(layer.dram_bytes for layer in layers),
            **{name: sum(getattr(layer, name) for layer in layers) for name in ("useful", "idle_pixels", "idle_lanes")},
            "stalls": {cause: sum(layer.stalls[cause] for layer in layers) for cause in layers[0].stalls},
        },
        "layers": [asdict(layer) for layer in layers],
    }
