"""The digits example with a dozen of its images to test on: circuits that are made bit by bit take seconds an image."""

from dataclasses import replace
from pathlib import Path

from gen.bench.classifier import Classifier, digits_classifier

__all__ = ["ROOT", "few_digits"]

ROOT = Path(__file__).resolve().parents[3]


def few_digits() -> Classifier:
    digits = digits_classifier(ROOT)
    return replace(digits, calibration=digits.calibration[:40], images=digits.images[:12], labels=digits.labels[:12])
