"""Reports: scores with their intervals and conditions, as files, tables and comparisons."""
