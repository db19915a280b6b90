"""What all tests share: the folder of real models, the seed, and which tests a run has (also `costs` and `resume`)."""

import gc
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

# One thread each, as `python -m gen` has: the tests run beside each other. Only before NumPy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pytest takes ten seconds to compile the tests with what it puts into their assertions: that is kept, also where Python
# is told to write nothing beside sources.
sys.dont_write_bytecode = False
# Tests import onnxruntime themselves, before anything of ours would have switched its telemetry off.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np  # noqa: E402
import pytest  # noqa: E402

from tests.costs import Guard, for_check, mark_by_cost  # noqa: E402
from tests.resume import Resume, earlier_seed  # noqa: E402

#: Seed of a run that asks for none, so that two runs of `make test` test the same. `make test-full` draws a new one.
DEFAULT_SEED = 20

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", default=bool(os.environ.get("NPUGEN_FULL")),
                     help="run the tests marked `full` too (minutes to hours)")
    parser.addoption("--check", action="store_true",
                     help="only tests that no marker calls expensive, a few cases of each (make check)")
    parser.addoption("--resume", action="store_true",
                     help="without the tests that passed in earlier runs of the same sources and seed, until a run of "
                          "all tests has passed (make test-full)")


def pytest_configure(config: pytest.Config) -> None:
    # In the environment, so that pytest-xdist's workers and simulator processes have the same seed.
    if os.environ.get("NPUGEN_SEED", "") in ("", "random"):
        draw = os.environ.get("NPUGEN_SEED") == "random"
        begun = earlier_seed() if draw and config.getoption("--resume") else None
        drawn = int.from_bytes(os.urandom(4), "little") if begun is None else begun
        os.environ["NPUGEN_SEED"] = str(drawn if draw else DEFAULT_SEED)
    if not config.getoption("--full"):      # most simulations are done before optimising them would pay
        os.environ.setdefault("NPUGEN_RTL_QUICK", "1")
    config.pluginmanager.register(Guard())
    if config.getoption("--resume"):
        config.pluginmanager.register(Resume(config, int(os.environ["NPUGEN_SEED"])))


def pytest_report_header(config: pytest.Config) -> str:
    return f"NPUGEN_SEED={os.environ['NPUGEN_SEED']}"


@pytest.hookimpl(tryfirst=True)     # before `-m` looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        mark_by_cost(item)
    if config.getoption("--check"):
        chosen = for_check(items)
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="long: run with --full or NPUGEN_FULL=1")
    for item in items:
        if item.get_closest_marker("full"):     # keywords have the folders' names, too
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Tests make many objects that live until they end: looking for cycles among them, and among what pytest and the
    modules hold, took a third of the time of what is only Python.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session")
def models() -> Path:
    """Folder of the real models and their golden outputs; the test is skipped where it is missing."""
    folder = Path(os.environ.get("NPUGEN_MODELS", ROOT.parent / "shared" / "models"))
    if not (folder / "MANIFEST.json").is_file():
        pytest.skip(f"no models in {folder}: set NPUGEN_MODELS to the folder that holds MANIFEST.json")
    return folder


@pytest.fixture(scope="session")
def digits() -> Path:
    """Folder of the bundled example's model and test images."""
    return ROOT / "examples" / "digits"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, from NPUGEN_SEED and the test's name; printed, so a failure shows it."""
    value = int(os.environ["NPUGEN_SEED"])
    print(f"seed {value}: repeat with NPUGEN_SEED={value} pytest '{request.node.nodeid}'")
    return zlib.crc32(f"{value} {request.node.nodeid}".encode())


@pytest.fixture(autouse=True)
def no_measured_clocks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a developer, or another test, has built here is not what commands under test reckon with."""
    clocks = tmp_path_factory.getbasetemp() / "no clocks"
    monkeypatch.setattr("gen.hw.remembered.cache_folder", lambda: clocks)
    yield
    shutil.rmtree(clocks, ignore_errors=True)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Random numbers from this test's seed."""
    return np.random.default_rng(seed)
