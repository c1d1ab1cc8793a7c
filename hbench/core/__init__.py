"""Holds what every wing uses: errors, registries, schemas, paths, files, tables and compilation.
Imports nothing of hbench."""
