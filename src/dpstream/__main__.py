"""``python -m dpstream`` is the command ``dpstream``."""

from dpstream.cli import main

if __name__ == "__main__":
    main(prog_name="dpstream")
