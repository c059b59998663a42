"""``python -m icssl``: the same as the command ``icssl``."""

import sys


def main() -> None:
    """Run the command; Ctrl-C ends it with exit code 130, also while it is loading."""
    try:
        from icssl.app.cli import app

        app(prog_name="icssl")
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    finally:
        # Importing runs exec(), for every data class. CPython remembers a Ctrl-C inside it
        # as unhandled, and "python -m" would end by the signal; another exec() clears that.
        exec("")


if __name__ == "__main__":
    main()
