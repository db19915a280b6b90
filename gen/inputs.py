"""Samples from files: arrays by name (.npz), one array (.npy), or an image."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from gen.files import require_file
from gen.ir import Graph

__all__ = ["InputError", "Samples", "random_samples", "read_samples", "zero_samples"]


#: First bytes of .npy and .npz files, and of an .npz file without arrays.
_MAGIC = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")
#: Pillow's modes whose names say little.
_MODES = {"1": "black and white", "L": "gray", "LA": "gray with alpha", "P": "palette"}


class InputError(ValueError):
    """A file that does not hold what the model takes; the message names it."""


@dataclass(frozen=True, eq=False)
class Samples:
    """``inputs``: model input -> (N, ...) array; ``labels``: (N,) numbers, if the file had them, below 0 for none.

    ``remark``: what had to be done to the file, for people.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray | None
    remark: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """What a .npy or .npz file holds."""
    # Opened here: np.load leaves the file of a damaged archive open.
    with path.open("rb") as file:
        if not file.peek(6).startswith(_MAGIC):  # np.load would take it for a pickle
            raise InputError(f"{path}: not an {path.suffix} file")
        loaded = np.load(file, allow_pickle=False)
        return {name: loaded[name] for name in loaded.files} if isinstance(loaded, np.lib.npyio.NpzFile) else loaded


def _named_inputs(path: Path, loaded: np.ndarray | dict[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
    if isinstance(loaded, dict):
        missing = [name for name in names if name not in loaded]
        if missing:
            raise InputError(f"{path}: has no array {missing[0]!r}; the model's inputs are {', '.join(names)}, "
                             f"the file has {', '.join(loaded) or 'nothing'}")
        return {name: loaded[name] for name in names}
    if len(names) > 1:
        raise InputError(f"{path}: the inputs are {', '.join(names)}; give an .npz file with an array for each")
    return {names[0]: loaded}


def _read_image(path: Path, graph: Graph, name: str, shape: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """An image in the layout and size of ``shape``, gray or RGB; floats are 0..1, int8 is the pixel - 128.

    With it, what was done.
    """
    if len(shape) != 4 or not ({shape[1], shape[3]} & {1, 3}):
        raise InputError(f"{path}: input {name} of shape {shape} is not an image; give an .npz file")
    channels_first = shape[1] in (1, 3)
    channels, height, width = shape[1:] if channels_first else (shape[3], *shape[1:3])
    with Image.open(path) as image:
        before = f"{image.width} x {image.height} {_MODES.get(image.mode, image.mode)}"
        colours = image.convert("L" if channels == 1 else "RGB")
        pixels = np.asarray(colours.resize((width, height), Image.Resampling.BILINEAR))
    pixels = pixels.reshape(height, width, channels)
    if channels_first:
        pixels = pixels.transpose(2, 0, 1)
    tensor, steps = graph.inputs[name]
    if any(step.kind == "quantize" for step in steps):
        array, values = (pixels[None] / np.float32(255)).astype(np.float32), "0..1"
    elif graph.tensors[tensor].onnx_unsigned:
        array, values = pixels[None], "0..255"
    else:
        array, values = (pixels[None] ^ 128).view(np.int8), "-128..127"
    after = f"{width} x {height} {_MODES.get(colours.mode, colours.mode)}"
    change = f"{after}, as it is" if after == before else f"{before} converted to {after}"
    return array, f"{path}: {change}; pixels 0..255 are taken as {values}"


def read_samples(path: Path, graph: Graph, shapes: dict[str, tuple[int, ...]], *, limit: int | None = None) -> Samples:
    """Samples for ``graph``, at most ``limit``. ``shapes`` are those of the model's inputs.

    Raises InputError for a file that does not fit, OSError for one that cannot be read.
    """
    names = list(graph.inputs)
    labels, remark = None, ""
    require_file(path)
    try:
        if path.suffix in (".npz", ".npy"):
            loaded = _load(path)
            inputs = _named_inputs(path, loaded, names)
            labels = loaded.get("label") if isinstance(loaded, dict) else None
        elif len(names) > 1:
            raise InputError(f"{path}: the model has the inputs {', '.join(names)}; give an .npz file")
        else:
            image, remark = _read_image(path, graph, names[0], shapes[names[0]])
            inputs = {names[0]: image}
    except UnidentifiedImageError:
        raise InputError(f"{path}: not an .npz or .npy file, nor an image") from None
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError, SyntaxError, OSError) as error:
        # A file that cannot be opened has an error number; what Pillow says about an image's content has none.
        if isinstance(error, InputError) or (isinstance(error, OSError) and error.errno):
            raise
        raise InputError(f"{path}: damaged, or not an {path.suffix} file ({error})") from None
    for name, array in inputs.items():
        if array.shape == shapes[name][1:]:
            inputs[name] = array[None]  # a single sample
        elif array.shape[1:] != shapes[name][1:]:
            expected = ", ".join(map(str, ("samples", *shapes[name][1:])))
            raise InputError(f"{path}: input {name} must have the shape ({expected}), not {array.shape}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise InputError(f"{path}: input {name} holds values that are not numbers (NaN)")
    if labels is not None and (labels.ndim != 1 or labels.dtype.kind not in "iuf"):
        raise InputError(f"{path}: label must have one number for each sample, not {labels.dtype} {labels.shape}")
    if labels is not None and not (np.isfinite(labels) & (labels == np.rint(labels))).all():
        raise InputError(f"{path}: labels must be whole numbers")
    counts = {name: len(array) for name, array in inputs.items()} | ({} if labels is None else {"label": len(labels)})
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(f"{path}: arrays differ in their number of samples: {listed}")
    if not min(counts.values()):
        raise InputError(f"{path}: there are no samples")
    for name, array in inputs.items():
        wanted = _number(graph, name)
        if array.dtype != wanted and not (wanted == np.float32 and array.dtype.kind == "f"):
            raise InputError(f"{path}: input {name} must be {wanted}, not {array.dtype}")
    return Samples({name: array[:limit] for name, array in inputs.items()},
                   None if labels is None else labels[:limit], remark)


def zero_samples(graph: Graph, shapes: dict[str, tuple[int, ...]]) -> Samples:
    """One sample of zeros in the types of the model's inputs, for what does not depend on values."""
    inputs = {}
    for name in graph.inputs:
        inputs[name] = np.zeros(shapes[name], _number(graph, name))
    return Samples(inputs, None)


def random_samples(graph: Graph, shapes: dict[str, tuple[int, ...]], seed: int) -> Samples:
    """One random sample, over the whole range that the model's inputs are quantised to; the same for the same seed."""
    rng, inputs = np.random.default_rng(seed), {}
    for name, (tensor, _) in graph.inputs.items():
        integers = rng.integers(-128, 128, shapes[name])
        number = _number(graph, name)
        if number == np.float32:
            place = graph.tensors[tensor]
            inputs[name] = ((integers - place.zero_point) * place.scale).astype(np.float32)
        else:
            inputs[name] = (integers + (128 if number == np.uint8 else 0)).astype(number)
    return Samples(inputs, None)


def _number(graph: Graph, name: str) -> np.dtype:
    """The type of a model input."""
    tensor, steps = graph.inputs[name]
    if any(step.kind == "quantize" for step in steps):
        return np.dtype(np.float32)
    return np.dtype(np.uint8 if graph.tensors[tensor].onnx_unsigned else np.int8)
