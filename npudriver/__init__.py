"""The driver: programs run on a device, by the same calls in simulation and on a board.

It needs Python 3.8 or newer and NumPy, and nothing else of the project: `python -m gen deploy` puts a copy of this
package beside a program. docs/driver.md describes it.
"""

import os

from .backend import Backend, Buffer
from .battery import Battery, ModelledBattery, PowerSupply, ReadBattery
from .connect import open_backend
from .device import Device
from .errors import (
    AbortedError,
    DeviceError,
    DriverError,
    FaultError,
    OutOfMemoryError,
    PackageError,
    TransportError,
    WaitTimeoutError,
)
from .governed import GovernedModel
from .governor import Governor
from .inference import Inference
from .levels import LevelTable
from .machine import Machine
from .model import Deployment, HostFile, LoadedModel
from .program import DeployedProgram
from .registers import Job, Registers
from .resident import ResidentProgram

# As `gen` does: onnxruntime, which `host` imports, keeps no number of this device and sends nothing of the model.
if not os.environ.get("ORT_DISABLE_TELEMETRY"):
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"

__all__ = [
    "AbortedError", "Backend", "Battery", "Buffer", "DeployedProgram", "Deployment", "Device", "DeviceError",
    "DriverError", "FaultError", "GovernedModel", "Governor", "HostFile", "Inference", "Job", "LevelTable",
    "LoadedModel", "Machine", "ModelledBattery", "OutOfMemoryError", "PackageError", "PowerSupply", "ReadBattery",
    "Registers", "ResidentProgram", "TransportError", "WaitTimeoutError", "open_backend",
]
