"""Command line: ``python -m gen COMMAND``."""

import sys

from gen.cli import main

sys.exit(main())
