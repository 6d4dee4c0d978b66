"""Training over a runs axis: the contract of a method, the sampler, the trainer, model selection."""

from .contract import (
    Answer,
    Batch,
    Method,
    NeuralMethod,
    NeuralSettings,
    Outcome,
    Output,
    Params,
    Run,
    Source,
    Stage,
)
from .inputs import Inputs, Scans, Shape

__all__ = [
    "Answer",
    "Batch",
    "Inputs",
    "Method",
    "NeuralMethod",
    "NeuralSettings",
    "Outcome",
    "Output",
    "Params",
    "Run",
    "Scans",
    "Shape",
    "Source",
    "Stage",
]
