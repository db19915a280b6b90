"""Command line: ``python -m gen COMMAND``."""

import io
import os
import signal
import sys
from types import FrameType

# The layers are too small for a second thread to help, and on a busy machine the two wait for each other: ten times
# slower. NumPy looks only when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


# `kill` and a closed terminal are as good as Ctrl-C: what is half made goes. `nohup` stays what it is.
for _signal in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_signal) == signal.SIG_DFL:
        signal.signal(_signal, _interrupt)

for _stream in (sys.stdout, sys.stderr):
    if isinstance(_stream, io.TextIOWrapper):  # a terminal may not have the characters of a name or a table
        _stream.reconfigure(errors="replace")

try:
    from gen.cli import main
except KeyboardInterrupt:
    print("gen: interrupted", file=sys.stderr)
    sys.exit(130)

sys.exit(main())
