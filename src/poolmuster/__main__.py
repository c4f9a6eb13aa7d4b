"""``python -m poolmuster``: the same as the command ``poolmuster``."""

from poolmuster.cli.main import main

if __name__ == "__main__":
    main()
