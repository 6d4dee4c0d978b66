"""Training over a runs axis: the contract of a method, the sampler, the trainer, model selection."""

from .checkpoint import CheckpointStore, StackCheckpoint
from .contract import Batch, Method, NetworkCall, Output, SourceScans, Stage
from .explanation import ExplainedScans, Explanation
from .facts import MethodFacts
from .fitted_run import (
    ANY_TENSOR,
    FittedRun,
    Prediction,
    Run,
    RunState,
    Tensors,
    TensorSpec,
    group_tensors,
    name_tensors,
)
from .inputs import Inputs, InputShape, Scans
from .neural import NeuralMethod, NeuralSettings
from .stack import Stack
from .step_context import StepContext

__all__ = [
    "ANY_TENSOR",
    "Batch",
    "CheckpointStore",
    "ExplainedScans",
    "Explanation",
    "FittedRun",
    "InputShape",
    "Inputs",
    "Method",
    "MethodFacts",
    "NetworkCall",
    "NeuralMethod",
    "NeuralSettings",
    "Output",
    "Prediction",
    "Run",
    "RunState",
    "Scans",
    "SourceScans",
    "Stack",
    "StackCheckpoint",
    "Stage",
    "StepContext",
    "TensorSpec",
    "Tensors",
    "group_tensors",
    "name_tensors",
]
