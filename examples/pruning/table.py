"""Pruning beside accuracy and cycles: each row without and with fine-tuning as a session says.

    python examples/pruning/table.py build/mnist/float.onnx examples/pruning/mnist_tune.json

Blocks at 75, 50 and 25 % density, then channels by gamma and by APoZ, down to the cycles of the density `--like`.
Scores are measured on the first training samples, accuracy on the test samples; cycles are those of the time model
with 256 MACs.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec
import onnx

from cores.config import NpuConfig
from gen.prune.blocks import prune_blocks
from gen.prune.measure import AccuracyEvaluator
from gen.prune.plan import Goal, Pruner, read_model
from gen.prune.timing import QuantisedCounterpart
from gen.train.data import read_dataset
from gen.train.session import TrainingSession, read_session

CONFIG = NpuConfig.preset(256)
SCORED = 256


def rows(model: onnx.ModelProto, pruner: Pruner, like: float) -> Iterator[tuple[str, onnx.ModelProto]]:
    yield "dense", model
    for density in (0.75, 0.5, 0.25):
        yield f"blocks at {density:.0%}", prune_blocks(model, density, CONFIG)
    cycles = QuantisedCounterpart.of(prune_blocks(model, like, CONFIG), CONFIG, name="model").times(CONFIG).total
    for kind in ("gamma", "apoz"):
        try:
            yield f"channels by {kind}", pruner.prune(Goal(kind=kind, cycles=cycles)).model
        except ValueError as error:
            print(f"channels by {kind}: {error}", flush=True)


def for_rows(session: TrainingSession, arguments: argparse.Namespace) -> TrainingSession:
    for part in ("train", "test"):
        path = getattr(arguments, part)
        if path:
            data = msgspec.structs.replace(getattr(session, part), path=str(path.absolute()))
            session = msgspec.structs.replace(session, **{part: data})
    # Rows are pruned already.
    stages = tuple(msgspec.structs.replace(stage, prune=None) for stage in session.stages)
    return msgspec.structs.replace(session, stages=stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("session", type=Path)
    parser.add_argument("--train", type=Path, help="instead of the session's")
    parser.add_argument("--test", type=Path, help="instead of the session's")
    parser.add_argument("--like", type=float, default=0.5, help="the density whose cycles channels are pruned to")
    parser.add_argument("--only", help="rows that begin so")
    parser.add_argument("--keep", type=Path, help="folder that each row's model is written to, fine-tuned if it was")
    parser.add_argument("--untuned", action="store_true", help="leave fine-tuning out")
    arguments = parser.parse_args()
    session = for_rows(read_session(arguments.session), arguments)
    model, folder = read_model(arguments.model), arguments.session.parent
    name = model.graph.input[0].name
    shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:])
    first = msgspec.structs.replace(session.train, count=SCORED)
    scored, test = (read_dataset(data, session, folder, name=name, shape=shape) for data in (first, session.test))
    evaluator = AccuracyEvaluator.of(model, {name: test.inputs}, test.labels)
    pruner = Pruner(model, CONFIG, name=str(arguments.model))
    pruner.evaluate_by({name: scored.inputs}, scored.labels)
    print("| | cycles | accuracy | fine-tuned |\n|---|---|---|---|", flush=True)
    for title, pruned in rows(model, pruner, arguments.like):
        if not title.startswith(arguments.only or ""):
            continue
        cycles = QuantisedCounterpart.of(pruned, CONFIG, name=title).times(CONFIG).total
        accuracy = evaluator.accuracy(pruned)
        tuned = ""
        if not arguments.untuned:
            from gen.train.fit import train  # which needs PyTorch

            pruned = train(session, pruned, folder, name=title, teacher=model).model
            tuned = f"{evaluator.accuracy(pruned):.2%}"
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            onnx.save(pruned, arguments.keep / f"{title.replace(' ', '-').replace('%', '')}.onnx")
        print(f"| {title} | {cycles:,} | {accuracy:.2%} | {tuned} |", flush=True)


if __name__ == "__main__":
    main()
