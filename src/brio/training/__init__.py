"""Training over a runs axis: the contract of a method, the sampler, the trainer, model selection."""

from .contract import (
    Batch,
    FittedRun,
    Method,
    NeuralMethod,
    NeuralSettings,
    Output,
    Params,
    Prediction,
    Run,
    SourceScans,
    Stage,
)
from .inputs import Inputs, InputShape, Scans

__all__ = [
    "Batch",
    "FittedRun",
    "InputShape",
    "Inputs",
    "Method",
    "NeuralMethod",
    "NeuralSettings",
    "Output",
    "Params",
    "Prediction",
    "Run",
    "Scans",
    "SourceScans",
    "Stage",
]
