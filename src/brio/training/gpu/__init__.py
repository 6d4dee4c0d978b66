"""GPU versions of modules of this package, under the names of the modules that they replace."""
