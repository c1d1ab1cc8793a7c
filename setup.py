"""The packages that are installed: all there are. Everything else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["hbench", "hbench.*"]),
        *find_packages("pipelines"),
        "hbench.leaderboards",  # rows, at the top of the repository: a folder without code
    ]
)
