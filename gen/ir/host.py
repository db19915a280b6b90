"""The processor's part of the work: the kinds of steps (`npudriver.steps` has them), and one in a graph."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gen.ir.errors import GraphError
from npudriver import steps
from npudriver.steps import is_integer, is_scale

__all__ = ["HostStep", "apply_step", "is_integer", "is_scale", "step_problems"]


@dataclass(frozen=True)
class HostStep:
    """Work of the processor, on an input on its way in or an output on its way out; arrays have the sample axis first.
    """

    kind: Literal["quantize", "dequantize", "softmax", "reshape", "transpose", "gather", "retype", "join"]
    parameters: Mapping[str, object] = field(default_factory=dict)


def step_problems(step: HostStep) -> Iterator[str]:
    """What is wrong with a step, if anything."""
    return steps.step_problems(step.kind, step.parameters)


def apply_step(step: HostStep, x: np.ndarray) -> np.ndarray:
    """What a step makes of an array, samples first. Raises GraphError for an unknown kind."""
    if step.kind not in steps.KINDS:
        raise GraphError(f"host step {step.kind!r} is unknown", code="graph-rule")
    return steps.apply(step.kind, step.parameters, x)
