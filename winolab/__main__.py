"""``python -m winolab`` is the command ``winolab``."""

from winolab.cli.command import main

if __name__ == "__main__":
    main()
