"""Brain network methods: BrainNetTF, XG-GNN, AGMGC, FC-HGNN, BrainOOD, DeCI, CORE."""
