"""Write new checksums and digests into files of icssl, in place.

Use it for files that were written before they had any, or that were edited on purpose: the
content is taken as it is. Rows (.jsonl) get a checksum in every line, tensors
(.safetensors) a digest in their header; nothing else changes.

    python scripts/stamp_files.py results/*/rows.jsonl \
        src/icssl/app/explore/stages.safetensors
"""

import json
import sys
from pathlib import Path

from safetensors import safe_open

from icssl._util.files import DIGEST, FileKind, replacing, write_described
from icssl._util.jsonl import CHECKSUM, line_of


def stamp_rows(path):
    """Write a file of rows again, with a checksum in every line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.pop(CHECKSUM, None)
    with replacing(path) as unfinished:
        unfinished.write_text("".join(map(line_of, rows)), encoding="utf-8")
    return f"{len(rows):,} lines"


def stamp_tensors(path):
    """Write a file of tensors again, with a digest in its header."""
    with safe_open(path, "pt") as file:
        ((kind, text),) = file.metadata().items()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(text)
    header.pop(DIGEST, None)
    write_described(path, tensors, FileKind(kind, ""), header)
    return f"{len(tensors):,} tensors"


if __name__ == "__main__":
    for name in map(Path, sys.argv[1:]):
        stamp = stamp_tensors if name.suffix == ".safetensors" else stamp_rows
        print(f"{name}: {stamp(name)}")
