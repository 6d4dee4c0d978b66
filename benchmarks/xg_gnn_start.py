"""Do the regions of a scan differ in XG-GNN before it is trained?

    python benchmarks/xg_gnn_start.py COHORT [--scans 120]

Networks with fresh weights and ways to update the states of regions under the learned connectome m, applied to some
scans with the statistics of that batch. Prints a Markdown table: SD over pairs of regions in m divided by its mean, and
the share of the mean square of the states that lies in differences between the regions of a scan, after each update.
"""

import argparse

import numpy as np
import torch
from torch import Tensor, nn

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.methods import make_method
from brio.methods.brain.xggnn import ConnectomeLearner, XGNetwork
from brio.training import RunState, Scans, StepContext


class SumOfNeighbours(XGNetwork):
    """The obvious correction of the published code: x <- MLP(m x)."""

    def pass_messages(self, m: Tensor, x: Tensor) -> Tensor:
        """Add up the states of all ROIs, weighted by m."""
        return m @ x


class NormalisedSum(XGNetwork):
    """A graph convolution with self-loops: x <- MLP(D^-1/2 (m + I) D^-1/2 x)."""

    def pass_messages(self, m: Tensor, x: Tensor) -> Tensor:
        """Add up the states of all ROIs, weighted by m + I and the degrees."""
        looped = m + torch.eye(m.shape[-1])
        root = looped.sum(-1).abs().rsqrt()
        return root.unsqueeze(-1) * (looped @ (root.unsqueeze(-1) * x))


ARMS: list[tuple[str, type[XGNetwork], str, bool]] = [
    ("m x, attention alone", SumOfNeighbours, "xg-gnn", False),
    ("m x, residual connection", SumOfNeighbours, "xg-gnn", True),
    ("D^-1/2 (m + I) D^-1/2 x, residual connection", NormalisedSum, "xg-gnn", True),
    ("x + m x / P, residual connection (xg-gnn)", XGNetwork, "xg-gnn", True),
    ("rescaled regions, attention alone (xg-gnn-published)", XGNetwork, "xg-gnn-published", False),
]


def share_between_rois(x: Tensor) -> float:
    """Share of the mean square of states [B, P, d] that lies in differences between the ROIs of a scan."""
    x = x.double()
    return float((x - x.mean(1, keepdim=True)).square().mean() / x.square().mean())


def observe(network: XGNetwork, scans: Scans) -> dict[str, Tensor]:
    """Return the learned connectomes ("learner") and the states after each update, with the statistics of the batch."""
    outputs: dict[str, Tensor] = {}
    for part in ("learner", "first", "second", "third"):
        module: nn.Module = getattr(network, part)
        module.register_forward_hook(lambda _, __, out, part=part: outputs.update({part: out}))
    n = len(scans.A)
    with torch.no_grad():
        network(scans, StepContext(torch.tensor(0), torch.ones(n), torch.zeros(n, dtype=torch.long)))
    return outputs


def main() -> None:
    """Apply fresh networks to some scans and print how far their regions differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--scans", type=int, default=120)
    args = parser.parse_args()

    cohort = Cohort.load(args.cohort)
    kept = np.flatnonzero(audit(cohort).keep)
    graphs = Connectomes(cohort.select(np.sort(np.random.default_rng(0).choice(kept, args.scans, replace=False))))
    state = RunState.from_learned(mean=graphs.full.mean(0))
    print(f"{args.scans} scans of {cohort.name}, fresh weights\n")
    print("| update | SD / mean of m over pairs | after the first | second | third update |\n" + "| --- " * 5 + "|")
    for label, network_class, name, residual in ARMS:
        method = make_method(name, {"dropout": 0.0})
        inputs = method.gather_inputs(graphs)
        torch.manual_seed(0)
        network = network_class(inputs.shape(1), method.settings)
        if not residual:
            network.learner = ConnectomeLearner(method.settings.embedding, method.settings.heads, published=True)
        outputs = observe(network, inputs.take(torch.arange(args.scans))._replace(state=state))
        m = outputs.pop("learner").double()
        shares = " | ".join(f"{share_between_rois(x):.2g}" for x in outputs.values())
        print(f"| {label} | {float((m.std((1, 2)) / m.mean((1, 2))).mean()):.2g} | {shares} |")


if __name__ == "__main__":
    main()
