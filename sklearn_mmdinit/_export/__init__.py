"""Weights for other libraries: scikit-learn's own MLPClassifier, and ONNX files."""

from .onnx_file import write_onnx
from .scikit_learn import ToSklearn, sklearn_mlp

__all__ = ["ToSklearn", "sklearn_mlp", "write_onnx"]
