"""GPU twins of this room's modules, under the names of what they replace."""
