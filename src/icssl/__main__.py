"""``python -m icssl``: the same as the command ``icssl``."""

from icssl.cli import app

if __name__ == "__main__":
    app(prog_name="icssl")
