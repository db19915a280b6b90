"""Command line: ``python -m gen COMMAND``."""

import os
import sys

# The layers are too small for a second thread to help, and on a busy machine the two wait for each other: ten times
# slower. NumPy looks only when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

try:
    from gen.cli import main
except KeyboardInterrupt:
    print("gen: interrupted", file=sys.stderr)
    sys.exit(130)

sys.exit(main())
