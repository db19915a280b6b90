"""Models whose values, inputs, outputs and nodes have other names, perhaps such as nobody would give."""

import io
import warnings
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from tests.fuzz import mutate

__all__ = ["arrays_of", "renamed", "sample_of"]

Rng = np.random.Generator
_NAMES = [
    *mutate.STRINGS, "a/b", "/a", "a\\b", "x.npy", "x.npy.npy", "allow_pickle", "args", "kwds", "compressed", " ",
    "a b", "\0", "a\0b", ".", "..", "/", "\\", "input/0", "y/0", "y/1", "CON", "nul.txt", "self", "__class__", "x:0",
    "\ufeff", "e\u0301", "0", "-1", "None", "#", "\U0001f642", "X", "x=1,3", ",", "=", "'", '"', "{}", "a\tb", "\r",
    "\u2028", "*", "?", "|", "<b>", "&amp;", "x" * 65536, "inserted", "x_QuantizeLinear", "model.onnx", "program",
    "sample.npz"]
#: The largest name of a member of a zip file, in bytes; what follows a zero is lost.
_LONGEST = 65535


def _new_name(rng: Rng, old: str) -> str:
    if rng.integers(3):
        return _NAMES[int(rng.integers(len(_NAMES)))]
    alphabet = [range(32, 127), range(0x80, 0x2500), range(0, 32)][int(rng.integers(3))]
    letters = map(chr, rng.choice(alphabet, int(rng.integers(9))))
    return (old if rng.integers(2) else "") + "".join(letters)


def _rename_values(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    graph = model.graph
    for node in graph.node:
        for field in (node.input, node.output):
            for at, name in enumerate(field):
                field[at] = names.get(name, name)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)


def renamed(rng: Rng, content: bytes) -> tuple[bytes, Mapping[str, str] | None]:
    """(model, its inputs' names -> the new ones). The second is None where names have met, or are none: then it is
    another model.
    """
    model = onnx.load_model_from_string(content)
    graph = model.graph
    inputs = [value.name for value in graph.input]
    ends = [*inputs, *(value.name for value in graph.output)]
    inner = [name for node in graph.node for name in (*node.input, *node.output) if name]
    values = list(dict.fromkeys([*ends, *inner]))
    chosen = [name for name in values if rng.random() < (0.7 if name in ends else 0.15)]
    names = {name: _new_name(rng, name) for name in chosen}
    _rename_values(model, names)
    for node in graph.node:
        if rng.random() < 0.3:
            node.name = _new_name(rng, node.name)
    if rng.integers(3) == 0:
        graph.name = _new_name(rng, "")
    now = [names.get(name, name) for name in values]
    same = len(set(now)) == len(now) and all(now)
    return model.SerializeToString(), {name: names.get(name, name) for name in inputs} if same else None


def sample_of(rng: Rng, content: bytes, names: Mapping[str, str]) -> tuple[str, bytes]:
    """(ending, content) of a sample under new names; now and then under others, too, or alone."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        arrays = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
    given = {names.get(name, name): array for name, array in arrays.items()}
    match int(rng.integers(12)):
        case 0:
            given |= arrays
        case 1:
            given.pop(next(iter(given)))
        case 2:
            return "npy", arrays[next(iter(names))]
        case 3:
            given[_new_name(rng, "")] = next(iter(arrays.values()))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")     # of two members of one name
        for name, array in given.items():
            if len(name.encode()) + 4 <= _LONGEST and name[:1] != "\0":
                archive.writestr(f"{name}.npy", array)
    return "npz", buffer.getvalue()


def arrays_of(content: bytes) -> Sequence[np.ndarray]:
    """In the order in which they stand there."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [np.lib.format.read_array(archive.open(name)) for name in archive.namelist()]
