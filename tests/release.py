"""A release: what is distributed, checked, and the notes. ``make release`` runs the tests first.

    python -m tests.release

takes the commit at hand, of which the working tree must not differ. The version is pyproject.toml's; the first section
of CHANGELOG.md is of it and becomes the notes. In build/release are then the wheel, the sources, notes.md and
SHA256SUMS. Nothing is tagged or sent anywhere; the last lines say what to type for that.
"""

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

from tests import ROOT
from tests.lint.imports import PACKAGES

__all__ = ["ReleaseError", "check_wheel", "notes_of"]

FOLDER = ROOT / "build" / "release"


class ReleaseError(Exception):
    """Why there is no release, in a line."""


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def notes_of(changes: str, version: str) -> str:
    """The first section of a CHANGELOG. Raises ReleaseError where it is not of ``version``, or empty."""
    found = re.search(r"^## (\S+)[^\n]*\n(.*?)(?=^## |\Z)", changes, re.M | re.S)
    if found is None or found[1] != version:
        first = "no section" if found is None else f"section {found[1]}"
        raise ReleaseError(f"CHANGELOG.md: {first} first, where {version} is to be released (pyproject.toml)")
    if not found[2].strip():
        raise ReleaseError(f"CHANGELOG.md: section {version} is empty")
    return found[2].strip() + "\n"


def check_wheel(path: Path, version: str, files: set[str]) -> None:
    """Raises ReleaseError unless a wheel is of the version and has ``files``, the licence, notices and command."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        about = f"npugen-{version}.dist-info"
        licences = {name.rpartition("/")[2] for name in names if name.startswith(about)}
        if missing := sorted(files - names) + sorted({"LICENSE", "NOTICE", "METADATA"} - licences):
            raise ReleaseError(f"{path.name}: lacks {missing[0]}")
        if more := sorted(name for name in names - files if not name.startswith(about)):
            raise ReleaseError(f"{path.name}: has {more[0]}, which the commit has not")
        if f"\nVersion: {version}\n" not in archive.read(f"{about}/METADATA").decode():
            raise ReleaseError(f"{path.name}: not of version {version}")
        if "npugen = npugen.__main__:run" not in archive.read(f"{about}/entry_points.txt").decode():
            raise ReleaseError(f"{path.name}: without the command npugen")


def main() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if changed := _git("status", "--porcelain").decode().splitlines():
        raise ReleaseError(f"{changed[0][3:]} differs from the commit, with {len(changed) - 1} more; commit first")
    if _git("tag", "--list", f"v{version}").strip():
        raise ReleaseError(f"v{version} is tagged already; give pyproject.toml and CHANGELOG.md the next version")
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(), version)
    shutil.rmtree(FOLDER, ignore_errors=True)
    sources = FOLDER / "sources"
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as archive:
        archive.extractall(sources, filter="data")
    files = {str(path.relative_to(sources)) for package in PACKAGES for path in (sources / package).rglob("*")
             if path.is_file()}
    for build in ("build_sdist", "build_wheel"):
        print(f"{build} ...")
        call = f"from setuptools import build_meta; build_meta.{build}({str(FOLDER)!r})"
        subprocess.run([sys.executable, "-c", call], cwd=sources, check=True, capture_output=True)
    shutil.rmtree(sources)
    wheel, = FOLDER.glob("*.whl")
    check_wheel(wheel, version, files)
    (FOLDER / "notes.md").write_text(notes)
    distributed = sorted([wheel, *FOLDER.glob("*.tar.gz")])
    (FOLDER / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in distributed))
    print(*(path.relative_to(ROOT) for path in sorted(FOLDER.iterdir())), sep="\n")
    print(f"\nto publish it:\n  git tag -a v{version} -F build/release/notes.md && git push origin v{version}\n"
          f"  python -m twine upload {' '.join(str(path.relative_to(ROOT)) for path in distributed)}")


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"release: error: {error}")
