"""Give every line of files of rows its checksum, in place.

For rows that were written before lines had one, or were edited on purpose: what a line says
is taken as it is.

    python scripts/stamp_rows.py results/*/rows.jsonl results/*/runs.jsonl
"""

import json
import sys
from pathlib import Path

from icssl.files import replacing
from icssl.lines import CHECKSUM, line_of


def stamp(path):
    """Write the file anew, with a checksum in every line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.pop(CHECKSUM, None)
    with replacing(path) as unfinished:
        unfinished.write_text("".join(map(line_of, rows)), encoding="utf-8")
    print(f"{path}: {len(rows):,} lines")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        stamp(Path(name))
