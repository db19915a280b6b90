"""The transformer of examples/transformer that reads digits: drawn, trained for a moment, quantised, compiled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gen.cli import main
from tests.conftest import ROOT

pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")

FOLDER = ROOT / "examples" / "transformer"


@pytest.mark.full
def test_digits(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """It learns, loses a point at most when it is quantised, and the functional simulator's bytes are the golden ones.
    """
    subprocess.run([sys.executable, FOLDER / "networks.py", "digits", "-o", tmp_path], cwd=ROOT, check=True)
    session = json.loads((FOLDER / "digits.json").read_text())
    session["stages"][0]["epochs"] = 4
    for name in ("model", "train", "test"):
        found = session[name]["path"] if isinstance(session[name], dict) else session[name]
        session[name] = {"path": Path(found).name} if isinstance(session[name], dict) else Path(found).name
    (tmp_path / "session.json").write_text(json.dumps(session))
    model, quantised, test = (str(tmp_path / name) for name in ("float.onnx", "int8.onnx", "digits_test.npz"))
    assert main(["train", str(tmp_path / "session.json"), "-o", model]) == 0
    capsys.readouterr()
    assert main(["quantize", model, "--calibrate", str(tmp_path / "digits_train.npz"), "--limit", "128",
                 "--test", test, "--max-loss", "1", "-o", quantised, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy_quantized"] > 0.7
    assert main(["run", quantised, "--macs", "16", "--features", "turn,rows,table", "--input", test, "--limit", "2",
                 "--target", "functional", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mismatches"] == 0
