"""`python -m pipelines.hgldv2 STEP`."""

from pipelines.hgldv2.cli import main

if __name__ == "__main__":
    main()
