"""The one configuration object: hardware, compiler, simulators and exporters all read it."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cores.arch.numerics import SIGN_BLOCKS
from cores.arch.stochastic import Circuit
from cores.arch.stochastic import sum_bits as stochastic_sum_bits
from cores.errors import ArgumentError

__all__ = ["FEATURES", "ConfigError", "NpuConfig", "PRESET_MACS"]

#: Lanes and memory depths behind each ``--macs`` preset.
_PRESETS: dict[int, dict[str, int]] = {
    16: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=2, input_depth=2048),
    32: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, input_depth=2048),
    64: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=2, pixel_lanes=2, input_depth=2048),
    128: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=4, pixel_lanes=2, input_depth=4096),
    256: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=4, pixel_lanes=2, input_depth=4096),
    512: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=8, pixel_lanes=2, input_depth=4096),
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
#: Fields that files made before them lack: a machine without the unit is the one that it was, with its programs.
_LATER = frozenset({"table", "product", "stochastic_rows", "stochastic_circuit", "stochastic_bits"})
#: Bytes of a ``config.json`` beyond any.
_MAX_FILE = 1 << 16


class ConfigError(ArgumentError):
    """A configuration that cannot be built; the message says what to change."""


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True)
class NpuConfig:
    """Parameters of one generated NPU.

    A *beat* is ``ic_lanes`` bytes: one pixel of one channel block, one word of the AXI data bus and one entry of an
    input-buffer bank. Depths are counted in beats unless said otherwise.

    Raises ConfigError (a ValueError) for a value or a combination that cannot be built.
    """

    #: Output channels computed at once (tm).
    oc_lanes: int = 32
    #: Input channels of a block (tn); also the bytes of a beat.
    ic_lanes: int = 16
    #: Weights of one block multiplied in a step, per output channel (dn).
    nnz_lanes: int = 4
    #: Pixels computed at once (px); two share a multiplier where it is wide enough.
    pixel_lanes: int = 2
    #: Channels that one multiplier can select from; 0 stands for all ``ic_lanes``.
    select_fanin: int = 0
    #: Bits of an accumulator; the compiler proves that every layer fits.
    acc_width: int = 27
    #: Width of the multiplier port that carries activations: 27 DSP48E2, 25 DSP48E1, 18 elsewhere.
    multiplier_width: int = 27
    #: Entries of each of the ``banks`` input-buffer banks.
    input_depth: int = 4096
    #: Words (``oc_lanes * pixel_lanes`` accumulators each) of each of the two accumulator banks.
    acc_depth: int = 256
    #: Beats of the weight ring.
    weight_depth: int = 1024
    #: Beats of the ring that carries channel parameters and residuals to the store engine.
    side_depth: int = 512
    #: Instructions each queue holds.
    queue_depth: int = 16
    #: Read bursts in flight.
    outstanding_reads: int = 16
    #: Write bursts in flight.
    outstanding_writes: int = 8
    #: Bits of an AXI address.
    address_width: int = 40
    #: 1: groups of output lanes can work on different pixels, and reduction lanes on different taps: layers with few
    #: output channels and depthwise layers fill the array (docs/architecture.md, "Spread words").
    depthwise: int = 0
    #: 1: loads gather runs of bytes: layers of few input channels take kernel rows as channels, and signs come as bits.
    gather: int = 0
    #: Output lanes of the binary unit, each with 8 * ic_lanes bits of each of ``pixel_lanes`` pixels; 0: no unit.
    #: ``oc_lanes * nnz_lanes / ic_lanes`` make eight times the MACs, ``oc_lanes`` populate it fully.
    binary_rows: int = 0
    #: 1: the binary unit is an engine of its own, with its own input buffer and accumulators, instead of a part of the
    #: compute engine. Binary and other COMPUTEs then cannot add to the same sums.
    binary_engine: int = 0
    #: Winograd F(2x2,3x3): 0 without, 1 narrow (transformed values of 8 bits), 2 exact (all activations have 10 bits in
    #: the machine, all weights 12).
    winograd: int = 0
    #: 1: a STORE can write to the input buffer, so that a pointwise layer follows a depthwise one without memory.
    local_store: int = 0
    #: 1: a STORE can look its results up in a table of 256 bytes: any function of a value.
    table: int = 0
    #: 1: a STORE can multiply its results by those of another tensor, or by a vector of one number a channel.
    product: int = 0
    #: Output lanes of the stochastic unit, each with streams of ic_lanes channels of each of ``pixel_lanes`` pixels; 0:
    #: no unit.
    stochastic_rows: int = 0
    #: How they add the products of their streams: a `cores.arch.stochastic.Circuit`.
    stochastic_circuit: int = 0
    #: Bits of a stream that are made in a cycle; 0 without the unit.
    stochastic_bits: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{field.name} must be an integer, not {value!r}")
        if self.select_fanin == 0:
            object.__setattr__(self, "select_fanin", self.ic_lanes)
        tn, tm, dn = self.ic_lanes, self.oc_lanes, self.nnz_lanes
        self._require("ic_lanes", tn in (8, 16, 32), "be 8, 16 or 32 (the AXI data bus is 8 * ic_lanes bits)")
        self._require("nnz_lanes", _is_power_of_two(dn) and dn <= tn, f"be a power of two up to ic_lanes={tn}")
        self._require("oc_lanes", _is_power_of_two(tm) and tn <= tm <= 16 * tn,
                      f"be a power of two from ic_lanes={tn} to {16 * tn}, as a store writes whole channel blocks")
        self._require("pixel_lanes", self.pixel_lanes in (1, 2), "be 1 or 2")
        self._require("select_fanin", _is_power_of_two(self.select_fanin) and tn // dn <= self.select_fanin <= tn,
                      f"be a power of two from ic_lanes / nnz_lanes={tn // dn} to ic_lanes={tn}")
        self._require("acc_width", 24 <= self.acc_width <= 32, "be in 24..32")
        self._require("multiplier_width", self.multiplier_width in (18, 25, 27), "be 18, 25 or 27")
        # Rings and FIFOs of the memory engines take whole bursts of 256 beats.
        for name, low, high in (("input_depth", 256, 16384), ("acc_depth", 64, 4096), ("weight_depth", 512, 16384),
                                ("side_depth", 512, 16384), ("queue_depth", 4, 64), ("outstanding_reads", 2, 64),
                                ("outstanding_writes", 2, 64)):
            value = getattr(self, name)
            self._require(name, _is_power_of_two(value) and low <= value <= high, f"be a power of two in {low}..{high}")
        self._require("address_width", 32 <= self.address_width <= 64, "be in 32..64")
        for name in ("depthwise", "gather", "binary_engine", "local_store", "table", "product"):
            self._require(name, getattr(self, name) in (0, 1), "be 0 or 1")
        rows = self.binary_rows
        self._require("binary_rows", rows == 0 or _is_power_of_two(rows) and max(1, tm // 32) <= rows <= tm,
                      f"be 0 or a power of two from {max(1, tm // 32)} to oc_lanes={tm}")
        self._require("gather", self.gather == 1 or not rows, "be 1 with binary_rows: maps of signs are gathered")
        self._require("binary_engine", self.binary_engine == 0 or rows != 0, "be 0 without binary_rows")
        self._require("winograd", self.winograd in (0, 1, 2), "be 0, 1 or 2")
        if self.winograd == 2:
            self._require("multiplier_width", self.pixel_lanes == 1 or self.multiplier_width == 18,
                          "be 18 with winograd=2 and two pixel_lanes: products of 22 bits do not share a multiplier")
            self._require("binary_rows", self.binary_rows == 0, "be 0 with winograd=2")
        self._check_stochastic()
        if self.depthwise:
            self._require("pixel_lanes", self.pixel_lanes == 2, "be 2 with depthwise")
            self._require("select_fanin", self.select_fanin == tn,
                          f"be ic_lanes={tn} with depthwise: every lane reaches every channel")
            self._require("oc_lanes", self.oc_groups <= 2, f"be at most {2 * tn} with depthwise")
            self._require("nnz_lanes", dn % self.banks == 0,
                          f"be a multiple of {self.banks} with depthwise, the pixels read at once")

    def _check_stochastic(self) -> None:
        rows, tm = self.stochastic_rows, self.oc_lanes
        self._require("stochastic_rows", rows == 0 or _is_power_of_two(rows) and max(1, tm // 32) <= rows <= tm,
                      f"be 0 or a power of two from {max(1, tm // 32)} to oc_lanes={tm}")
        if not rows:
            for name in ("stochastic_circuit", "stochastic_bits"):
                self._require(name, getattr(self, name) == 0, "be 0 without stochastic_rows")
            return
        self._require("stochastic_rows", self.winograd != 2, "be 0 with winograd=2, whose activations have 10 bits")
        self._require("stochastic_rows", not self.binary_engine, "be 0 with binary_engine=1, which shares no sums")
        self._require("stochastic_circuit", self.stochastic_circuit in set(Circuit),
                      "be " + ", ".join(f"{circuit.value} ({circuit.label})" for circuit in Circuit))
        self._require("stochastic_bits", self.stochastic_bits in (1, 2, 4, 8), "be 1, 2, 4 or 8 with stochastic_rows")
        self._require("stochastic_bits", self.stochastic_bits == 1 or not self.circuit.serial,
                      f"be 1 with {self.circuit.label}, whose bits depend on those before")

    def _require(self, name: str, condition: bool, what: str) -> None:
        if not condition:
            raise ConfigError(f"{name} must {what}, not {getattr(self, name)}")


    # -- derived -------------------------------------------------------------------------------------------------

    @property
    def macs(self) -> int:
        """int8 multiply-accumulates a cycle."""
        return self.oc_lanes * self.nnz_lanes * self.pixel_lanes

    @property
    def beat_bytes(self) -> int:
        """Bytes of a beat: the AXI data bus, one pixel of one channel block."""
        return self.ic_lanes

    @property
    def beat_bits(self) -> int:
        return 8 * self.beat_bytes

    @property
    def activation_bits(self) -> int:
        """Bits of an activation in the input buffer and at the multipliers; a beat has 8."""
        return 10 if self.winograd == 2 else 8

    @property
    def weight_bits(self) -> int:
        """Bits of a weight in the weight stream."""
        return 12 if self.winograd == 2 else 8

    @property
    def array_sum_bits(self) -> int:
        """Bits of a sum of ``nnz_lanes`` products."""
        return self.activation_bits + self.weight_bits + (self.nnz_lanes - 1).bit_length()

    @property
    def sum_bits(self) -> int:
        """Bits of what is added to an accumulator at once, by the multiplier array or another unit."""
        streams = stochastic_sum_bits(self.ic_lanes) if self.stochastic_rows else 0
        return max(self.array_sum_bits, streams)

    @property
    def entry_bits(self) -> int:
        """Bits of an entry of an input-buffer bank: a beat, its activations extended to ``activation_bits``."""
        return self.ic_lanes * self.activation_bits

    @property
    def groups_dense(self) -> int:
        """Steps that a dense block takes (tn / dn)."""
        return self.ic_lanes // self.nnz_lanes

    @property
    def oc_groups(self) -> int:
        """Channel blocks that one set of output lanes makes (tm / tn)."""
        return self.oc_lanes // self.ic_lanes

    @property
    def banks(self) -> int:
        """Input-buffer banks: pixels of a block read at once."""
        return self.pixel_lanes * self.oc_groups if self.depthwise else self.pixel_lanes

    @property
    def write_lanes(self) -> int:
        """Beats that are written to the input buffer at once, to neighbouring banks."""
        return self.pixel_lanes if self.gather else 1

    @property
    def window_reads(self) -> int:
        """Reads of ``banks`` pixels that the taps of one word of a depthwise window reach over."""
        return (self.banks + self.nnz_lanes - 2) // self.banks + 1

    @property
    def word_places(self) -> int:
        """Places of an accumulator word: sums of one pixel from one group of output lanes."""
        return self.pixel_lanes * self.oc_groups

    @property
    def groups_share(self) -> bool:
        """Whether the groups of a word can hold further columns or rows of one block."""
        return self.banks > self.pixel_lanes

    def word_columns(self, *, spread: bool) -> int:
        """Output columns of an accumulator word; ``spread``: all groups hold columns of one block."""
        return self.banks if spread else self.pixel_lanes

    @property
    def index_bits(self) -> int:
        """Bits of the channel index beside a weight; one that nothing reads where there is nothing to select."""
        return max(1, (self.select_fanin - 1).bit_length())

    @property
    def weight_beats(self) -> int:
        """Beats of the weights of one step."""
        return math.ceil(self.oc_lanes * self.nnz_lanes * self.weight_bits / self.beat_bits)

    @property
    def index_beats(self) -> int:
        """Beats of the indices of one step (indexed mode only)."""
        return math.ceil(self.oc_lanes * self.nnz_lanes * self.index_bits / self.beat_bits)

    def step_beats(self, *, indexed: bool = False, binary: bool = False, stochastic: bool = False) -> int:
        """Beats of the weight ring that a step takes."""
        if binary or stochastic:
            return self.binary_rows if binary else self.stochastic_rows
        return self.weight_beats + (self.index_beats if indexed else 0)

    @property
    def binary_bits(self) -> int:
        """Channels of a block of a binary COMPUTE, a bit each: they fill an entry of the input buffer."""
        return self.beat_bits

    @property
    def sign_bytes(self) -> int:
        """Bytes of the signs of a pixel of an int8 block."""
        return self.beat_bytes // SIGN_BLOCKS

    @property
    def binary_groups(self) -> int:
        """Groups of ``binary_rows`` output lanes, the steps of a block of a binary COMPUTE; 0 without the unit."""
        return self.oc_lanes // self.binary_rows if self.binary_rows else 0

    @property
    def binary_macs(self) -> int:
        """Products of bits that the binary unit makes in a cycle."""
        return self.binary_bits * self.binary_rows * self.pixel_lanes

    @property
    def circuit(self) -> Circuit:
        """Of the stochastic unit."""
        return Circuit(self.stochastic_circuit)

    @property
    def stochastic_groups(self) -> int:
        """Groups of ``stochastic_rows`` output lanes, the steps of a block of a stochastic COMPUTE; 0 without the unit.
        """
        return self.oc_lanes // self.stochastic_rows if self.stochastic_rows else 0

    @property
    def joins_sums(self) -> bool:
        """Whether sums of another unit than the multiplier array go to the same accumulators."""
        return bool(self.binary_rows or self.stochastic_rows)

    @property
    def acc_lanes(self) -> int:
        return self.oc_lanes * self.pixel_lanes

    def window_base(self, lane: int) -> int:
        """First channel that reduction lane ``lane`` can select; its index counts from there."""
        return lane * self.groups_dense // self.select_fanin * self.select_fanin

    @property
    def digest(self) -> int:
        """32-bit fingerprint of what a program depends on; a program runs only where it matches."""
        return int.from_bytes(hashlib.sha256(self.to_json().encode()).digest()[:4], "little")

    # -- making, saving ------------------------------------------------------------------------------------------

    @classmethod
    def preset(cls, macs: int, **overrides: int) -> Self:
        """The configuration behind ``--macs``; ``overrides`` replace single fields.

        Raises ConfigError when there is no such preset.
        """
        if macs not in _PRESETS:
            presets = ", ".join(map(str, _PRESETS))
            raise ConfigError(f"macs must be one of {presets} (or give the lanes by hand), not {macs!r}")
        values = {**_PRESETS[macs], **overrides}
        if overrides.get("depthwise") and "input_depth" not in overrides:
            # The same bytes in more banks.
            values["input_depth"] //= values["oc_lanes"] // values["ic_lanes"] or 1
        return cls(**values)

    @property
    def features(self) -> list[str]:
        """Names of `FEATURES` that the machine has."""
        return [name for name, fields in FEATURES.items()
                if all(getattr(self, field) for field in fields if field not in _WHICH)]

    def feature_fields(self, names: Collection[str]) -> dict[str, int]:
        """Fields that give a machine of these lanes the named units of `FEATURES` and no others.

        Raises ConfigError for an unknown name.
        """
        unknown = [name for name in names if name not in FEATURES]
        if unknown:
            raise ConfigError(f"no feature {unknown[0]!r}; there are {', '.join(FEATURES)}")
        wanted = {field for name in names for field in FEATURES[name]}
        values = {
            # Eight binary lanes for each of the int8 lanes.
            "binary_rows": self.oc_lanes * self.nnz_lanes // self.ic_lanes,
            "stochastic_rows": max(1, self.oc_lanes // 4),
            "stochastic_circuit": int(Circuit.AND_LOOP),
        }
        return {field: values.get(field, 1) if field in wanted else 0
                for fields in FEATURES.values() for field in fields}

    def to_dict(self) -> dict[str, int]:
        """All fields but those of `_LATER` that are 0."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value or name not in _LATER}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Raises ConfigError for an unknown field, one that is missing, or a bad value."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown configuration field {unknown[0]!r}; known: {', '.join(sorted(known))}")
        missing = sorted(known - set(values) - _LATER)
        if missing:
            raise ConfigError(f"configuration without {', '.join(missing)}; all fields must be there, as in the "
                              "config.json that the command `build` writes")
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ConfigError when ``text`` is not a configuration."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:     # ValueError also of a number of thousands of digits
            raise ConfigError(f"configuration is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"configuration must be a JSON object, not {type(values).__name__}")
        return cls.from_dict(values)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a ``config.json``. Raises ConfigError with the file's name."""
        try:
            if path.stat().st_size > _MAX_FILE:
                raise ConfigError(f"no configuration has {path.stat().st_size:,} bytes")
            return cls.from_json(path.read_text())
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except (UnicodeDecodeError, ConfigError) as error:
            raise ConfigError(f"{path}: {error}") from None
