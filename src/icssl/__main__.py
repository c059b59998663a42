"""``python -m icssl``: the same as the command ``icssl``."""

import sys


def main() -> None:
    """Run the command; Ctrl-C ends it with exit code 130, also while it is loading."""
    try:
        from icssl.app.cli import app

        app(prog_name="icssl")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
