"""What the project makes of models, random networks and machines, to be compared before and after a change to it.

    python -m tests.snapshot FILE                       record
    python -m tests.snapshot FILE --against EARLIER     and say what is different from an earlier recording
    python -m tests.snapshot FILE --synth               and what synthesis makes of the machines (long)

Of each model on each machine: outputs of the functional simulator on a seeded sample, its segments on the processor
included, cycles by the time model, instructions, memory and the processor's seconds to compile it. Of each machine: the
digest of its Verilog; with ``--synth`` LUTs, flip-flops, DSPs, block RAMs and LUT levels. What a recording has, and a
later one lacks, is a failure, as `differences` says; the exit status is 1 then.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from boards.registry import get_board
from cores.config import COMPUTING_FEATURES, NpuConfig
from cores.emit import emit_verilog
from cores.errors import NpugenError
from gen.hw.synth import synthesize
from gen.hw.timing import measure_timing
from gen.ir.errors import GraphError
from gen.onnx.read import read
from gen.run.application import Application, HostOptions, open_application
from gen.run.calibration import Calibration, FloatModelError
from gen.run.inputs import InputSpec, Samples, model_specs
from gen.run.runner import run_model
from sim import functional
from sim.cycles import estimate
from sim.folders import cache_folder
from tests.compiled import random_image
from tests.gen.architecture_parts import PARTS
from tests.random_cases import MACHINES, compile_case
from tests.random_layers import random_inputs

__all__ = ["BOARD", "Difference", "differences", "snapshot"]

_ROOT = Path(__file__).resolve().parents[1]


def _board(macs: int, *features: str, board: str = "zu3eg") -> NpuConfig:
    plain = get_board(board).config(macs)
    return get_board(board).config(macs, **plain.feature_fields(features))


#: What models are compiled for: together they have every feature.
BOARD = {
    "64": _board(64),
    "256": _board(256),
    "64, depthwise fusion gather": _board(64, "depthwise", "fusion", "gather"),
    "256, all": _board(256, *COMPUTING_FEATURES),
    "128, exact": NpuConfig.preset(128, depthwise=1, gather=1, local_store=1, winograd=2, multiplier_width=18),
}
#: What is synthesised: family, machine.
SYNTHESISED = {
    "64": ("xcup", BOARD["64"]), "64, all": ("xcup", _board(64, *COMPUTING_FEATURES)),
    "256": ("xcup", BOARD["256"]), "256, all": ("xcup", BOARD["256, all"]),
    "ecp5 16": ("ecp5", _board(16, board="ecp5")),
}

#: Samples that a float model is quantised on.
_CALIBRATION = 8

#: A change of cycles that is let pass: a share, and a number.
_SHARE, _CYCLES = 0.001, 20
#: A change of these resources, a share; others are equal.
_AREA_SHARE = {"lut": 0.01, "ff": 0.01}

Facts = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    text: str
    failure: bool = True


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def _model(path: Path, machine: str) -> Facts:
    """Of a trained model; a float one is quantised on random samples."""
    began = time.process_time()
    try:
        application = _opened(path, BOARD[machine])
    except NpugenError as error:
        return {"error": str(error).replace(f"{path.parent}/", "")}
    seconds = time.process_time() - began
    result = run_model(application, Samples(_arrays(application.inputs, 1), None), "functional")
    programs = [workload.program for workload in application.workloads]
    return {"outputs": _digest(*(array.tobytes() for array in result.outputs.values())), "wrong": result.mismatches,
            "cycles": sum(int(estimate(program.config, program.code).cycles) for program in programs),
            "instructions": sum(len(program.instruction_layers) for program in programs), "seconds": round(seconds, 2),
            "activations": sum((program.data_beats - program.write_start) * program.config.beat_bytes
                               for program in programs),
            "host nodes": 0 if application.partition is None else len(application.partition.host)}


def _opened(path: Path, config: NpuConfig) -> Application:
    try:
        return open_application(path, config, host=HostOptions(allowed=False))
    except GraphError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples.npz"
        np.savez(samples, **_arrays(model_specs(read(path).inputs), _CALIBRATION))
        try:
            return open_application(path, config, calibration=Calibration(samples, hold_out=False))
        except FloatModelError:
            return open_application(path, config)


def _arrays(specs: Mapping[str, InputSpec], samples: int) -> dict[str, np.ndarray]:
    """Random values of each input: normal ones, or all that an integer can be."""
    rng, arrays = np.random.default_rng(0), {}
    for name, spec in specs.items():
        shape = (samples, *spec.shape[1:])
        limits = np.iinfo(spec.dtype) if np.issubdtype(spec.dtype, np.integer) else None
        arrays[name] = (rng.normal(size=shape).astype(spec.dtype) if limits is None
                        else rng.integers(limits.min, limits.max + 1, shape, spec.dtype))
    return arrays


def _part(name: str, machine: str) -> Facts:
    """Of a part of today's architectures, some of which is on the processor."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.onnx"
        onnx.save(PARTS[name](np.random.default_rng(0))[0], path)
        return _model(path, machine)


