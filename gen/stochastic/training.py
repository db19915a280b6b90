"""Float networks of backbones, trained without regard to streams, and kept for the next time."""

import hashlib
import io
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from gen.files.results import EntryError, read_entry, write_entry
from gen.files.sources import sources_digest

from .backbone import Backbone
from .errors import DataError
from .fitting import fitted
from .images import Images
from .network import Float

__all__ = ["trained"]

#: What a network depends on beside its images.
_SOURCES = ("gen/stochastic/backbone.py", "gen/stochastic/fitting.py", "gen/stochastic/repeatable.py")


def trained(backbone: Backbone, images: Images, folder: Path | None,
            remark: Callable[[str], None] = lambda step: None) -> list[Float]:
    """The network that the images to learn from make; kept in ``folder``, if there is one.

    Raises BackboneError for images of another size, DataError without PyTorch.
    """
    key = hashlib.sha256(repr((backbone.word, images.digest, images.trained, images.recipe,
                               sources_digest(*_SOURCES))).encode()).hexdigest()
    kept = None if folder is None else folder / f"{key[:32]}.network.kept"
    x, labels = images.for_backbone(backbone, images.learnt)
    if kept is not None:
        with suppress(OSError, EntryError):     # not there, or damaged: made again
            return _read(kept, backbone)
    if find_spec("torch") is None:
        raise DataError("training needs PyTorch: pip install 'npugen[train]'", code="missing-package")
    network = fitted(backbone, x, labels, images.recipe, lambda step: remark(f"{backbone.word}: {step}"))
    if kept is not None:
        arrays = {f"{name}{number}": values for number, layer in enumerate(network)
                  for name, values in zip(("weights", "bias"), layer, strict=True)}
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **arrays)
        with suppress(OSError):     # trained again the next time
            write_entry(kept, packed.getvalue())
    return network


def _read(path: Path, backbone: Backbone) -> list[Float]:
    with np.load(io.BytesIO(read_entry(path))) as arrays:
        return [(arrays[f"weights{number}"], arrays[f"bias{number}"]) for number in range(len(backbone.layers))]
