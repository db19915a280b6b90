"""Which values of a configuration's fields can be built, unit by unit."""

import dataclasses

from cores.arch.stochastic import Circuit
from cores.config.derived import Derived
from cores.errors import ArgumentError

__all__ = ["ConfigError", "check"]


class ConfigError(ArgumentError):
    """A configuration that cannot be built; the message says what to change."""


def check(config: Derived) -> None:
    """Raises ConfigError for a value or a combination that cannot be built."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{field.name} must be an integer, not {value!r}")
    for rules in (_lanes, _memories, _switches, _binary, _winograd, _stochastic, _depthwise):
        rules(config)


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _require(config: Derived, name: str, condition: bool, what: str) -> None:
    if not condition:
        raise ConfigError(f"{name} must {what}, not {getattr(config, name)}")


def _lanes(config: Derived) -> None:
    tn, tm, dn = config.ic_lanes, config.oc_lanes, config.nnz_lanes
    _require(config, "ic_lanes", tn in (8, 16, 32), "be 8, 16 or 32 (the AXI data bus is 8 * ic_lanes bits)")
    _require(config, "nnz_lanes", _is_power_of_two(dn) and dn <= tn, f"be a power of two up to ic_lanes={tn}")
    _require(config, "oc_lanes", _is_power_of_two(tm) and tn <= tm <= 16 * tn,
             f"be a power of two from ic_lanes={tn} to {16 * tn}, as a store writes whole channel blocks")
    _require(config, "pixel_lanes", config.pixel_lanes in (1, 2), "be 1 or 2")
    fanin = config.select_fanin
    _require(config, "select_fanin", _is_power_of_two(fanin) and tn // dn <= fanin <= tn,
             f"be a power of two from ic_lanes / nnz_lanes={tn // dn} to ic_lanes={tn}")
    _require(config, "acc_width", 24 <= config.acc_width <= 32, "be in 24..32")
    _require(config, "multiplier_width", config.multiplier_width in (18, 25, 27), "be 18, 25 or 27")
    _require(config, "bare_blocks", config.bare_blocks == 0 or config.multiplier_width == 18,
             f"be 0 with multipliers of {config.multiplier_width} bits")


def _memories(config: Derived) -> None:
    # Rings and FIFOs of the memory engines take whole bursts of 256 beats.
    for name, low, high in (("input_depth", 256, 16384), ("acc_depth", 64, 4096), ("weight_depth", 512, 16384),
                            ("side_depth", 512, 16384), ("queue_depth", 4, 64), ("outstanding_reads", 2, 64),
                            ("outstanding_writes", 2, 64)):
        value = getattr(config, name)
        _require(config, name, _is_power_of_two(value) and low <= value <= high, f"be a power of two in {low}..{high}")
    _require(config, "address_width", 32 <= config.address_width <= 64, "be in 32..64")
    _require(config, "axi_prot", 0 <= config.axi_prot <= 7, "be in 0..7")


def _switches(config: Derived) -> None:
    for name in ("bare_blocks", "depthwise", "gather", "binary_engine", "local_store", "table", "product"):
        _require(config, name, getattr(config, name) in (0, 1), "be 0 or 1")


def _rows(config: Derived, name: str) -> int:
    """``name``: the field of a unit's output lanes, of which one step takes 32 at the most."""
    rows: int = getattr(config, name)
    tm = config.oc_lanes
    _require(config, name, rows == 0 or _is_power_of_two(rows) and max(1, tm // 32) <= rows <= tm,
             f"be 0 or a power of two from {max(1, tm // 32)} to oc_lanes={tm}")
    return rows


def _binary(config: Derived) -> None:
    rows = _rows(config, "binary_rows")
    _require(config, "gather", config.gather == 1 or not rows, "be 1 with binary_rows: maps of signs are gathered")
    _require(config, "binary_engine", config.binary_engine == 0 or rows != 0, "be 0 without binary_rows")


def _winograd(config: Derived) -> None:
    _require(config, "winograd", config.winograd in (0, 1, 2), "be 0, 1 or 2")
    if config.winograd == 2:
        _require(config, "multiplier_width", config.pixel_lanes == 1 or config.multiplier_width == 18,
                 "be 18 with winograd=2 and two pixel_lanes: products of 22 bits do not share a multiplier")
        _require(config, "binary_rows", config.binary_rows == 0, "be 0 with winograd=2")


def _stochastic(config: Derived) -> None:
    if not _rows(config, "stochastic_rows"):
        for name in ("stochastic_circuit", "stochastic_bits"):
            _require(config, name, getattr(config, name) == 0, "be 0 without stochastic_rows")
        return
    _require(config, "stochastic_rows", config.winograd != 2, "be 0 with winograd=2, whose activations have 10 bits")
    _require(config, "stochastic_rows", not config.binary_engine, "be 0 with binary_engine=1, which shares no sums")
    _require(config, "stochastic_circuit", config.stochastic_circuit in set(Circuit),
             "be " + ", ".join(f"{circuit.value} ({circuit.label})" for circuit in Circuit))
    bits = config.stochastic_bits
    _require(config, "stochastic_bits", bits in (1, 2, 4, 8), "be 1, 2, 4 or 8 with stochastic_rows")
    _require(config, "stochastic_bits", bits == 1 or not config.circuit.serial,
             f"be 1 with {config.circuit.label}, whose bits depend on those before")


def _depthwise(config: Derived) -> None:
    if not config.depthwise:
        return
    tn = config.ic_lanes
    _require(config, "pixel_lanes", config.pixel_lanes == 2, "be 2 with depthwise")
    _require(config, "select_fanin", config.select_fanin == tn,
             f"be ic_lanes={tn} with depthwise: every lane reaches every channel")
    _require(config, "oc_lanes", config.oc_groups <= 2, f"be at most {2 * tn} with depthwise")
    _require(config, "nnz_lanes", config.nnz_lanes % config.banks == 0,
             f"be a multiple of {config.banks} with depthwise, the pixels read at once")
