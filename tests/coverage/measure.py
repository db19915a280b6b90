"""One model through the compiler and the functional simulator, in this process, whose memory and time are limited.

    python -m tests.coverage.measure MODEL.onnx [SECONDS]

prints the fields of a `Figures` as JSON; the processor's seconds are limited to `SECONDS`, or so many.
"""

import argparse
import json
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from onnx import helper, load_model

from gen.cli import run
from gen.cli.errors import one_line
from gen.cli.machine import open_given
from gen.run.inputs import read_samples
from gen.run.runner import run_model
from tests.coverage.figures import Figures

__all__ = ["OPTIONS", "SECONDS", "measure"]

#: Of `compile` and `run`, beside the files.
OPTIONS = ("--macs", "256", "--features", "all", "--method", "minmax")
#: Limits: of the processor's time, and of addresses.
SECONDS, BYTES = 1200, 16 << 30
_SAMPLES, _SEED = 2, 0


def _samples(model: Path, path: Path) -> None:
    """Random numbers in [0, 1) for each input."""
    graph = load_model(model, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    rng = np.random.default_rng(_SEED)
    arrays = {}
    for value in graph.input:
        if value.name not in constants:
            shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
            array = rng.random((_SAMPLES, *shape[1:]))
            arrays[value.name] = array.astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    np.savez(path, **arrays)


def measure(model: Path, options: Sequence[str] = OPTIONS) -> Figures:
    """What is to be known of a model; whatever goes wrong is the reason of a refusal. ``options``: of the commands."""
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples.npz"
        _samples(model, samples)
        parser = argparse.ArgumentParser()
        run.add_arguments(parser)
        arguments = parser.parse_args([str(model), "--input", str(samples), "--calibrate", str(samples),
                                       "--target", "functional", "--limit", "1", *options])
        try:
            application = open_given(arguments, model)
            layers = [layer for workload in application.workloads for layer in workload.program.layers]
            given = read_samples(samples, application.inputs, limit=arguments.limit)
            result = run_model(application, given, "functional")
        except Exception as error:      # a mistake of ours is one, too
            return Figures(refused=one_line(error))
    cut = application.partition
    return Figures(
        macs=sum(layer.macs for layer in layers), host_nodes=0 if cut is None else len(cut.host),
        host_products=0 if cut is None else cut.host_products, switches=0 if cut is None else cut.switches,
        compared=result.compared, different=result.mismatches or 0,
        reasons={} if cut is None else dict(Counter(cut.host.values()).most_common()))


if __name__ == "__main__":
    _seconds = int(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (_seconds, _seconds))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    print(json.dumps(asdict(measure(Path(sys.argv[1])))))
