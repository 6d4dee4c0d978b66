"""Training over a runs axis: the contract of a method, the sampler, the trainer, model selection."""

from .contract import Batch, Method, NeuralMethod, NeuralSettings, Outcome, Run, Source, Stage

__all__ = ["Batch", "Method", "NeuralMethod", "NeuralSettings", "Outcome", "Run", "Source", "Stage"]
