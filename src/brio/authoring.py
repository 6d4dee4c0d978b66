"""Everything that authors of methods need to import.

A method consists of a frozen dataclass of settings, a neural network and a loss. The network and the loss are written
for ONE run; brio trains many runs together. ``docs/examples/my_method.py`` is a complete example.

- Declare a method: ``method``, ``variant``, ``NeuralMethod`` (or ``Method`` for one that is not trained by gradient
  steps), ``NeuralSettings``, ``setting`` with ``choice``, ``uniform`` or ``log_uniform``, and the check ``require``.
- Types that a method uses: ``Scans``, ``RunState``, ``StepContext``, ``Output``, ``Batch``, ``Stage``; ``Explanation``
  and ``ExplainedScans`` for methods that explain their predictions.
- Graphs: ``build_profiles``, ``select_strong_edges``, ``normalise_adjacency``.
- Layers that give the same numbers for a run alone and in a stack: ``Dropout``, ``BatchNorm``, ``LayerNorm``,
  ``Linear``, ``Chain``, ``build_mlp``.
- Losses: ``classification_loss``, ``bce``, ``average_losses``, ``average_by_site``.

>>> from brio.authoring import NeuralMethod, method
"""

from .methods.layers import (
    BatchNorm,
    Chain,
    Dropout,
    LayerNorm,
    Linear,
    average_by_site,
    average_losses,
    bce,
    build_mlp,
    build_profiles,
    classification_loss,
    normalise_adjacency,
    select_strong_edges,
)
from .methods.registry import Provenance, method, variant
from .settings import choice, log_uniform, require, setting, uniform
from .training import (
    Batch,
    ExplainedScans,
    Explanation,
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
    "ExplainedScans",
    "Explanation",
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
    "average_by_site",
    "average_losses",
    "bce",
    "build_mlp",
    "build_profiles",
    "choice",
    "classification_loss",
    "log_uniform",
    "method",
    "normalise_adjacency",
    "require",
    "select_strong_edges",
    "setting",
    "uniform",
    "variant",
]
