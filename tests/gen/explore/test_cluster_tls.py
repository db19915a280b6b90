"""Dask clusters that ask for certificates."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gen.cli import main
from gen.explore import cluster
from tests.conftest import ROOT

MODEL = str(ROOT / "examples" / "digits" / "digits_int8.onnx")
SMALL = ["--vary", "macs=16", "--vary", "features=none", "--no-cache"]


@dataclass(frozen=True)
class Files:
    """An authority, a certificate that it has signed, and one that another has."""

    authority: Path
    certificate: Path
    key: Path
    stranger: Path
    strange_key: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    pytest.importorskip("distributed")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing, which makes the certificates")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "stranger"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", f"{name}-key.pem", "-out", f"{name}.pem")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=me", "-keyout",
            "me-key.pem", "-out", "me.csr")
    openssl("x509", "-req", "-in", "me.csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2",
            "-out", "me.pem")
    return Files(*(folder / name for name in ("ca.pem", "me.pem", "me-key.pem", "stranger.pem", "stranger-key.pem")))


@contextmanager
def secure_cluster(files: Files) -> Iterator[str]:
    import distributed

    names = {"tls_ca_file": str(files.authority)} | {
        f"tls_{who}_{what}": str(file) for who in ("scheduler", "worker", "client")
        for what, file in (("cert", files.certificate), ("key", files.key))}
    security = distributed.Security(**names, require_encryption=True)
    with distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tls://",
                                  security=security) as local:
        yield local.scheduler_address


def options(authority: Path, certificate: Path, key: Path) -> list[str]:
    return ["--tls-ca", str(authority), "--tls-cert", str(certificate), "--tls-key", str(key)]


@pytest.mark.filterwarnings("ignore")
def test_certificates_let_in(files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Those that the authority has signed, and nobody else; the other side is asked for its own, too."""
    monkeypatch.setattr(cluster, "_PATIENCE", 2)
    with secure_cluster(files) as address:
        assert address.startswith("tls://")
        given = options(files.authority, files.certificate, files.key)
        assert main(["explore", MODEL, "--scheduler", address, "--json", *SMALL, *given]) == 0
        captured = capsys.readouterr()
        assert json.loads(captured.out)["size"] == 1 and "warning" not in captured.err
        for given in ([], options(files.authority, files.stranger, files.strange_key),
                      options(files.stranger, files.certificate, files.key)):
            assert main(["explore", MODEL, "--scheduler", address, *SMALL, *given]) == 1
            error = capsys.readouterr().err
            assert f"--scheduler {address}: " in error and error.count("\n") == 1


def test_files_that_are_none(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture):
    locked = tmp_path / "locked.pem"
    subprocess.run(["openssl", "ec", "-in", str(files.key), "-out", str(locked), "-aes128", "-passout", "pass:secret"],
                   check=True, capture_output=True)
    nowhere = tmp_path / "nowhere.pem"
    for given, message in (
            (options(nowhere, files.certificate, files.key), f"{nowhere}: is no certificate of an authority"),
            (options(files.key, files.certificate, files.key), f"{files.key}: is no certificate of an authority"),
            (options(files.authority, files.certificate, files.strange_key), "is no certificate and its key"),
            (options(files.authority, files.certificate, locked), "or one that has a password")):
        assert main(["explore", MODEL, "--scheduler", "tls://127.0.0.1:9", *SMALL, *given]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("argv", [
    ["--tls-ca", "x", "--scheduler", "tls://127.0.0.1:9"],
    ["--tls-ca", "x", "--tls-cert", "x", "--tls-key", "x"],
    ["--tls-ca", "x", "--tls-cert", "x", "--tls-key", "x", "--scheduler", "tcp://127.0.0.1:9"],
])
def test_tls_is_whole_or_not_there(argv: list[str], capsys: pytest.CaptureFixture):
    assert main(["explore", MODEL, *SMALL, *argv]) == 2
    error = capsys.readouterr().err
    assert "--tls-ca: TLS wants --scheduler tls://HOST:PORT and all of --tls-ca, --tls-cert, --tls-key" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("address, warned", [
    ("tcp://127.0.0.1:9", False), ("localhost:9", False), ("tcp://[::1]:9", False), ("tcp://npu.invalid:9", True),
    ("npu.invalid:9", True), ("tls://npu.invalid:9", False)])
def test_who_could_run_code_is_said(address: str, warned: bool, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture):
    import gen.cli.explore as command

    def no_search(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "searched", no_search)
    assert main(["explore", MODEL, "--scheduler", address, *SMALL]) == 130
    assert (f"warning: whoever reaches {address} runs code" in capsys.readouterr().err.replace("\n", " ")) == warned
