"""What benchmarks/gpu.py checks and times."""
