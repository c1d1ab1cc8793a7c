"""What every wing uses: errors, registries, schemas, paths, files, tables and compilation. It imports nothing of hbench."""
