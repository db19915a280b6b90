"""Command line, ONNX front end, compiler, exporters and reports."""

import os

# From 1.31 on, onnxruntime writes a lasting number of this device and events with names from the user's model to his
# home folder, and queues them for upload; it looks at this when it is first imported. Here, as all that imports it is
# in this package, or in the driver, which stands by itself and does the same.
if not os.environ.get("ORT_DISABLE_TELEMETRY"):
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
