"""Command line, ONNX front end, compiler, exporters and reports."""
