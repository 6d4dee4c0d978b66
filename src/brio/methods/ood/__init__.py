"""Methods for unseen domains: CORAL, IRM, V-REx, GroupDRO, DANN."""
