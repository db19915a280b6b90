"""What the compiler makes of models and random graphs, to be compared before and after a change to it.

    python -m tests.snapshot FILE                       record outputs, cycles, memory and time
    python -m tests.snapshot FILE --against EARLIER     and say what is different from an earlier recording

Outputs are those of the functional simulator on seeded inputs, cycles those of the time model.
"""

import argparse
import hashlib
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from boards.registry import get_board
from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Graph
from gen.onnx.importer import load_model
from gen.options import CompileOptions
from sim import functional
from sim.cycles import estimate
from tests.random_binary import random_binary_graph
from tests.random_layers import random_graph, random_pairs

_ROOT = Path(__file__).resolve().parents[1]
_SMALL = dict(input_depth=512, acc_depth=64, weight_depth=512)


def _board(macs: int, *features: str) -> NpuConfig:
    board = get_board("zu3eg")
    return board.config(macs, **board.config(macs).feature_fields(features))


#: Of models.
BOARD = {
    "64": _board(64),
    "256": _board(256),
    "64, depthwise fusion gather": _board(64, "depthwise", "fusion", "gather"),
    "256, all": _board(256, "depthwise", "fusion", "gather", "binary", "winograd"),
    "128, exact": NpuConfig.preset(128, depthwise=1, gather=1, local_store=1, winograd=2, multiplier_width=18),
}
#: Of random graphs: memories so small that tilings matter.
SMALL = {
    "plain": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, **{**_SMALL, "input_depth": 256}),
    "windows": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, gather=1, **_SMALL),
    "binary": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, gather=1, binary_rows=8,
                        winograd=1, **_SMALL),
    "exact": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, winograd=2, multiplier_width=18, gather=1,
                       **{**_SMALL, "acc_depth": 128, "input_depth": 1024}),
    "engine": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, gather=1, depthwise=1, binary_rows=16, binary_engine=1,
                        local_store=1, **_SMALL),
}


def random_of(seed: int) -> Graph:
    """Graphs of five kinds in turn."""
    kind = seed % 5
    if kind == 1:
        return random_pairs(seed, max_size=14)
    if kind == 2:
        return random_binary_graph(seed, max_size=14)
    return random_graph(seed, max_size=14, depthwise=0.5 if kind == 4 else None, winograd=0.7 if kind == 3 else None)


def record(graph: Graph, config: NpuConfig, options: CompileOptions, *, seed: int = 0) -> dict[str, Any]:
    began = time.process_time()
    try:
        program, _ = compile_graph(graph, config, options)
    except CompileError as error:
        return {"error": str(error)}
    seconds = time.process_time() - began
    rng = np.random.default_rng(seed)
    image = program.image()
    for tensor, _ in graph.inputs.values():
        program.pack_input(image, tensor, rng.integers(-128, 128, graph.tensors[tensor].shape).astype(np.int8))
    functional.run(config, program.code, image, write_start=program.write_start)
    outputs = hashlib.sha256()
    for tensor, _ in graph.outputs.values():
        outputs.update(program.unpack_tensor(image, tensor).tobytes())
    return {"outputs": outputs.hexdigest()[:16], "cycles": int(estimate(config, program.code).cycles),
            "instructions": len(program.instruction_layers), "seconds": round(seconds, 2),
            "activations": (program.data_beats - program.write_start) * config.beat_bytes}


def snapshot(models: Path, graphs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in [*sorted(models.glob("*.onnx")), _ROOT / "gen" / "digits" / "digits_int8.onnx"]:
        try:
            graph = load_model(path).graph
        except GraphError as error:
            yield path.stem, {"error": str(error)}
            continue
        for name, config in BOARD.items():
            yield f"{path.stem}: {name}", record(graph, config, CompileOptions())
    for seed in range(graphs):
        graph, density = random_of(seed), random.Random(seed).choice([None, None, 0.25, 0.5])
        for name, config in SMALL.items():
            yield f"random {seed}: {name}", record(graph, config, CompileOptions(density=density), seed=seed)


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name in before.keys() & after.keys():
        one, other = before[name], after[name]
        if one.get("error") != other.get("error"):
            yield f"{name}: {one.get('error', 'compiles')} -> {other.get('error', 'compiles')}"
        elif "error" not in one:
            if one["outputs"] != other["outputs"]:
                yield f"{name}: other outputs"
            if other["cycles"] > one["cycles"]:
                yield f"{name}: {one['cycles']:,} -> {other['cycles']:,} cycles"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.snapshot")
    parser.add_argument("file", type=Path)
    parser.add_argument("--against", type=Path, metavar="EARLIER")
    parser.add_argument("--models", type=Path, default=_ROOT.parent / "shared" / "models")
    parser.add_argument("--graphs", type=int, default=500, help="random graphs (default 500)")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for name, facts in snapshot(arguments.models, arguments.graphs):
        found[name] = facts
        print(f"\r{len(found):,} ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    arguments.file.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.against:
        before = json.loads(arguments.against.read_text())
        for line in sorted(differences(before, found)):
            print(line)
        both = [name for name in before.keys() & found.keys() if "error" not in {**before[name], **found[name]}]
        for what in ("cycles", "instructions", "seconds", "activations"):
            sums = [sum(facts[name][what] for name in both) for facts in (before, found)]
            print(f"{what}: {sums[0]:,.10g} -> {sums[1]:,.10g} in {len(both):,} programs")


if __name__ == "__main__":
    main()
