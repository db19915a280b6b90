"""Samples from files: arrays by name (.npz), one array (.npy), an image, or a folder of images."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from onnx import helper

from cores.errors import NpugenError
from gen.detection.annotations import Key
from gen.detection.judge import Expected, Judge
from gen.files.pictures import PictureError, read_picture
from gen.files.read import require_file
from gen.ir.graph import Graph
from gen.onnx.model import ModelInput
from gen.run.arrays import ArrayFile, Header
from gen.run.preprocessing import Preprocessing
from npudriver.archive import BAD_ARCHIVE, described

__all__ = [
    "InputError", "InputSpec", "Samples", "arbitrary_samples", "array_shapes", "input_specs", "labelled_images",
    "model_specs", "random_samples", "read_samples", "zero_samples",
]

#: Bytes of samples that are read at once.
_MAX_BYTES = 1 << 30
_LABEL = "label"
#: Of the files of a folder that are taken for images.
_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"})


class InputError(NpugenError, ValueError):
    """A file that does not hold what the model takes; the message names it."""

    code = "bad-samples"


@dataclass(frozen=True)
class InputSpec:
    """What an input of a model takes; ``shape`` has 1 for the samples."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Samples:
    """``inputs``: model input -> (N, ...) array; ``labels``: (N,) numbers, if the file had them, below 0 for none.

    ``remark``: what had to be done to the file, for people. ``keys``: names of images, or numbers in a file of arrays;
    none of samples that are from no file. ``expected``: objects in pictures.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray | None
    remark: str = ""
    keys: tuple[Key, ...] = ()
    expected: Expected | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def chosen(self, mask: np.ndarray) -> "Samples":
        """Those where ``mask`` (N,) is true."""
        keys = tuple(key for key, taken in zip(self.keys, mask, strict=True) if taken) if self.keys else ()
        return replace(self, inputs={name: array[mask] for name, array in self.inputs.items()}, keys=keys,
                       labels=None if self.labels is None else self.labels[mask],
                       expected=None if self.expected is None else self.expected.chosen(mask))

    def judged_by(self, judge: Judge | None) -> "Samples":
        """With the objects that ``judge`` knows. Raises AnnotationError for a sample that it does not know."""
        return self if judge is None else replace(self, expected=judge.expected(self.keys))


def _read_image(path: Path, name: str, spec: InputSpec, change_by: Preprocessing | None) -> Samples:
    """An image in the layout and size that ``spec`` has, gray or RGB; floats are 0..1 unless ``change_by`` says more,
    int8 is the pixel - 128.
    """
    shape = spec.shape
    if len(shape) != 4 or not ({shape[1], shape[3]} & {1, 3}):
        raise InputError(f"{path}: input {name} of shape {shape} is not an image; give an .npz file")
    channels_first = shape[1] in (1, 3)
    channels, height, width = shape[1:] if channels_first else (shape[3], *shape[1:3])
    try:
        pixels, change = read_picture(path, width=width, height=height, channels=channels)
    except PictureError as error:
        raise InputError(f"{path}: {error}", code="damaged-samples") from None
    if change_by is not None and (spec.dtype != np.float32 or not change_by.fits(channels)):
        raise InputError(f"{path}: input {name} is {spec.dtype} of {channels} channels: --mean, --std and --bgr are "
                         "for float32, one number for all channels or one for each of red, green and blue")
    if spec.dtype == np.float32:
        array, values = (change_by or Preprocessing())(pixels), str(change_by or Preprocessing())
    elif spec.dtype == np.uint8:
        array, values = pixels, "0..255"
    elif spec.dtype == np.int8:
        array, values = (pixels ^ 128).view(np.int8), "-128..127"
    else:
        raise InputError(f"{path}: input {name} is {spec.dtype}, which no image is read as; give an .npz file")
    array = np.ascontiguousarray(array.transpose(2, 0, 1) if channels_first else array)[None]
    return Samples({name: array}, None, f"{path}: {change}; pixels 0..255 are taken as {values}", (path.name,))


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _IMAGES and path.is_file())


def labelled_images(folder: Path) -> list[tuple[Path, int]]:
    """The images of a folder's folders, one of each in turn, and the numbers of those by name: the labels."""
    classes = [_images(path) for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    turns = zip_longest(*([(path, label) for path in found] for label, found in enumerate(classes)))
    return [item for turn in turns for item in turn if item is not None]


def _read_folder(folder: Path, name: str, spec: InputSpec, limit: int | None,
                 change_by: Preprocessing | None) -> Samples:
    """The images of a folder by name, or those of its folders."""
    labelled = [(path, -1) for path in _images(folder)] or labelled_images(folder)
    if not labelled:
        raise InputError(f"{folder}: no images in it ({', '.join(sorted(_IMAGES))}), nor in its folders")
    taken = labelled[:limit]
    if len(taken) * math.prod(spec.shape) * spec.dtype.itemsize > _MAX_BYTES:
        raise InputError(f"{folder}: {len(taken):,} images; at most {_MAX_BYTES:,} bytes are read at once, "
                         "take fewer samples", code="too-many-samples")
    read = [_read_image(path, name, spec, change_by) for path, _ in taken]
    labels = np.array([label for _, label in taken])
    return Samples({name: np.concatenate([samples.inputs[name] for samples in read])},
                   labels if labels.min() >= 0 else None, f"{len(taken):,} images, the first {read[0].remark}",
                   tuple(path.name for path, _ in taken))


def _require_fit(path: Path, name: str, header: Header, spec: InputSpec) -> int:
    """Raises InputError unless an array holds samples of the model input ``name``; returns how many."""
    shape, wanted = spec.shape, spec.dtype
    of_numbers = shape[1:] == (1,) and len(header.shape) == 1       # one for each sample
    if header.shape[1:] != shape[1:] and header.shape != shape[1:] and not of_numbers:
        expected = ", ".join(map(str, ("samples", *shape[1:])))
        raise InputError(f"{path}: input {name} must have the shape ({expected}), not {header.shape}",
                         code="sample-shape", input=name)
    if header.dtype != wanted and not (wanted == np.float32 and header.dtype.kind == "f"):
        raise InputError(f"{path}: input {name} must be {wanted}, not {header.dtype}", code="sample-type", input=name)
    return 1 if header.shape == shape[1:] else header.shape[0]


def _read_arrays(path: Path, specs: Mapping[str, InputSpec], limit: int | None) -> Samples:
    """Samples from a .npy or .npz file; of the latter, only the arrays of the model's inputs and ``label`` are read."""
    names, file = list(specs), ArrayFile(path)
    there = file.names
    if there is None and len(names) > 1:
        raise InputError(f"{path}: the inputs are {', '.join(names)}; give an .npz file with an array for each",
                         code="sample-names")
    missing = [name for name in names if there is not None and name not in there]
    if missing:
        raise InputError(f"{path}: has no array {missing[0]!r}; the model's inputs are {', '.join(names)}, "
                         f"the file has {', '.join(there or ()) or 'nothing'}", code="sample-names")
    headers = {name: file.header(name) for name in names}
    counts = {name: _require_fit(path, name, header, specs[name]) for name, header in headers.items()}
    labelled = there is not None and _LABEL in there and _LABEL not in names    # an input may have that name
    if labelled:
        label = headers[_LABEL] = file.header(_LABEL)
        if len(label.shape) != 1 or label.dtype.kind not in "iuf":
            raise InputError(f"{path}: label must have one number for each sample, not {label.dtype} {label.shape}",
                             code="bad-labels")
        counts[_LABEL] = label.shape[0]
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(f"{path}: arrays differ in their number of samples: {listed}")
    samples = next(iter(counts.values()))
    if not samples:
        raise InputError(f"{path}: there are no samples")
    taken = min(samples, limit or samples)
    entries = {name: None if name in names and header.shape == specs[name].shape[1:] else taken
               for name, header in headers.items()}     # None: a single sample
    needed = sum(header.size(entries[name]) for name, header in headers.items())
    if needed > _MAX_BYTES:
        raise InputError(f"{path}: {taken:,} samples of {needed:,} bytes; at most {_MAX_BYTES:,} are read at once, "
                         "take fewer samples", code="too-many-samples")
    inputs = {}
    for name in names:
        array = file.read(name, entries[name])
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise InputError(f"{path}: input {name} holds values that are not numbers (NaN)", code="not-finite")
        with np.errstate(over="ignore"):    # beyond float32 is as good as infinite
            inputs[name] = array.astype(specs[name].dtype, copy=False).reshape(-1, *specs[name].shape[1:])
    labels = file.read(_LABEL, taken) if labelled else None
    if labels is not None and not (np.isfinite(labels) & (labels == np.rint(labels))).all():
        raise InputError(f"{path}: labels must be whole numbers", code="bad-labels")
    return Samples(inputs, labels, keys=tuple(range(taken)))


def array_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of a .npz file, or, under the name "", of that of a .npy file; none of other files, nor
    of arrays with a number for each sample, which leave nothing open.

    Raises as `read_samples`.
    """
    require_file(path)
    if path.suffix not in (".npz", ".npy"):
        return {}
    try:
        file = ArrayFile(path)
        shapes = {name: file.header(name).shape for name in file.names or [""]}
        return {name: shape for name, shape in shapes.items() if len(shape) > 1}
    except BAD_ARCHIVE as error:
        raise InputError(f"{path}: damaged, or not an {path.suffix} file ({described(error)})",
                         code="damaged-samples") from None


def read_samples(path: Path, specs: Mapping[str, InputSpec], *, limit: int | None = None,
                 change_by: Preprocessing | None = None) -> Samples:
    """Samples for a model with these inputs, at most ``limit``; images become what ``change_by`` makes of them.

    Raises InputError for a file that does not fit, OSError for one that cannot be read.
    """
    names = list(specs)
    if path.is_dir() or path.suffix not in (".npz", ".npy"):
        if len(names) > 1:
            raise InputError(f"{path}: the model has the inputs {', '.join(names)}; give an .npz file",
                             code="sample-names")
        if path.is_dir():
            return _read_folder(path, names[0], specs[names[0]], limit, change_by)
        require_file(path)
        return _read_image(path, names[0], specs[names[0]], change_by)
    if change_by is not None:
        raise InputError(f"{path}: arrays are taken as they are; --mean, --std and --bgr are for images")
    require_file(path)
    try:
        return _read_arrays(path, specs, limit)
    except BAD_ARCHIVE as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: damaged, or not an {path.suffix} file ({described(error)})",
                         code="damaged-samples") from None


def zero_samples(specs: Mapping[str, InputSpec]) -> Samples:
    """One sample of zeros, for what does not depend on values."""
    return Samples({name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}, None)


def arbitrary_samples(specs: Mapping[str, InputSpec], seed: int) -> Samples:
    """One sample of any model: real numbers from 0 to 1, whole ones of 8 bits of all that the type has, of more, which
    may be places in tables, 0 or 1; the same for a seed.
    """
    rng, inputs = np.random.default_rng(seed), {}
    for name, spec in specs.items():
        if spec.dtype.kind in "iu" and spec.dtype.itemsize == 1:
            limits = np.iinfo(spec.dtype)
            inputs[name] = rng.integers(limits.min, limits.max, spec.shape, spec.dtype, endpoint=True)
        elif spec.dtype.kind in "iub":
            inputs[name] = rng.integers(0, 2, spec.shape).astype(spec.dtype)
        else:
            inputs[name] = rng.random(spec.shape).astype(spec.dtype)
    return Samples(inputs, None)


def random_samples(graph: Graph, shapes: Mapping[str, tuple[int, ...]], seed: int) -> Samples:
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


def input_specs(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, InputSpec]:
    """Of a model with this graph; ``shapes`` are those of its inputs."""
    return {name: InputSpec(shapes[name], _number(graph, name)) for name in graph.inputs}


def model_specs(inputs: Sequence[ModelInput]) -> dict[str, InputSpec]:
    """Input -> what samples of it have to be, of a model as it was read."""
    return {i.name: InputSpec(i.shape, helper.tensor_dtype_to_np_dtype(i.elem_type)) for i in inputs}


def _number(graph: Graph, name: str) -> np.dtype:
    """The type of a model input."""
    tensor, steps = graph.inputs[name]
    if any(step.kind == "quantize" for step in steps):
        return np.dtype(np.float32)
    return np.dtype(np.uint8 if graph.tensors[tensor].onnx_unsigned else np.int8)
