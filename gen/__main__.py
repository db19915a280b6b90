"""Command line: ``python -m gen COMMAND``, and the console script ``npugen``."""

import io
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any

from gen.name import speaker

# The layers are too small for a second thread to help, and on a busy machine the two wait for each other: ten times
# slower. NumPy looks only when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Where the user works lie modules of his own: the Pythons that we start leave them alone.
os.environ["PYTHONSAFEPATH"] = "1"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Output(io.FileIO):
    """Stdout whose errors say that they are its own: a full disk under it is not that of a file we write."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "stdout") from None


def _open_streams() -> None:
    """Output that has a place, even with `>&-`, and takes any character of a name or a table."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)  # or a file of ours would get the number
            setattr(sys, name, open(number, "w", closefd=False))
        getattr(sys, name).reconfigure(errors="replace")
    plain: Any = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(1, "w", closefd=False)), plain.encoding, plain.errors,
        line_buffering=plain.line_buffering, write_through=plain.write_through)


def run() -> int:
    """Run the command that the program was called with; returns the exit status."""
    # Warnings are for whoever asks for them (-W): errors are said in one line, and what is no error is not said.
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    # `kill` and a closed terminal are as good as Ctrl-C: what is half made goes. `nohup` stays what it is.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _interrupt)
    _open_streams()
    try:
        from gen.cli import main
    except KeyboardInterrupt:
        print(f"{speaker()}: interrupted", file=sys.stderr)
        return 130
    return main()


if __name__ == "__main__":
    # `python -m` looks for modules where it is called first, even for those of other names that we import.
    if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]
    sys.exit(run())
