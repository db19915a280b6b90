"""Float models, which samples from files make quantised ones of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from cores.errors import NpugenError
from gen.onnx.model import ModelInput
from gen.onnx.read import read
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.quantize import FEW, Quantized, quantize
from gen.quantize.sessions import Progress
from gen.run.inputs import InputError, InputSpec, Samples, read_samples

__all__ = ["Calibrated", "Calibration", "FloatModelError", "float_specs", "quantize_file"]


class FloatModelError(NpugenError, ValueError):
    """A float model that cannot be quantised; the message names its file."""


@dataclass(frozen=True)
class Calibration:
    """What a float model is quantised by: a file of samples, or a folder of images; the first ``limit`` of them."""

    samples: Path
    options: QuantizeOptions = field(default_factory=QuantizeOptions)
    limit: int | None = None


@dataclass(frozen=True, eq=False)
class Calibrated:
    """``remarks``: for people."""

    found: Quantized
    samples: Samples
    remarks: tuple[str, ...]


def float_specs(inputs: Sequence[ModelInput]) -> dict[str, InputSpec]:
    """What a float model takes. Raises QuantizeError for an input that is no float32."""
    wrong = next((i for i in inputs if i.elem_type != TensorProto.FLOAT), None)
    if wrong is not None:
        number = helper.tensor_dtype_to_np_dtype(wrong.elem_type)
        raise QuantizeError(f"input {wrong.name} is {number}; a model to be quantised takes float32")
    return {i.name: InputSpec(i.shape, np.dtype(np.float32)) for i in inputs}


def quantize_file(path: Path, calibration: Calibration,
                  progress: Progress = lambda done, total, what: None) -> Calibrated:
    """The float model at ``path``, quantised.

    Raises FloatModelError, GraphError, InputError or OSError; each names the file.
    """
    model = read(path)
    try:
        samples = read_samples(calibration.samples, float_specs(model.inputs), limit=calibration.limit)
        found = quantize(model.proto, samples.inputs, calibration.options, progress=progress)
    except InputError:
        raise
    except QuantizeError as error:
        raise FloatModelError(f"{path}: {error}") from None
    remarks = [samples.remark] if samples.remark else []
    if len(samples) < FEW:
        remarks.append(f"{calibration.samples}: warning: {len(samples)} samples are few to calibrate with; "
                       "some hundred, as the model will see them, give better ranges")
    return Calibrated(found, samples, tuple(remarks))
