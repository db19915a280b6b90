"""The folder of a session: its variants, and where it goes on after an interruption."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import msgspec
import onnx
import torch

from gen.files.figure import write_figure
from gen.files.read import require_file
from gen.files.results import EntryError, read_entry, write_entry
from gen.files.write import write_file
from gen.train.data import TrainingData
from gen.train.errors import TrainError
from gen.train.session import TrainingSession
from gen.train.variants import Variant, as_csv, plot

__all__ = ["SessionFolder", "identity_of"]

_STATE = "state"


def identity_of(session: TrainingSession, models: Sequence[onnx.ModelProto],
                data: Sequence[TrainingData | None]) -> str:
    """A digest of all that decides what a session makes."""
    digest = hashlib.sha256(msgspec.json.encode(session))
    for model in models:
        digest.update(model.SerializeToString(deterministic=True))
    for part in data:
        for content in part.content() if part is not None else ():
            digest.update(content)
    return digest.hexdigest()


class SessionFolder:
    """A folder of a session that is under way; ``folder`` None: nothing is kept.

    The file ``state`` has the identity of the session and what it needs to go on; it is replaced as a whole.
    """

    def __init__(self, folder: Path | None, identity: str, plots: Sequence[str]) -> None:
        """Raises TrainError for a folder that has another session's state, or a damaged one; OSError."""
        self._folder, self._identity, self._plots = folder, identity, plots
        self.state: Mapping[str, Any] | None = None
        if folder is None or not (folder / _STATE).exists():
            return
        path = folder / _STATE
        require_file(path)
        try:
            # Tensors and plain values alone: a file from elsewhere runs nothing.
            state = torch.load(io.BytesIO(read_entry(path)), weights_only=True)
        except EntryError as error:
            raise TrainError(f"{error}; remove it, and the session begins anew", code="bad-state") from None
        except (ArithmeticError, EOFError, LookupError, RuntimeError, TypeError, ValueError, UnpicklingError):
            state = None        # whoever wrote it, it was not we
        if not isinstance(state, dict) or "identity" not in state:
            raise TrainError(f"{path}: holds no session; remove it, and the session begins anew", code="bad-state")
        if state["identity"] != identity:
            raise TrainError(f"{path} is of another session, model or data; give another folder, or remove it",
                             code="other-session")
        self.state = state

    def keep(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``, plain values and tensors, the next time. Raises OSError."""
        if self._folder is not None:
            buffer = io.BytesIO()
            torch.save({**state, "identity": self._identity}, buffer)
            write_entry(self._folder / _STATE, buffer.getvalue())

    def write(self, name: str, model: onnx.ModelProto, variants: Sequence[Variant], title: Sequence[str]) -> None:
        """A variant's model, and the table and the plot of all so far. Raises OSError."""
        if self._folder is not None:
            write_file(self._folder / f"{name}.onnx", model.SerializeToString(deterministic=True))
            write_file(self._folder / "variants.csv", as_csv(variants))
            write_file(self._folder / "variants.json",
                       msgspec.json.format(msgspec.json.encode([asdict(variant) for variant in variants])) + b"\n")
            for kind in self._plots:
                write_figure(self._folder / f"variants.{kind}", plot(variants, title))
