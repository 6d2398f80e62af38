"""``python -m mtlens`` is the command line."""

from mtlens.cli import main

if __name__ == "__main__":
    main()
