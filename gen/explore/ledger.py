"""Results of measurements, kept by what decides them, so that a search that was ended goes on where it was."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.folders import cache_folder

from .evaluation import Job, Result

__all__ = ["Ledger"]


class Ledger:
    """Results of one meter, by the contents of their jobs.

    With a ``folder`` (None: in memory alone) each is in a file as soon as it is there: a line of JSON, added at the
    end. A line that was not finished is as good as none. Searches that run at once may add to the same file.
    """

    def __init__(self, identity: str, folder: Path | None) -> None:
        self.path = None if folder is None else folder / f"{identity[:32]}.jsonl"
        self._known: dict[str, Result] = {}
        self._read()

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
        if self.path is None:
            return
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Each line begins anew, as the one before may not be finished; written at once.
            with self.path.open("ab", buffering=0) as file:
                file.write("".join(f"\n{json.dumps([key, result])}" for key, result in results.items()).encode())

    def _read(self) -> None:
        if self.path is None:
            return
        with suppress(OSError):
            for line in self.path.read_bytes().splitlines():
                with suppress(ValueError, TypeError):   # not finished, or damaged
                    key, result = self._entry(json.loads(line))
                    self._known[key] = result

    @staticmethod
    def _entry(value: Any) -> tuple[str, Result]:
        key, result = value
        if not (isinstance(key, str) and isinstance(result, dict)):
            raise TypeError("no entry")
        return key, result
