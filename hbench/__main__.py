"""Where `hbench` and `python -m hbench` start: with nothing imported yet, so that an interrupt is answered from here on."""

import gc
import sys


def main() -> None:
    """Run the command line."""
    # a search for cycles among all objects of the libraries stops every thread for a tenth of a second, again and again
    gc.set_threshold(50_000, 20, 1_000)
    try:
        from hbench.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("hbench: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":  # worker processes import this module, too
    main()
