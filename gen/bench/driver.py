"""Inferences a second through the driver, inputs loaded while the device runs and not; SSD-MobileNetV1 end to end.

The device takes the time model's cycles at its board's clock; packing, unpacking and the processor's part of a model
take the processor time, of one thread, that they take on the computer that this runs on.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boards.board import Board
from boards.clock import Clock
from gen.bench.partition import DENSITY, MACS, machine_of, ssd_cuts
from gen.hw.clock import clock_of
from gen.ir import reference
from gen.options import CompileOptions
from gen.run.application import Application, of_partition, open_application
from gen.run.host import HostSegment
from gen.run.inputs import read_samples
from gen.run.workload import Workload
from npudriver import Deployment, Device, LoadedModel, ResidentProgram
from npudriver.layout import pack
from sim.cycles import estimate
from sim.devices import PacedBackend

__all__ = ["Row", "measure"]

#: Published with 64, 128 and 256 MACs on the ZU3EG: frames a second of the whole network.
_PUBLISHED = {64: 20.2, 128: 25.6, 256: 26.5}
_DPU = "vendor's core on the same network: 31 (ZU2EG), 124.3 (ZU9EG)"
#: Inferences of a round, and rounds of which the best counts.
_INFERENCES, _ROUNDS = 24, 5


@dataclass(frozen=True, kw_only=True)
class Row:
    """``single``, ``double``: inferences a second with one slot and with two. ``device_ms``: ``cycles`` by ``clock``;
    ``host_ms``: what an inference takes longer than that with one slot.
    """

    network: str
    macs: int
    cycles: int
    device_ms: float
    host_ms: float
    single: float
    double: float
    published: float | None
    clock: str
    remark: str


def measure(board: Board, progress: Callable[[str], None] = lambda remark: None) -> Iterator[Row]:
    """The digits on the smallest and the largest preset of three, and SSD-MobileNetV1 on `MACS`."""
    digits = Path(__file__).resolve().parents[1] / "digits"
    for macs in (MACS[0], MACS[-1]):
        progress(f"digits, {macs} MACs")
        application = open_application(digits / "digits_int8.onnx", board.config(macs), CompileOptions(keep_all=True))
        samples = read_samples(digits / "digits_test.npz", application.inputs, limit=1)
        yield _row("digits, 16x16", application, samples.inputs, clock_of(board, board.config(macs)))
    path, cuts, pictures = ssd_cuts(progress)
    for macs in MACS:
        progress(f"SSD-MobileNetV1, {macs} MACs")
        config = machine_of(board, macs)
        application = of_partition(path, cuts["after"], config, CompileOptions(density=DENSITY, keep_all=True))
        yield _row("SSD-MobileNetV1, 300x300", application, {name: x[:1] for name, x in pictures.items()},
                   clock_of(board, config), published=_PUBLISHED[macs])


def _row(network: str, application: Application, inputs: Mapping[str, np.ndarray], clock: Clock, *,
         published: float | None = None) -> Row:
    config = application.workloads[0].program.config
    made = application.file.deployment()
    cycles = sum(estimate(config, program.code).cycles for program in application.programs())
    rates = {slots: _rate(made, application, inputs, clock, slots) for slots in (1, 2)}
    device_ms = 1e3 / clock.per_second(cycles)
    return Row(network=network, macs=config.macs, cycles=cycles, device_ms=device_ms,
               host_ms=1e3 / rates[1] - device_ms, single=rates[1], double=rates[2],
               published=published, clock=str(clock), remark=_DPU if published else "")


def _rate(deployment: Deployment, application: Application, inputs: Mapping[str, np.ndarray], clock: Clock,
          slots: int) -> float:
    """Inferences a second: of the best round."""
    config = application.workloads[0].program.config
    sample = {name: array[0] for name, array in inputs.items()}
    backend = PacedBackend(config, clock_hz=clock.mhz * 1e6)
    with Device(backend, deployment.machine) as device:
        model = deployment.load_into(device, slots=slots, threads=1)
        _put_results(model, application, inputs)
        found = model.run(sample)      # nothing is new any more; and the results are those of the sample
        expected = _walked(application, inputs)
        for name in deployment.outputs:
            if not np.array_equal(found[name], expected[name].reshape(found[name].shape)):
                raise AssertionError(f"the driver gives another {name} than the reference")
        best = float("inf")
        for _ in range(_ROUNDS):
            began = backend.time()
            for _ in model.stream(sample for _ in range(_INFERENCES)):
                pass
            best = min(best, backend.time() - began)
    return _INFERENCES / best


def _walked(application: Application, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All values of one sample, samples first, by the reference and the processor."""
    values = dict(inputs)
    for segment in application.segments:
        given = {name: values[name] for name in segment.inputs}
        values.update(segment.run(given) if isinstance(segment, HostSegment)
                      else reference.run(segment.graph, given)[0])
    return values


def _put_results(model: LoadedModel, application: Application, inputs: Mapping[str, np.ndarray]) -> None:
    """What a device would leave in each slot: ours computes nothing."""
    values = dict(inputs)
    for segment, loaded in zip(application.segments, model.segments, strict=True):
        if isinstance(segment, Workload) and isinstance(loaded, ResidentProgram):
            outputs, tensors = reference.run(segment.graph, {name: values[name] for name in segment.inputs}, keep=True)
            assert tensors is not None
            beat = segment.program.config.beat_bytes
            for slot in loaded.slots:
                for port in loaded.outputs.values():
                    slot.region.write(port.offset * beat, pack(tensors[port.tensor][0], beat))
            values.update(outputs)
        elif isinstance(segment, HostSegment):
            values.update(segment.run(values))
