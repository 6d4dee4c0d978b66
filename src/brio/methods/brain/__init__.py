"""Brain network methods: BrainNetTF, XG-GNN, AGMGC, FC-HGNN, BrainOOD, DeCI, CORE."""

from . import brainnettf, agmgc, fchgnn  # isort: skip # noqa: F401
from . import deci, xggnn, core  # isort: skip # noqa: F401
from . import brainood  # noqa: F401
