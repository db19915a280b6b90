"""Fine-tuning of ONNX models in PyTorch, which only these modules need (the extra ``train``)."""
