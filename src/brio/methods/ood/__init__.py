"""Domain generalisation: CORAL, IRM, V-REx, GroupDRO, DANN. All train the GCN with mean readout."""

from . import coral, irm, vrex, groupdro, dann  # isort: skip # noqa: F401
