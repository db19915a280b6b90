"""Files that people write: sessions, spaces, tables of levels, as JSON and as YAML.

What would take minutes then, training and synthesis, is replaced by figures, and PyTorch is not found: it is the
files that are tried.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml

import gen.cli.battery
import gen.cli.explore_streams
import gen.energy.unit_energy
import gen.explore.stream_meter
from cores.arch.stochastic import Circuit
from gen.energy.levels import CORTEX_A7
from gen.energy.unit_energy import UnitEnergy
from tests.fuzz import mutate

__all__ = ["DOCUMENTS", "Document", "mutate_document", "replace_slow_parts"]

Rng = np.random.Generator
_LEVELS = json.loads(CORTEX_A7.read_text())


@dataclass(frozen=True)
class Document:
    """``value`` of a right one; ``argv`` of a command that reads it as FILE; ``outputs``: what that writes."""

    value: Any
    argv: tuple[str, ...]
    outputs: frozenset[str] = frozenset()


_FOLDER = frozenset(f"out/explore.{ending}" for ending in ("json", "csv", "png"))
_SEARCH = ("--jobs", "1", "--no-cache", "--evaluations", "2", "--method", "random")

DOCUMENTS = (
    Document({"model": "m.onnx", "train": {"path": "x.npz", "first": 0, "count": 2}, "test": {"path": "x.npz"},
              "mean": [0.5], "std": [0.25, 1.0], "mirror": True, "shift": 2, "seed": 1,
              "stages": [{"prune": {"density": 0.25, "kind": "block", "macs": 64}, "epochs": 2, "lr": 0.05,
                          "distill": 0.5, "weight_decay": 0.0001}, {"epochs": 1, "optimizer": "adam", "batch": 4}]},
             ("train", "FILE", "-o", "out.onnx")),
    Document({"model": "m.onnx", "train": {"path": "x.npz"}, "test": {"path": "x.npz"}, "macs": 64,
              "budget": {"cycles": 10000, "parameters": 5000, "loss": 2.5},
              "stages": [{"prune": [{"kind": "apoz", "ratio": 0.5, "layers": ["a*"], "floor": 0.25, "samples": 16},
                                    {"kind": "magnitude", "threshold": 0.125}], "epochs": 1, "repeat": 3}]},
             ("train", "FILE", "-o", "out.onnx")),
    Document({"model": "m.onnx", "train": {"path": "a.json", "images": "x"}, "mirror": True, "zoom": [0.5, 2],
              "head": {"kind": "yolo", "classes": ["a", "b"], "maps": [{"output": "y", "anchors": [[0.5, 0.25]]}]},
              "stages": [{"epochs": 1}]}, ("train", "FILE", "-o", "out.onnx")),
    # Annotations, and a head.
    Document({"images": [{"id": n, "file_name": f"{n}.png", "width": 8, "height": 6} for n in range(2)],
              "categories": [{"id": 3, "name": "a"}, {"id": 4, "name": "b"}],
              "annotations": [{"image_id": n, "category_id": 3 + n, "bbox": [1, 2, 3.5, 4], "iscrowd": 0}
                              for n in range(2)],
              "head": {"kind": "ssd", "classes": ["a", "b"], "matched": 0.5, "negatives": 3.0,
                       "maps": [{"boxes": "y", "scores": "y", "sizes": [[0.5, 0.25]]}]}},
             ("prune", "m.onnx", "--density", "0.5", "--calibrate", "x.npz", "--annotations", "FILE", "--head", "FILE",
              "-o", "out.onnx"), frozenset({"out.onnx"})),
    Document({"macs": [16, 64], "features": ["none", "gather+depthwise"], "density": [1.0, 0.5], "memory": ["ideal"],
              "clock": ["board", 100], "input_depth": [2048, 4096]},
             ("explore", "m.onnx", "--space", "FILE", *_SEARCH, "--json")),
    Document({"macs": 16, "features": [["depthwise"], ["none"]], "acc_depth": [64, 128], "weight_depth": 512},
             ("explore", "m.onnx", "--space", "FILE", *_SEARCH, "-o", "out"), _FOLDER),
    Document({"kind": "stochastic", "backbones": ["784-100-32-10", "28x28-c6k3-p2-c16k3-p2-32-10"],
              "circuits": ["and-loop", "ugemm"], "lengths": [8, 64], "deadline_ms": 0.05, "bounds": [95, 90, 85],
              "macs": 256, "levels": _LEVELS["levels"]},
             ("explore", "FILE", *_SEARCH), frozenset()),
    Document({"kind": "stochastic", "backbones": ["784-12-10"], "deadline_ms": 1, "bounds": [20, 10, 0]},
             ("explore", "FILE", *_SEARCH, "-o", "out"), _FOLDER),
    Document(_LEVELS, ("battery", "--levels", "FILE", "--lengths", "64,32,16", "--bounds", "0,0,0", "--json")),
    Document(_LEVELS, ("battery", "--levels", "FILE", "--lengths", "64,32,16", "-o", "out"),
             frozenset({"out/battery.csv", "out/battery.png"})),
)

#: What YAML can say: one of it replaces a value, or is a line of its own.
_YAML = [
    "!!python/object/apply:os.system [touch victim]", "!!python/name:os.system", "&a [*a]", "*nobody", "<<: *x",
    "&b {<<: *b}", "1_000", "0x10", "0o17", "0b11", "12:30:45", "1:99:99", "2001-02-30", "2001-01-01 25:00:00",
    ".inf", "-.INF", ".nan", "1e400", "~", "null", "yes", "off", "!!binary '?'", "!!binary aGFsbG8=", "!!float x",
    "!!int '1' ", "!!set {a, b}", "!!omap [a: 1]", "!!timestamp 9", "!foo bar", "? [a]: b", "? {a: b}", "- \t- x",
    "%TAG ! x", "---\nx: 1", "...\n", "'", '"\\ud800"', '"\\x1b[2J"', '"\\0"', "|\n  text\n", ">-\n\n", "@", "`", "\t",
    "[" * 3000, "{a: " * 3000, "-" * 3000, "9" * 4301, "-" + "9" * 4301, "1." + "0" * 5000, "0x" + "f" * 5000,
    "x" * 3000, "é\u202e", "\x1b[2J", "\u2028", "[[[[[[1]]]]]]", "5e-324", "1e-200", "true", "\ufeff", "\0",
]
#: A billion of the same, if it is not looked at.
_LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))


def _text(rng: Rng, value: Any) -> tuple[str, str]:
    """(ending, text) of a value."""
    match int(rng.integers(4)):
        case 0:
            return "json", json.dumps(value, indent=int(rng.integers(3)) or None)
        case 1:
            return "yml", json.dumps(value)     # which is YAML, but for a few numbers
        case 2:
            return "yaml", yaml.safe_dump(value, default_flow_style=True, allow_unicode=bool(rng.integers(2)))
    return "yaml", yaml.safe_dump(value, sort_keys=False)


def _change_text(rng: Rng, text: str) -> str:
    lines = text.split("\n")
    at = int(rng.integers(len(lines)))
    what = _YAML[int(rng.integers(len(_YAML)))]
    match int(rng.integers(6)):
        case 0:
            lines.insert(at, what)
        case 1:
            lines.insert(at, lines[at])
        case 2:
            return _LAUGHS + text
        case 3:
            lines[at] = f"{'  ' * int(rng.integers(4))}{lines[at].lstrip()}"
        case _:
            head, colon, _ = lines[at].rpartition(":")
            lines[at] = f"{head}{colon} {what}"
    return "\n".join(lines)


def mutate_document(rng: Rng, value: Any) -> tuple[str, bytes]:
    """(ending, content): one in a dozen as it was, else values, text or bytes changed."""
    whole = json.loads(json.dumps(value))
    kind = int(rng.integers(12))
    if 1 <= kind <= 6:
        for _ in range(int(rng.choice([1, 1, 2]))):
            if whole:
                mutate.mutate_value(rng, whole)
    try:
        ending, text = _text(rng, whole)
    except (ValueError, yaml.YAMLError):    # an integer of too many digits, or no text
        ending, text = "json", json.dumps(value)
    for _ in range(int(rng.choice([1, 1, 2])) if kind in (7, 8, 9) else 0):
        text = _change_text(rng, text)
    content = text.encode("utf-16" if rng.integers(30) == 0 else "utf-8", "surrogatepass")
    if kind == 10:
        content = mutate.mutate_bytes(rng, content)
    return ending, content


# -- what takes minutes ----------------------------------------------------------------------------------------------


class _Examiner:
    """Longer streams are better."""

    many, few = None, 1
    images = SimpleNamespace(digest="", trained=1, for_backbone=lambda *_: None)

    @staticmethod
    def accuracy(backbone: Any, circuit: Circuit, length: int, **_: Any) -> float:
        return 1 - 1 / length


def _energy(circuit: Circuit, *_: Any) -> UnitEnergy:
    return UnitEnergy(circuit.label, products=128, lut=100 + circuit, ff=0, dsp=0, registers=0, wires=1)


def replace_slow_parts() -> None:
    """For the rest of this process."""
    found = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name == "torch" else found(name, package)

    importlib.util.find_spec = find_spec
    replaced: list[tuple[Any, str, Callable]] = [
        (gen.cli.battery, "required_examiner", lambda *_: _Examiner()),
        (gen.cli.explore_streams, "required_examiner", lambda *_: _Examiner()),
        (gen.energy.unit_energy, "measure_energy", _energy), (gen.explore.stream_meter, "measure_energy", _energy)]
    for module, name, function in replaced:
        setattr(module, name, function)
