"""Everything that the author of a method imports.

A method is a frozen dataclass of settings, a network and a loss, both written for ONE run; brio trains all runs of a
job together. ``docs/examples/my_method.py`` is a complete example.

>>> from brio.authoring import NeuralMethod, method
"""

from .methods.graphs import normalised, profiles, strong_edges
from .methods.layers import BatchNorm, Chain, Dropout, LayerNorm, Linear, build_mlp
from .methods.losses import bce, class_loss, classification_loss, site_losses
from .methods.registry import Provenance, method, variant
from .settings import require, setting
from .spaces import choice, log_uniform, uniform
from .training import (
    Batch,
    FittedRun,
    InputShape,
    Method,
    MethodFacts,
    NetworkCall,
    NeuralMethod,
    NeuralSettings,
    Output,
    Prediction,
    Run,
    RunState,
    Scans,
    SourceScans,
    Stack,
    Stage,
    StepContext,
    Tensors,
)

__all__ = [
    "Batch",
    "BatchNorm",
    "Chain",
    "Dropout",
    "FittedRun",
    "InputShape",
    "LayerNorm",
    "Linear",
    "Method",
    "MethodFacts",
    "NetworkCall",
    "NeuralMethod",
    "NeuralSettings",
    "Output",
    "Prediction",
    "Provenance",
    "Run",
    "RunState",
    "Scans",
    "SourceScans",
    "Stack",
    "Stage",
    "StepContext",
    "Tensors",
    "bce",
    "build_mlp",
    "choice",
    "class_loss",
    "classification_loss",
    "log_uniform",
    "method",
    "normalised",
    "profiles",
    "require",
    "setting",
    "site_losses",
    "strong_edges",
    "uniform",
    "variant",
]
