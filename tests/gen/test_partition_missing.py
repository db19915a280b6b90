"""Optional units that a machine lacks: which of them a cut of a model finds use for, and what is cut for that."""

import os
import zlib
from itertools import combinations
from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.cli import main
from gen.ir.errors import GraphError
from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.partition.missing import gains
from gen.partition.partition import Partition, partition
from tests.gen.architecture_parts import PARTS


def _machines() -> list[Machine]:
    units = Machine().lacks
    return [Machine.having(*chosen) for count in range(len(units) + 1) for chosen in combinations(units, count)]


def _cut(path: Path, machine: Machine) -> Partition | None:
    try:
        return partition(read(path), machine=machine)
    except GraphError:      # nothing would be on the accelerator
        return None


def _same(a: Partition | None, b: Partition | None) -> bool:
    return a is not None and b is not None and a.host == b.host and [
        one.model.SerializeToString(deterministic=True) for one in a.segments] == [
        one.model.SerializeToString(deterministic=True) for one in b.segments]


#: Machine -> what it takes of a model; None: nothing.
Cuts = dict[Machine, Partition | None]


@pytest.fixture(scope="module", params=PARTS)
def cuts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cuts:
    """Of a quantised model, by every machine: made once for all tests, as each takes its time."""
    folder = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(zlib.crc32(f"{os.environ['NPUGEN_SEED']} {request.param}".encode()))
    proto, _ = PARTS[request.param](rng)
    onnx.save(proto, folder / "float.onnx")
    sizes = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    np.savez(folder / "x.npz", **{proto.graph.input[0].name: rng.normal(size=(2, *sizes[1:])).astype(np.float32)})
    assert main(["quantize", str(folder / "float.onnx"), "--calibrate", str(folder / "x.npz"),
                 "-o", str(folder / "model.onnx")]) == 0
    return {machine: _cut(folder / "model.onnx", machine) for machine in _machines()}


@pytest.mark.slow
def test_what_no_node_has_use_for_changes_nothing(cuts: Cuts) -> None:
    """Of each machine: with any units beside it that its cut did not miss, the model is cut the same."""
    for machine, cut in cuts.items():
        if cut is None:
            continue
        assert cut.missed <= set(machine.lacks)
        for name in set(machine.lacks) - cut.missed:
            larger = machine.with_units(name)
            assert _same(cut, cuts[larger]), f"{name} beside {machine}"


@pytest.mark.slow
def test_only_what_could_differ_is_cut_again(cuts: Cuts) -> None:
    """As many cuts as units that are missed, and one of several; none where none is."""
    best = cuts[Machine.complete()]
    assert best is not None
    for machine, now in cuts.items():
        if now is None:
            continue
        asked: list[Machine] = []

        def again(larger: Machine, asked: list[Machine] = asked) -> Partition:
            asked.append(larger)
            if (cut := cuts[larger]) is None:
                raise GraphError("nothing would be on the accelerator")
            return cut

        found = gains(now, machine, again)
        assert len(asked) == len(set(asked)) <= (len(now.missed) and len(machine.lacks) + 1)
        left = min((len(one.cut.host) for one in found), default=len(now.host))
        assert left <= len(best.host)


def test_units_that_the_importer_does_not_ask_for():
    for ask in (Machine.having, Machine().has):
        with pytest.raises(ValueError, match="'binary' is no unit that says `imports`"):
            ask("binary")
