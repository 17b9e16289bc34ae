"""``python -m dpstream.tools.demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dpstream.core.errors import DpstreamError
from dpstream.tools.demo.demo_run import run_demo

INTERRUPTED = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; an error of ours is one sentence and its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dpstream.tools.demo",
        description="Simulate an invented private stream, run dpstream on it, and draw true beside synthetic.",
    )
    parser.add_argument("--out", default="demo", help="folder to make, or to make anew (default: demo)")
    parser.add_argument("--steps", type=int, default=104, help="weeks to simulate (default: 104)")
    parser.add_argument("--seed", type=int, default=0, help="of the invented data, never of the noise")
    options = parser.parse_args(arguments)
    try:
        return run_demo(options.out, steps=options.steps, seed=options.seed)
    except DpstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted; the same command begins anew", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
