"""Rules of the sources that ruff cannot express: ``python -m tests.lint``, a part of ``make lint``."""
