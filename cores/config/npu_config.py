"""The one configuration object: hardware, compiler, simulators and exporters all read it."""

import dataclasses
import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cores.config.core import ConfigError
from cores.config.presets import PURPOSES, feature_fields, features_of, preset_fields
from cores.config.units import UNITS, Settings
from npudriver.files import read_text

__all__ = ["NpuConfig"]

#: Fields that files made before them lack: a machine without the unit is the one that it was, with its programs.
_LATER = frozenset({"axi_prot", *(field for unit in UNITS if not unit.always_written for field in unit.fields)})
#: Bytes of a ``config.json`` beyond any.
_MAX_FILE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class NpuConfig(Settings):
    """Parameters of one generated NPU: those of the core and of all units, with what follows from them, checked.

    Raises ConfigError (a ValueError) for a value or a combination that cannot be built.
    """

    def __post_init__(self) -> None:
        if self.select_fanin == 0:
            object.__setattr__(self, "select_fanin", self.ic_lanes)
        if self.store_multipliers == 1:
            object.__setattr__(self, "store_multipliers", 0)
        self.check()

    @classmethod
    def preset(cls, macs: int, purpose: str = PURPOSES[0], /, **overrides: int) -> Self:
        """The configuration that ``--macs`` and ``--for`` stand for; ``overrides`` replace single fields.

        Raises ConfigError when there is no such preset.
        """
        return cls(**preset_fields(macs, overrides, purpose))

    @property
    def features(self) -> list[str]:
        """Names of `FEATURES` that the machine has."""
        return features_of(self)

    def feature_fields(self, names: Collection[str]) -> dict[str, int]:
        """Fields that give a machine of these lanes the named units of `FEATURES` and no others.

        Raises ConfigError for an unknown name.
        """
        return feature_fields(self, names)

    @property
    def digest(self) -> int:
        """32-bit fingerprint of what a program depends on; a program runs only where it matches."""
        revisions = "".join(f"{unit.name} {unit.revision}\n" for unit in UNITS if unit.revision and unit.is_in(self))
        return int.from_bytes(hashlib.sha256((self.to_json() + revisions).encode()).digest()[:4], "little")

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
            return cls.from_json(read_text(path, _MAX_FILE))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}", code="unreadable-file", file=str(path)) from None
        except (UnicodeDecodeError, ConfigError) as error:
            raise ConfigError.of(error, f"{path}: {error}", file=str(path)) from None
