"""Command line: ``python -m gen COMMAND``."""

import os
import signal
import sys
from types import FrameType

# The layers are too small for a second thread to help, and on a busy machine the two wait for each other: ten times
# slower. NumPy looks only when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _open_streams() -> None:
    """Output that has a place, even with `>&-`, and takes any character of a name or a table."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)  # or a file of ours would get the number
            setattr(sys, name, open(number, "w", closefd=False))
        getattr(sys, name).reconfigure(errors="replace")


# `kill` and a closed terminal are as good as Ctrl-C: what is half made goes. `nohup` stays what it is.
for _signal in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_signal) == signal.SIG_DFL:
        signal.signal(_signal, _interrupt)

_open_streams()

try:
    from gen.cli import main
except KeyboardInterrupt:
    print("gen: interrupted", file=sys.stderr)
    sys.exit(130)

sys.exit(main())
