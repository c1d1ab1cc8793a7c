"""Reports, which hold scores with their intervals and conditions: their files, tables and
comparisons."""
