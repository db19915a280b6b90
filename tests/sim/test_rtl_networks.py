"""Transformers of published sizes on the generated Verilog of 256 multipliers."""

from pathlib import Path

import numpy as np
import pytest

from boards.registry import get_board
from cores.config import NpuConfig
from gen.options import CompileOptions
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.run.application import Application, open_application
from gen.run.inputs import Samples
from gen.run.memory import bus_of
from gen.run.runner import run_model
from gen.zoo.builder import Builder, Tensor, pictures
from gen.zoo.network import Network, make
from gen.zoo.registry import get_network
from gen.zoo.transformer import pre_norm
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine

from .on_rtl import machines

#: As the figures of these networks have it (`gen bench recent`).
CONFIG = NpuConfig.preset(256, depthwise=1, local_store=1, gather=1, table=1, rows=64, turn=1)
#: The memory of a board, and one that pauses.
BUSES = {"zu3eg": Bus(dram=bus_of(get_board("zu3eg"), CONFIG, 333).dram),
         "pauses": Bus(latency=90, bandwidth=0.8, stall_probability=0.2)}


def _block(b: Builder, image: Tensor, classes: int) -> None:
    tokens = b.reshape(image, *image.sample.shape[2:], name="tokens")
    b.output(pre_norm(b, tokens, heads=3, hidden=4 * 192, activation=b.gelu, name="block"))


NETWORKS = {
    "KWT-1": get_network("kwt-1"),
    "DeiT-Tiny's block": Network(name="block", title="DeiT-Tiny's block", layers=_block, size=(197, 192), channels=1),
}

machine = machines({"256": CONFIG})


@pytest.fixture(scope="module", params=NETWORKS)
def compiled(request: pytest.FixtureRequest) -> tuple[Application, Samples]:
    network = NETWORKS[request.param]
    images = pictures(np.random.default_rng(1), 3, (network.channels, *network.size))
    model = quantize(make(network).model, {"image": images[:2]}, QuantizeOptions(method="mse")).model
    application = open_application(Path(f"{network.name}.onnx"), CONFIG, CompileOptions(keep_all=True),
                                   content=model.SerializeToString())
    return application, Samples({"image": images[2:]}, None)


@pytest.mark.full
@pytest.mark.parametrize("bus", BUSES)
def test_whole(machine: RtlMachine, compiled: tuple[Application, Samples], bus: str) -> None:
    """One segment; every value is the golden one, and the time model's cycles are the hardware's."""
    application, samples = compiled
    (workload,) = application.workloads
    machine.set_bus(BUSES[bus])
    run = run_model(application, samples, "rtl", machine=machine)
    real = run.inferences[0].cycles
    print(f"{workload.program.name}, {bus}: {real} cycles, {run.compared} values, {run.mismatches} differ", end="")
    assert run.mismatches == 0 and run.compared > 100_000
    if BUSES[bus].dram is not None:
        model = estimate(CONFIG, workload.program.code, dram=BUSES[bus].dram).cycles
        print(f"; the time model has {model}", end="")
        assert model == pytest.approx(real, rel=0.005)
    print()
