"""`python -m mfairfl` is the command line."""

import sys

from mfairfl.cli import main

if __name__ == "__main__":
    sys.exit(main())
