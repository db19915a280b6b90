"""Results of measurements, kept by what decides them, so that a search that was ended goes on where it was."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gen.files.results import ResultLog
from sim.folders import cache_folder

from .evaluation import Job, Result

__all__ = ["Ledger"]


class Ledger:
    """Results of one meter, by the contents of their jobs.

    With a ``folder`` (None: in memory alone) each is in a file as soon as it is there. Searches that run at once may
    add to the same file.
    """

    def __init__(self, identity: str, folder: Path | None) -> None:
        self._known: dict[str, Result] = {}
        self._log = None
        with suppress(OSError):     # then results are kept in memory
            self._log = None if folder is None else ResultLog(folder / f"{identity[:32]}.jsonl", identity)
            self._known.update({} if self._log is None else self._log.values)

    @property
    def path(self) -> Path | None:
        """The file."""
        return None if self._log is None else self._log.path

    @classmethod
    def default_folder(cls) -> Path:
        return cache_folder() / "explore"

    def key(self, job: Job) -> str:
        """The same for jobs of the same content."""
        text = json.dumps(job.content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Result:
        return self._known[key]

    def keep(self, results: Mapping[str, Result]) -> None:
        """Results by their jobs' keys. Where the disk takes none they are kept in memory."""
        self._known.update(results)
        if self._log is not None:
            with suppress(OSError):
                self._log.add(results)
