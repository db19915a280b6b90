"""The one configuration object: hardware, compiler, simulators and exporters all read it."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

__all__ = ["ConfigError", "NpuConfig", "PRESET_MACS"]

#: Lanes (oc, ic, nnz, pixel) and memory depths behind each ``--macs`` preset.
_PRESETS: dict[int, dict[str, int]] = {
    16: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=2, input_depth=2048),
    32: dict(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, input_depth=2048),
    64: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=2, pixel_lanes=2, input_depth=2048),
    128: dict(oc_lanes=16, ic_lanes=16, nnz_lanes=4, pixel_lanes=2, input_depth=4096),
    256: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=4, pixel_lanes=2, input_depth=4096),
    512: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=8, pixel_lanes=2, input_depth=4096),
}

PRESET_MACS = tuple(_PRESETS)


class ConfigError(ValueError):
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
    #: Entries of each of the ``pixel_lanes`` input-buffer banks.
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

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{field.name} must be an integer, not {value!r}")
        if self.select_fanin == 0:
            object.__setattr__(self, "select_fanin", self.ic_lanes)
        checks = [
            (self.ic_lanes in (8, 16, 32),
             f"ic_lanes must be 8, 16 or 32 (the AXI data bus is 8 * ic_lanes bits), not {self.ic_lanes}"),
            (_is_power_of_two(self.nnz_lanes) and self.nnz_lanes <= self.ic_lanes,
             f"nnz_lanes must be a power of two up to ic_lanes={self.ic_lanes}, not {self.nnz_lanes}"),
            (_is_power_of_two(self.oc_lanes) and self.ic_lanes <= self.oc_lanes <= 16 * self.ic_lanes,
             (f"oc_lanes must be a power of two from ic_lanes={self.ic_lanes} to {16 * self.ic_lanes}, "
              f"not {self.oc_lanes}: a store writes whole channel blocks")),
            (self.pixel_lanes in (1, 2), f"pixel_lanes must be 1 or 2, not {self.pixel_lanes}"),
            (_is_power_of_two(self.select_fanin)
             and self.ic_lanes // self.nnz_lanes <= self.select_fanin <= self.ic_lanes,
             ("select_fanin must be a power of two from "
              f"ic_lanes / nnz_lanes={self.ic_lanes // max(1, self.nnz_lanes)} to ic_lanes={self.ic_lanes}, "
              f"not {self.select_fanin}")),
            (24 <= self.acc_width <= 32, f"acc_width must be in 24..32, not {self.acc_width}"),
            (self.multiplier_width in (18, 25, 27),
             f"multiplier_width must be 18, 25 or 27, not {self.multiplier_width}"),
            (_is_power_of_two(self.input_depth) and 256 <= self.input_depth <= 16384,
             f"input_depth must be a power of two in 256..16384, not {self.input_depth}"),
            (_is_power_of_two(self.acc_depth) and 64 <= self.acc_depth <= 4096,
             f"acc_depth must be a power of two in 64..4096, not {self.acc_depth}"),
            (_is_power_of_two(self.weight_depth) and 512 <= self.weight_depth <= 16384,
             (f"weight_depth must be a power of two in 512..16384, not {self.weight_depth}: a whole 256-beat burst is "
              "reserved before it is asked for")),
            (_is_power_of_two(self.side_depth) and 512 <= self.side_depth <= 16384,
             f"side_depth must be a power of two in 512..16384, not {self.side_depth}"),
            (_is_power_of_two(self.queue_depth) and 4 <= self.queue_depth <= 64,
             f"queue_depth must be a power of two in 4..64, not {self.queue_depth}"),
            (_is_power_of_two(self.outstanding_reads) and 2 <= self.outstanding_reads <= 64,
             f"outstanding_reads must be a power of two in 2..64, not {self.outstanding_reads}"),
            (_is_power_of_two(self.outstanding_writes) and 2 <= self.outstanding_writes <= 64,
             f"outstanding_writes must be a power of two in 2..64, not {self.outstanding_writes}"),
            (32 <= self.address_width <= 64, f"address_width must be in 32..64, not {self.address_width}"),
        ]
        for passed, message in checks:
            if not passed:
                raise ConfigError(message)

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
    def groups_dense(self) -> int:
        """Steps that a dense block takes (tn / dn)."""
        return self.ic_lanes // self.nnz_lanes

    @property
    def oc_groups(self) -> int:
        """Channel blocks that one set of output lanes makes (tm / tn)."""
        return self.oc_lanes // self.ic_lanes

    @property
    def index_bits(self) -> int:
        """Bits of the channel index beside a weight."""
        return (self.select_fanin - 1).bit_length()

    @property
    def weight_beats(self) -> int:
        """Beats of the weights of one step."""
        return self.oc_lanes * self.nnz_lanes // self.beat_bytes

    @property
    def index_beats(self) -> int:
        """Beats of the indices of one step (indexed mode only)."""
        return math.ceil(self.oc_lanes * self.nnz_lanes * self.index_bits / self.beat_bits)

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
            raise ConfigError(
                f"macs must be one of {', '.join(map(str, _PRESETS))} (or give the lanes by hand), not {macs!r}")
        return cls(**{**_PRESETS[macs], **overrides})

    def to_dict(self) -> dict[str, int]:
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Raises ConfigError for an unknown field or a bad value."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown configuration field {unknown[0]!r}; known: {', '.join(sorted(known))}")
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ConfigError when ``text`` is not a configuration."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"configuration is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"configuration must be a JSON object, not {type(values).__name__}")
        return cls.from_dict(values)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a ``config.json``. Raises ConfigError with the file's name."""
        try:
            return cls.from_json(path.read_text())
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except (UnicodeDecodeError, ConfigError) as error:
            raise ConfigError(f"{path}: {error}") from None
