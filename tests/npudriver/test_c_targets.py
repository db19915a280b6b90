"""Whole models in C on other processors, under qemu, and on this one by other compilers: the bytes are the same."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from gen.run.application import open_application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from tests.c_models import TOLERANCE, Deployed, deployed, differing, measured, piped
from tests.c_networks import NETWORKS_OF_C, made_network
from tests.c_targets import BACKENDS, DATA, FUNCTIONS, LIBRARY, TARGETS, build, require
from tests.gen.qdq import Builder
from tests.piped_device import PipedError, run_together

from .small import CONFIG
from .test_c_model import MODELS

MLPERF = ("mlperf_kws_dscnn_int8", "mlperf_resnet8_int8", "mlperf_vww_mnv1_025_int8")


def small(name: str, seed: int, folder: Path) -> Deployed:
    make, number = MODELS[name]
    b = Builder(np.random.default_rng(seed), number=number if number is np.uint8 else np.int8)
    make(b)
    path = folder / f"{name}.onnx"
    path.write_bytes(b.build().SerializeToString())
    return deployed(path, folder / "c", CONFIG)


@pytest.mark.parametrize("target", TARGETS)
def test_models_of_several_segments(target: str, seed: int, tmp_path: Path) -> None:
    """Four samples, two on their way at a time, each as Python has it."""
    require(TARGETS[target])
    package = small("alternating", seed, tmp_path)
    answers = piped(package, build(package.folder, TARGETS[target]), 4)
    assert differing(package, answers) == 0 and len({sample[0] for sample in answers.outputs}) == 1
    package.expected[0] = bytes(len(package.expected[0]))
    assert differing(package, answers) > 0


def test_by_events(seed: int, tmp_path: Path) -> None:
    """The library waits for nothing: each of two programs is taken up when the machine has ended it."""
    require(TARGETS["gcc-sanitized"])
    package = small("alternating", seed, tmp_path)
    assert package.programs == 2
    answers = piped(package, [*build(package.folder, TARGETS["gcc-sanitized"]), "events"], 4)
    assert differing(package, answers) == 0 and len(answers.outputs) == 4


def test_bytes_are_the_same_on_all(seed: int, tmp_path: Path) -> None:
    """Of integers, and of floats that are made by sums and products alone."""
    package = small("bytes", seed, tmp_path)
    found = set()
    for target in TARGETS.values():
        if target.name == "gcc-sanitized":      # makes no other results than gcc
            continue
        require(target)
        found.add(piped(package, build(package.folder, target)).outputs[0][0])
    assert found == {((1, 9, 5, 6), package.expected[0])}


def test_a_fault_is_said(seed: int, tmp_path: Path) -> None:
    require(TARGETS["riscv32"])
    package = small("whole", seed, tmp_path)
    command = build(package.folder, TARGETS["riscv32"])
    package.inputs[0] = np.full(3 * 64, np.nan, np.float32).tobytes()
    with pytest.raises(PipedError, match=r"a call had the outcome \(7, 0, 0\)"):
        piped(package, command)


def test_instructions_are_counted(seed: int, tmp_path: Path) -> None:
    """Of one sample; what is turned into softmax by software takes more of them."""
    for name in ("riscv32", "riscv32-soft"):
        require(TARGETS[name])
    package = small("whole", seed, tmp_path)
    hard, soft = (measured(package, TARGETS[name]) for name in ("riscv32", "riscv32-soft"))
    assert hard["differ"] == soft["differ"] == 0 and hard["cycles"] == soft["cycles"] > 1000
    assert 3 * 64 * 10 < hard["processor"] < soft["processor"] / 2
    assert hard["driver"] > 0 and hard["copies"] > 0 and hard["part_code"] > 100 and hard["library_constants"] > 500


def test_instances_at_the_same_time(seed: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """Three in one program, each on a thread and a device of its own: samples are as Python has them, and threads
    share no byte that any of them writes (ThreadSanitizer).
    """
    require(TARGETS["gcc"])
    package = small("alternating", seed, tmp_path)
    command = build(package.folder, TARGETS["gcc"], flags=("-fsanitize=thread", "-pthread"), program="piped_several.c")
    samples = rng.uniform(-2, 2, (3, 4, 1, 4, 6, 6)).astype(np.float32)
    application = open_application(tmp_path / "alternating.onnx", CONFIG)
    answers = run_together(command, CONFIG, [[[x.tobytes()] for x in one] for one in samples], [4])
    for one, found in zip(samples, answers, strict=True):
        made = run_model(application, Samples({"x": one[:, 0]}, None, None), "reference")
        for inference, outputs in zip(made.inferences, found.outputs, strict=True):
            (expected,) = inference.outputs.values()
            got = np.frombuffer(outputs[0][1], np.float32)
            assert np.abs(got - expected.ravel()).max() <= TOLERANCE * np.abs(expected).max()


def test_nothing_is_written_but_what_the_caller_gives(seed: int, tmp_path: Path) -> None:
    """There are no variables that two instances would share: objects have code and constants alone."""
    require(TARGETS["gcc"])
    package = small("alternating", seed, tmp_path)
    build(package.folder, TARGETS["gcc"], flags=("-fno-pic", "-no-pie"))
    for source in (FUNCTIONS, *LIBRARY):
        said = subprocess.run(["nm", package.folder / "gcc" / f"{Path(source).stem}.o"], check=True,
                              capture_output=True, text=True).stdout
        kinds = {line.split()[-2] for line in said.splitlines()}
        assert "T" in kinds and not kinds & set("bBdDgGsSC"), said


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_nothing_is_said_of_the_sources(compiler: str, seed: int, tmp_path: Path) -> None:
    require(TARGETS[f"{compiler}-sanitized"])
    package = small("alternating", seed, tmp_path)
    for name in (FUNCTIONS, *LIBRARY, *sorted(set(BACKENDS) - {"npugen_arm.c"})):
        done = subprocess.run([compiler, "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic",
                               "-Werror", "-O2", "-c", "-o", "/dev/null", name], cwd=package.folder,
                              capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), name
    assert (package.folder / DATA).is_file()


@pytest.mark.full
@pytest.mark.parametrize("target", ["gcc-sanitized", "clang-sanitized", "armv7", "aarch64", "riscv32"])
@pytest.mark.parametrize("name", [*NETWORKS_OF_C, *MLPERF])
def test_networks(name: str, target: str, models: Path, tmp_path: Path) -> None:
    require(TARGETS[target])
    path = made_network(name, tmp_path) if name in NETWORKS_OF_C else models / f"{name}.onnx"
    package = deployed(path, tmp_path / "c", CONFIG)
    answers = piped(package, build(package.folder, TARGETS[target]))
    assert differing(package, answers) == 0
    if name in ("ssd", "yolo"):     # some boxes are selected, not all
        (rows, three), _ = answers.outputs[0][2]
        assert three == 3 and 0 < rows < package.model.outputs[2].shape[0]
    if name == "silu":
        assert package.programs > 5
