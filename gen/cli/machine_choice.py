"""--for MODEL and --features auto: the machine is chosen for a model, and what was chosen is said."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.calibration import chosen_calibration, say
from gen.cli.common import messages, status
from gen.cli.errors import UsageError

if TYPE_CHECKING:
    from boards.board import Board
    from gen.explore.choice import Candidate, Choice
    from gen.explore.models import ModelFile
    from gen.explore.space import Value
    from gen.run.calibration import Calibration

__all__ = ["choose_machine"]


def choose_machine(arguments: argparse.Namespace, model: Path, board: "Board", purposes: Sequence[str],
                   given: "dict[str, Value]", calibration: "Calibration | None" = None, samples: Path | None = None
                   ) -> tuple[str, tuple[str, ...]]:
    """The purpose, one of ``purposes``, and the features of the machine for a model; says how fast it is and what else
    there was.

    ``given``: MACs, and fields that were given by hand; ``calibration``: of the ``arguments``, None to make it;
    ``samples``: in whose arrays the shapes are that the model leaves open. Raises CommandError, GraphError, OSError and
    what `gen.explore` does.
    """
    from gen.explore.choice import choose_for

    with status(f"choosing units for {model.name}, once: seconds, or a minute or more for a large model"):
        choice = choose_for(_read(arguments, model, calibration, samples), board, given, purposes,
                            processes=len(os.sched_getaffinity(0)))
    _say(choice, model, board)
    return choice.chosen.purpose, choice.chosen.features


def _read(arguments: argparse.Namespace, model: Path, calibration: "Calibration | None", samples: Path | None
          ) -> "ModelFile":
    from gen.explore.models import read_model_file
    from gen.onnx.read import OpenShapeError
    from gen.run.inputs import array_shapes
    from gen.run.workload import is_program

    if is_program(model):
        raise UsageError(f"{model}: a program has its machine; one is chosen for an ONNX model",
                         code="option-conflict")
    if calibration is None and hasattr(arguments, "calibrate"):
        calibration = chosen_calibration(arguments, lambda remark: None)
    shapes = dict(getattr(arguments, "shape", ()))
    try:
        file, remarks = read_model_file(model, calibration, shapes, partly=True)
    except OpenShapeError:
        if samples is None or shapes:
            raise
        file, remarks = read_model_file(model, calibration, array_shapes(samples), partly=True)
    if model != getattr(arguments, "model", None):      # the command says them of its own model
        say(remarks)
    return file


def _say(choice: "Choice", model: Path, board: "Board") -> None:
    chosen = choice.chosen
    messages.print(f"for {model.name}: {_machine(chosen)} ({_figures(chosen)} of {board.name} at "
                   f"{board.clock_mhz:g} MHz, by time and area model)", soft_wrap=True)
    for name, share in chosen.lost.items():
        loss = "leaves nodes to the processor" if share is None else f"takes {100 * share:.0f} % longer"
        messages.print(f"  without {name} it {loss}", soft_wrap=True)
    for other in choice.others:
        messages.print(f"  instead {_machine(other)}: {_figures(other)}", soft_wrap=True)


def _machine(one: "Candidate") -> str:
    return f"--for {one.purpose} --features {','.join(one.features) or 'none'}"


def _figures(one: "Candidate") -> str:
    lut = one.evaluation.figures["lut"]
    return f"{one.ms:.3g} ms an inference, {lut:,.0f} LUT"
