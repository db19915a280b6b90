"""A model's values beside onnxruntime's, and how many of its answers are right."""

from pathlib import Path

from gen.check.compare import compare_layers, wrong_layers
from gen.ir.errors import GraphError
from gen.report.document import Beside
from gen.run.application import Application
from gen.run.inputs import random_samples, read_samples
from gen.run.runner import run_model

__all__ = ["answers", "beside_onnxruntime"]

#: Samples that are judged at most, for time.
_JUDGED = 64


def beside_onnxruntime(application: Application) -> tuple[list[Beside], str]:
    """Each layer on the values that onnxruntime had before it, and what came of it in words; ([], why not) for what
    onnxruntime does not compute.
    """
    rows = []
    try:
        for workload in application.workloads:
            imported = workload.imported
            rows += compare_layers(imported, random_samples(imported.graph, workload.input_shapes, seed=0).inputs)
    except GraphError as error:
        return [], f"Not compared: {error}."
    off, wrong = sum(row.differing > 0 for row in rows), wrong_layers(rows)
    largest = max((row.largest for row in rows), default=0)
    found = (f"{len(wrong)} results differ by more than rounding explains, {wrong[0].layer}'s most." if wrong else
             f"{off} of {len(rows)} results differ, by {largest} at most, as rounding explains." if off else
             "all values are the same.")
    return [Beside(layer=row.layer, tensor=row.tensor, values=row.values, differing=row.differing, largest=row.largest,
                   allowed=row.allowed) for row in rows], (
        f"Each layer by itself, on the values that onnxruntime has before it, of a random sample: {found}")


def answers(application: Application, samples: Path | None) -> str:
    """How many of the labelled ``samples`` the model gets right, in words; "" without any.

    Raises InputError, OSError.
    """
    if samples is None:
        return ""
    given = read_samples(samples, application.inputs, limit=_JUDGED)
    if given.labels is None:
        return ""
    shares = run_model(application, given, "reference").accuracies
    right = ", ".join(f"{100 * share:.1f} %{f' by {name}' if len(shares) > 1 else ''}"
                      for name, share in shares.items())
    return f"Of {len(given):,} labelled samples of {samples.name}, {right} are right." if right else ""
