"""Trained networks, whole inferences in the RTL, beside the time model."""

from dataclasses import dataclass
from pathlib import Path

from gen.options import CompileOptions
from gen.run.inputs import read_samples
from gen.run.runner import run_model
from gen.run.workload import open_workload
from sim.cycles import estimate
from sim.profile import layer_timings
from sim.rtl.machine import RtlMachine

__all__ = ["NETWORKS", "NetworkBenchmark", "Row", "measure"]


@dataclass(frozen=True, kw_only=True)
class NetworkBenchmark:
    """A trained model (``file``.onnx, ``file``.golden.npz); ``goal`` is cycles of an inference with 256 MACs."""

    file: str
    title: str
    goal: int | None = None
    peer: str = ""


NETWORKS: tuple[NetworkBenchmark, ...] = (
    NetworkBenchmark(file="mlperf_resnet8_int8", title="ResNet-8", goal=100_000,
                     peer="NNgen 194,706 cycles with 288 multipliers"),
    NetworkBenchmark(file="mlperf_vww_mnv1_025_int8", title="MobileNetV1 0.25, 96x96"),
    NetworkBenchmark(file="mlperf_kws_dscnn_int8", title="DS-CNN"),
    NetworkBenchmark(file="tinymaix_mnist_resnet_int8", title="MNIST ResNet"),
    NetworkBenchmark(file="tinymaix_mnist_valid_int8", title="MNIST"),
    NetworkBenchmark(file="coral_mnv2_10_224_uint8", title="MobileNetV2, 224x224"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """An inference. ``used``: share of the multipliers; pruned weights do not count. ``model``: cycles by the time
    model, ``worst_layer``: its largest relative error in a layer. ``wrong``: values of tensors in memory that differ
    from the reference's.
    """

    network: NetworkBenchmark
    cycles: int
    used: float
    model: int
    worst_layer: float
    wrong: int


def measure(network: NetworkBenchmark, folder: Path, machine: RtlMachine) -> Row:
    """``network``'s first sample, from the write to START until DONE, on the machine's memory; every tensor is kept."""
    config = machine.config
    workload = open_workload(folder / f"{network.file}.onnx", config, CompileOptions(keep_all=True))
    samples = read_samples(folder / f"{network.file}.golden.npz", workload.inputs, limit=1)
    run = run_model(workload, samples, "rtl", machine=machine)
    program, (rtl,) = workload.program, run.inferences[0].rtl
    timing = estimate(config, program.code, dram=machine.bus.dram)
    modelled = layer_timings(program, timing, timing.cycles)
    measured = layer_timings(program, rtl.trace, rtl.cycles)
    return Row(
        network=network, cycles=rtl.cycles,
        used=sum(layer.useful_macs for layer in program.layers) / config.macs / rtl.cycles, model=timing.cycles,
        worst_layer=max(abs(model.cycles - real.cycles) / max(1, real.cycles)
                        for model, real in zip(modelled, measured, strict=True)),
        wrong=run.mismatches or 0)
