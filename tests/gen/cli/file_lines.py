"""Every place of a command line where a file or a folder to be read is named."""

__all__ = ["LINES", "NAMES"]

#: Command lines; FILE is what is no file, FOLDER has no others, MODEL and SAMPLES are good ones.
LINES = (
    "disasm FILE.npu",
    "disasm FILE --json",
    "run FILE.npu --input SAMPLES",
    "run FILE.onnx --input SAMPLES",
    "run MODEL --input FILE.npz",
    "run MODEL --input FILE.png",
    "run MODEL --input SAMPLES --config FILE.json",
    "run MODEL --input SAMPLES --target board:litex:FOLDER",
    "compile FILE.onnx -o y.npu",
    "compile MODEL -o y.npu --calibrate FILE.npz",
    "compile MODEL -o y.npu --winograd narrow --features winograd --winograd-calibrate FILE.npz",
    "quantize FILE.onnx --calibrate SAMPLES -o y.onnx",
    "quantize FLOAT --calibrate FILE.npz -o y.onnx",
    "quantize FLOAT --calibrate SAMPLES --test FILE.npz -o y.onnx",
    "compare FILE.onnx --input SAMPLES",
    "compare MODEL --input FILE.npz",
    "profile FILE.npu",
    "prune FILE.onnx --density 0.5 -o y.onnx",
    "deploy FILE.npu --board zu3eg -o package",
    "deploy MODEL --board zu3eg -o package --input FILE.npz",
    "deploy MODEL --board zu3eg -o package --hardware FOLDER",
    "explore FILE.onnx",
    "explore MODEL --vary macs=16 --input FILE.npz",
    "explore MODEL --space FILE.yaml",
    "explore MODEL --space FILE.json",
    "explore FILE.yaml",
    "battery --levels FILE.json",
    "govern FILE.npu --input SAMPLES -o y",
    "build --config FILE.json -o y",
    "train FILE.yaml -o y.onnx",
)
#: Files that a folder of some kind has.
NAMES = ("manifest.json", "config.json", "npu.dtso", "system.json")
