"""``.npu`` files that are changed on purpose: with digests that are right again."""

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from npudriver.archive import write_archive
from npudriver.sealed import sealed_json

__all__ = ["Files", "changed", "read_files", "reseal", "resealed", "write_files"]

Files = dict[str, bytes]


def read_files(path: Path) -> Files:
    """Name -> content."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_files(path: Path, files: Mapping[str, bytes]) -> None:
    path.write_bytes(write_archive(files, plain=files))


def resealed(files: Mapping[str, bytes]) -> Files:
    """With digests anew, of programs first: the model has those of their headers."""
    found = dict(files)
    for name in [*sorted(name for name in found if name.endswith("/program.json")), "model.json"]:
        try:
            header = json.loads(found[name])
        except (KeyError, ValueError):
            continue
        listed = header.pop("files", None) if isinstance(header, dict) else None
        if not isinstance(listed, dict) or "sha256" not in header:      # one that has none any more
            continue
        del header["sha256"]
        base = name.rpartition("/")[0]
        beside = {one: found.get(f"{base}/{one}" if base else one, b"") for one in listed}
        found[name] = sealed_json(header, beside)
    return found


def changed(path: Path, target: Path, change: Callable[[dict[str, Any]], object], name: str = "program0/compiled.json"
            ) -> None:
    """Copy a program with ``change`` applied to one of its JSON files."""
    files = read_files(path)
    header = json.loads(files[name])
    change(header)
    write_files(target, resealed({**files, name: json.dumps(header).encode()}))


def reseal(path: Path, header: Mapping[str, Any] | None = None) -> None:
    """Write a file with digests as of what is there now. ``header``: what it has, unless it stays as it is."""
    old = json.loads(path.read_bytes())
    files = old.pop("files", {})
    old.pop("sha256", None)
    path.write_bytes(sealed_json(old if header is None else header,
                                 {name: (path.parent / name).read_bytes() for name in files}))
