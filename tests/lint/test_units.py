"""The rule of `tests.lint.units` finds what it is for."""

from tests.lint.units import FIELDS, asked


def test_what_asks_for_a_unit_is_found():
    assert {"gather", "binary_rows", "binary_engine", "winograd"} <= FIELDS and "oc_lanes" not in FIELDS
    assert asked("a = 1 if self.config.gather else config.banks\nb = chain.product, config.winograd == 2") == {
        "gather", "winograd"}
