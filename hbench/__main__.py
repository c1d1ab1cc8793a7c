"""Where `hbench` and `python -m hbench` start: with nothing imported yet, so that an interrupt is
answered from here on.
"""

import atexit
import gc
import sys

# How often cycles are searched for: among young objects as ever, for they may hold a batch; among
# all objects, which are the libraries' million and stop every thread for a tenth of a second,
# seldom.
CYCLES = (700, 10, 1_000)


def main() -> None:
    """Run the command line, with garbage collection set so that it costs a short command little.

    Imported in here: an interrupt during the import, which takes a moment, gets a line and no
    traceback.
    """
    gc.set_threshold(*CYCLES)
    atexit.register(skip_final_gc)
    try:
        from hbench.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("hbench: interrupted\n")
        sys.exit(130)  # as shells report it: 128 + the number of the signal
    run()


def skip_final_gc() -> None:
    """Skip the interpreter's last garbage collection, which takes an eighth of a second.

    Not where torch was loaded: its extensions take what is never freed for a leak, and list it on
    stderr.
    """
    if "torch" not in sys.modules:
        gc.freeze()


if __name__ == "__main__":  # worker processes import this module, too
    main()
