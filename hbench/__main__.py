"""Starts `hbench` and `python -m hbench`. Nothing is imported before the start, so that an
interrupt is handled from here on."""

import atexit
import gc
import sys

# Thresholds of the garbage collector. Young objects are searched for cycles as often as usual,
# since a cycle may hold a whole batch. All objects are searched rarely: the libraries have a
# million of them, and a search stops every thread for a tenth of a second.
CYCLES = (700, 10, 1_000)


def main() -> None:
    """Run the command line, with a garbage collector that costs a short command little: it searches
    all objects rarely (CYCLES), and not at the end (`skip_final_gc`).

    The import is in the function so that an interrupt during the import prints a line and no
    traceback.
    """
    gc.set_threshold(*CYCLES)
    atexit.register(skip_final_gc)
    try:
        from hbench.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("hbench: interrupted\n")
        sys.exit(130)  # the status that shells report: 128 + the number of the signal
    run()


def skip_final_gc() -> None:
    """Skip the interpreter's last garbage collection, which takes an eighth of a second.

    It is not skipped if torch was loaded: torch's extensions report objects that are never freed as
    leaks, on stderr.
    """
    if "torch" not in sys.modules:
        gc.freeze()


if __name__ == "__main__":  # worker processes import this module, too
    main()
