"""``python -m tests.lint``: a line for each rule that is broken; exit status 1 if there is one."""

import sys

from tests.lint import families, imports, navigation, reads, texts, units

lines = [line for rules in (families, imports, navigation, reads, texts, units) for line in rules.broken()]
print(*lines, sep="\n", end="\n" if lines else "")
sys.exit(bool(lines))
