"""`gen explore` as it is called: outputs, refusals, workers, and searches that were ended."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cores.config import PRESET_MACS
from gen.cli import main
from gen.cli.common import console
from gen.explore import cluster, evolution
from tests.gen.explore.clusters import dask_cluster
from tests.gen.float_models import mobile_network

ROOT = Path(__file__).resolve().parents[3]
MODEL = str(ROOT / "examples" / "digits" / "digits_int8.onnx")
SMALL = ["--vary", "macs=64,128", "--vary", "features=none,depthwise"]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results are kept: nothing from other tests."""
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path / "kept"))
    return tmp_path / "kept" / "explore"


def explored(capsys: pytest.CaptureFixture, *options: str) -> dict:
    assert main(["explore", MODEL, "--jobs", "1", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_files_and_table(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "_width", 160)
    folder = tmp_path / "new"
    assert main(["explore", MODEL, "--jobs", "1", "-o", str(folder), "--all", *SMALL, "--vary", "nnz_lanes=4,32"]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"{folder}: explore.json, explore.csv, explore.png\n"
    assert "looked at 8 of 8 points" in captured.out and "333 MHz, target" in captured.out
    assert "infeasible, 4: nnz_lanes must be a power of two up to ic_lanes=16, not 32" in captured.out
    values = json.loads((folder / "explore.json").read_text())
    assert [point["feasible"] for point in values["points"]] == 4 * [True, False]
    assert values["method"] == "grid" and values["space"]["macs"] == [64, 128]
    with (folder / "explore.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["clock_mhz"], rows[0]["clock_basis"]) == ("333", "target")
    assert [row["cycles"] for row in rows] == [str(point["figures"].get("cycles", "")) for point in values["points"]]
    assert (folder / "explore.png").read_bytes().startswith(b"\x89PNG")
    assert set(values["front"]) == {number for number, point in enumerate(values["points"]) if point["front"]}


def test_the_default_space_is_of_presets(capsys: pytest.CaptureFixture):
    values = explored(capsys, "--method", "random", "--evaluations", "2", "--seed", "5")
    assert set(values["space"]) == {"macs", "features"} and len(values["points"]) == 2
    assert values["size"] == 5 * len(PRESET_MACS)
    assert values["seed"] == 5


@pytest.mark.slow
def test_a_space_from_a_file_and_options_over_it(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"macs": [64, 128], "features": ["none", ["gather"]]}))
    values = explored(capsys, "--space", str(path), "--vary", "macs=64")
    assert values["space"] == {"macs": [64], "features": ["none", "gather"]}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grid", "random", "optuna"])
def test_known_results_change_nothing(method: str, kept: Path, capsys: pytest.CaptureFixture):
    if method == "optuna":
        pytest.importorskip("optuna")
    options = [*SMALL, "--method", method, "--evaluations", "3"]
    first = explored(capsys, *options)
    assert len(list(kept.iterdir())) == 1
    assert explored(capsys, *options) == first == explored(capsys, *options, "--no-cache")


def test_no_cache_keeps_nothing(kept: Path, capsys: pytest.CaptureFixture):
    explored(capsys, "--vary", "macs=64", "--no-cache")
    assert not kept.exists()


@pytest.mark.parametrize(("options", "status", "words"), [
    (["--vary", "speed=1"], 2, "--vary no parameter 'speed'"), (["--vary", "macs"], 2, "must be a parameter and its"),
    (["--vary", "macs=64", "--vary", "macs=128"], 2, "--vary macs: give all its values at once"),
    (["--objectives", "speed"], 2, "no objective 'speed'"), (["--objectives", "lut,lut"], 2, "stands there twice"),
    (["--objectives", "accuracy"], 2, "needs samples to judge by: --input X.npz"),
    (["--vary", "input_depth=256,512", *(f"--vary={name}=" + ",".join(map(str, range(10))) for name in (
        "oc_lanes", "ic_lanes", "nnz_lanes", "side_depth", "acc_depth")), "--method", "grid"], 2, "200,000 points are"),
    (["--limit", "3"], 2, "--limit counts samples of --input"), (["--shape", "x=1,3"], 2, "--shape x: the inputs"),
    (["--method", "guess"], 2, "invalid choice: 'guess'"), (["--evaluations", "0"], 2, "--evaluations"),
    (["--jobs", "1", "--scheduler", "tcp://x:1"], 2, "exclude each other"), (["--seed", "-1"], 2, "must be a number"),
    (["--space", "nowhere.json"], 1, "nowhere.json: No such file"), (["--board", "x"], 2, "unknown board 'x'"),
    (["--space", "list.json"], 1, "list.json: must be parameters"), (["--space", "x.txt"], 1, "x.txt: a space is a"),
    (["--space", "wrong.json"], 1, "wrong.json: macs: must be one of"),
    ([MODEL], 2, "one of the models is there twice"), (["--space", "broken.json"], 1, "broken.json: "),
    (["-o", "list.json"], 1, "list.json"),
    (["--calibrate", "list.json"], 1, "list.json"), (["--input", "list.json"], 1, "list.json"),
])
def test_refusals(options: list[str], status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                  capsys: pytest.CaptureFixture):
    monkeypatch.chdir(tmp_path)
    for name, text in (("list.json", "[1]"), ("wrong.json", '{"macs": 100}'), ("broken.json", "{"), ("x.txt", "x")):
        Path(name).write_text(text)
    before = sorted(tmp_path.iterdir())
    assert main(["explore", MODEL, *options]) == status
    captured = capsys.readouterr()
    assert words in captured.err and captured.err.count("\n") == 1 and captured.out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_a_float_model_wants_samples(tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture):
    path = tmp_path / "float.onnx"
    path.write_bytes(mobile_network(rng).SerializeToString())
    assert main(["explore", str(path), "--vary", "macs=64"]) == 1
    error = capsys.readouterr().err
    assert "float.onnx" in error and error.count("\n") == 1


def test_extras_that_are_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    for module in (evolution, cluster):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    for options, status, words in (
            (["--method", "optuna"], 2, "needs the package optuna: pip install 'npugen[explore]'"),
            (["--scheduler", "tcp://localhost:1"], 1, "needs the package distributed")):
        assert main(["explore", MODEL, *SMALL, *options]) == status
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_processes_give_the_same(capsys: pytest.CaptureFixture):
    alone = explored(capsys, *SMALL, "--no-cache")
    assert main(["explore", MODEL, "--jobs", "2", "--json", *SMALL]) == 0
    assert json.loads(capsys.readouterr().out) == alone


def started(options: list[str], kept: Path) -> subprocess.Popen:
    """A search that can be interrupted, also where the tests themselves cannot be, as in the background of a shell."""
    return subprocess.Popen([sys.executable, "-m", "gen", "explore", MODEL, "--json", *options], cwd=ROOT,
                            env={**os.environ, "NPUGEN_BUILD": str(kept.parent)}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def children_of(group: int) -> list[int]:
    """Processes of a session that are still at work."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_started_again(sent: signal.Signals, kept: Path, capsys: pytest.CaptureFixture):
    """Workers go with the command, what was measured stays, and the result is the same."""
    options = ["--vary", "macs=64,128,256", "--vary", "features=none,depthwise,gather"]
    process = started(["--jobs", "2", *options], kept)
    deadline = time.monotonic() + 60
    while not list(kept.glob("*.jsonl")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(sent)
    _, error = process.communicate(timeout=30)
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)
    if sent == signal.SIGINT:
        assert error.endswith("gen explore: interrupted\n") and "the same command goes on from there" in error
        assert "Traceback" not in error
    while children_of(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    known = next(kept.glob("*.jsonl")).read_text()
    assert 0 < known.count('"cycles"') < 9
    resumed = explored(capsys, *options)
    assert next(kept.glob("*.jsonl")).read_text().startswith(known)
    assert resumed == explored(capsys, *options, "--no-cache")


#: What workers say of their sources, and then this process.
STATES = ["workers", "this"]


def another_state() -> str:
    return STATES.pop(0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same(capsys: pytest.CaptureFixture):
    alone = explored(capsys, *SMALL, "--no-cache")
    with dask_cluster(1, processes=False) as address:
        assert main(["explore", MODEL, "--scheduler", address, "--json", *SMALL]) == 0
    assert json.loads(capsys.readouterr().out) == alone


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_of_processes_gives_the_same(capsys: pytest.CaptureFixture):
    options = ["--vary", "macs=64,128,256", "--vary", "features=none,depthwise,fusion", "--method", "optuna",
               "--evaluations", "8"]
    alone = explored(capsys, *options, "--no-cache")
    with dask_cluster(2, processes=True) as address:
        assert main(["explore", MODEL, "--scheduler", address, "--json", "--no-cache", *options]) == 0
    assert json.loads(capsys.readouterr().out) == alone


@pytest.mark.filterwarnings("ignore")
def test_clusters_that_are_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "_PATIENCE", 0.5)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        assert main(["explore", MODEL, "--scheduler", address, *SMALL]) == 1
        error = capsys.readouterr().err
        assert f"--scheduler {address}: " in error and error.count("\n") == 1
    with dask_cluster(0, processes=False) as address:
        assert main(["explore", MODEL, "--scheduler", address, *SMALL]) == 1
        assert "has no workers; start some: dask worker" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_goes_away(tmp_path: Path, kept: Path):
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    start = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
             "--no-dashboard", "--scheduler-file", str(file)]
    with subprocess.Popen(start, stderr=subprocess.DEVNULL) as scheduler:
        while not file.exists() or not file.read_text():
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        with subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1",
                               "--no-nanny", "--no-dashboard"], cwd=ROOT, stderr=subprocess.DEVNULL) as worker:
            process = started(["--scheduler", address, "--method", "random", "--evaluations", "30"], kept)
            while process.poll() is None and not list(kept.glob("*.jsonl")):
                time.sleep(0.05)
            scheduler.kill()
            _, error = process.communicate(timeout=120)
            worker.kill()
    assert process.returncode == 1
    assert error.splitlines()[-1].startswith("gen explore: error: the cluster has failed (")
    assert "Traceback" not in error


@pytest.mark.filterwarnings("ignore")
def test_workers_of_other_sources(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    with dask_cluster(1, processes=False) as address:
        monkeypatch.setattr(cluster, "sources_digest", another_state)
        assert main(["explore", MODEL, "--scheduler", address, *SMALL]) == 1
    assert "has other sources of npugen than these" in capsys.readouterr().err