def _random(machine: str, seed: int) -> Facts:
    began = time.process_time()
    config = MACHINES[machine]
    case, program, _ = compile_case(config, seed)
    seconds = time.process_time() - began
    image = random_image(program, random_inputs(case.graph, seed), seed)
    functional.run(config, program.code, image, write_start=program.write_start)
    outputs = [program.unpack_tensor(image, tensor).tobytes() for tensor, _ in case.graph.outputs.values()]
    return {"kind": case.kind, "outputs": _digest(*outputs), "cycles": int(estimate(config, program.code).cycles),
            "instructions": len(program.instruction_layers), "seconds": round(seconds, 2),
            "activations": (program.data_beats - program.write_start) * config.beat_bytes}


def _verilog(config: NpuConfig) -> Facts:
    text = emit_verilog(config)
    return {"verilog": _digest(text.encode())}


def _synthesised(family: str, config: NpuConfig) -> Facts:
    text = emit_verilog(config)
    totals = synthesize(text, "npu", family, cache=cache_folder() / "synth").totals
    return {**totals, "levels": measure_timing(text, "npu", family, cache=cache_folder() / "synth").levels}


Task = tuple[str, Callable[..., Facts], tuple[Any, ...]]


def tasks(models: Path, programs: int, *, synth: bool) -> Iterator[Task]:
    """Name, function, arguments. ``programs``: random ones of each machine."""
    found = [path for folder in (models, models.parent / "cases") for path in sorted(folder.glob("*.onnx"))]
    for path in [*found, _ROOT / "gen" / "digits" / "digits_int8.onnx"]:
        for machine in BOARD:
            yield f"{path.stem}: {machine}", _model, (path, machine)
    for part in PARTS:
        for machine in ("64", "256, all"):
            yield f"part {part}: {machine}", _part, (part, machine)
    for machine in MACHINES:
        for seed in range(programs):
            yield f"random {seed}: {machine}", _random, (machine, seed)
    for machine, config in (BOARD | MACHINES).items():
        yield f"Verilog: {machine}", _verilog, (config,)
    if synth:
        for machine, (family, config) in SYNTHESISED.items():
            yield f"synthesis: {machine}", _synthesised, (family, config)


def _quiet() -> None:
    warnings.simplefilter("ignore")


def snapshot(todo: list[Task], jobs: int) -> Iterator[tuple[str, Facts]]:
    """Name -> what is found."""
    with ProcessPoolExecutor(jobs, initializer=_quiet) as pool:
        running = [(name, pool.submit(function, *arguments)) for name, function, arguments in todo]
        for name, future in running:
            yield name, future.result()


def differences(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> Iterator[Difference]:
    """A case that is gone, a value that is another, an area or cycles that grow by more than is let pass: failures."""
    for name, one in before.items():
        if name not in after:
            yield Difference(f"{name}: gone")
            continue
        other = after[name]
        if one.get("error") != other.get("error"):
            yield Difference(f"{name}: {one.get('error', 'compiles')} -> {other.get('error', 'compiles')}",
                             failure="error" in other)
            continue
        for what, value in one.items():
            if what in ("seconds", "error", "instructions", "activations"):
                continue
            found = other.get(what)
            if what == "verilog" and found != value:
                yield Difference(f"{name}: other Verilog", failure=False)
            elif found is None or isinstance(value, str):
                if found != value:
                    yield Difference(f"{name}: {what} {value} -> {found}")
            elif found != value:
                text = f"{name}: {value:,} -> {found:,} {what}" + (f" ({found / value - 1:+.2%})" if value else "")
                yield Difference(text, failure=_is_worse(what, value, found))
    for name, one in after.items():
        if one.get("wrong"):
            yield Difference(f"{name}: {one['wrong']:,} values are not the reference's")


def _is_worse(what: str, value: float, found: float) -> bool:
    if what == "cycles":
        return found > value + max(value * _SHARE, _CYCLES)
    if what in ("levels", "host nodes", "wrong"):
        return found > value
    return abs(found - value) > _AREA_SHARE.get(what, 0) * value


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.snapshot", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--against", type=Path, metavar="EARLIER")
    parser.add_argument("--models", type=Path, default=_ROOT.parent / "shared" / "models")
    parser.add_argument("--programs", type=int, default=500, help="random ones of each machine (default 500)")
    parser.add_argument("--synth", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    found: dict[str, Facts] = {}
    for name, facts in snapshot(list(tasks(arguments.models, arguments.programs, synth=arguments.synth)),
                                arguments.jobs):
        found[name] = facts
        print(f"\r{len(found):,} ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    arguments.file.write_text(json.dumps(found, indent=1) + "\n")
    shown = sorted(differences(before, found), key=lambda one: (not one.failure, one.text))
    for one in shown:
        print(f"{'' if one.failure else 'within limits: '}{one.text}")
    if before:
        for what in ("cycles", "instructions", "seconds", "activations"):
            both = [name for name in before.keys() & found.keys() if what in before[name] and what in found[name]]
            sums = [sum(facts[name][what] for name in both) for facts in (before, found)]
            print(f"{what}: {sums[0]:,.10g} -> {sums[1]:,.10g} in {len(both):,} programs")
    return int(any(one.failure for one in shown))


if __name__ == "__main__":
    sys.exit(main())
