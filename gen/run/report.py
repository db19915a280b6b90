"""Profiles as scripts read them: plain values, ready for JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from boards.clock import Clock
from gen.program.program import Program
from sim.profile import Record, layer_timings

from .energy_ratio import energy_shares

__all__ = ["Measured", "profile_of", "slots_per_mac"]


@dataclass(frozen=True, eq=False)
class Measured:
    """One inference of a program: what happened when, and the cycles from start to end."""

    program: Program
    record: Record
    cycles: int


def profile_of(programs: Sequence[Measured], clock: Clock) -> dict[str, Any]:
    """The profile of one run, of a sample or a ``batch``: totals, and `sim.profile.LayerTiming` of each layer.

    ``programs``: the segments of the model that run on the accelerator, without which its cycles stand still.
    ``total``'s ``macs`` are the dense network's, while utilisation is of those left, cycle by cycle. Its
    ``slots_per_mac`` are `slots_per_mac` of all layers, its ``energy_macs`` the energy in multiplications of 8 bits,
    from and to, of which ``energy_share`` is a layer's (`energy_shares`).
    """
    layers = [layer for one in programs for layer in layer_timings(one.program, one.record, one.cycles)]
    cycles, batch = sum(one.cycles for one in programs), programs[0].program.batch
    words = [asdict(layer) for layer in layers]
    per_mac, per_lane_mac = slots_per_mac(words)
    config = programs[0].program.config
    shares, energy = energy_shares(words, config.banks * config.ic_lanes)
    return {
        "clock_mhz": clock.mhz,
        "clock": clock.basis,
        "macs": config.macs,
        "total": {
            "cycles": cycles, "batch": batch, "cycles_per_sample": cycles / batch,
            "macs": sum(layer.macs for layer in layers),
            "utilisation": sum(layer.utilisation * layer.cycles for layer in layers) / cycles,
            "fps": batch * clock.per_second(cycles),
            "dram_bytes": sum(layer.dram_bytes for layer in layers),
            **{name: sum(getattr(layer, name) for layer in layers) for name in ("useful", "idle_pixels", "idle_lanes")},
            "slots_per_mac": per_mac, "slots_per_lane_mac": per_lane_mac, "energy_macs": energy,
            "stalls": {cause: sum(layer.stalls[cause] for layer in layers) for cause in layers[0].stalls},
        },
        "layers": [{**layer, "energy_share": share} for layer, share in zip(words, shares, strict=True)],
    }


def slots_per_mac(layers: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Multiplications that could have been made while ``layers`` of a profile were at work, over those by weights of
    the model that are left; and over these with channels rounded up to lanes. None where the model asks for none.
    """
    asked = sum(layer["useful_macs"] for layer in layers if layer["lane_macs"])
    if not asked:
        return None, None
    slots = sum(layer["slots"] for layer in layers)
    return slots / asked, slots / sum(layer["lane_macs"] for layer in layers)
