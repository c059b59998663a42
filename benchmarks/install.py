"""Measure what an installation of icssl takes, and how long it takes to start.

For each choice of extras, makes a new virtual environment, installs this clone into it with
the versions of constraints.txt, and measures its size on the disk; then starts Python in
the first one several times. Prints the figures, writes results/benchmark-install.json and
prints the same JSON as its last line. Downloads are as large as the packages: gigabytes.

    python benchmarks/install.py [--extras "" tables ...] [--starts 7] [--root FOLDER]
"""

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

CLONE = Path(__file__).parents[1]
ALL = "explore,large,onnx,ray,train,diffusion,backbones"
EXTRAS = ("", "tables", "explore", ALL)
# What a person waits for, by the words of the table.
STARTS = {
    "python -c pass": ["-c", "pass"],
    "icssl --version": ["-m", "icssl", "--version"],
    "import icssl": ["-c", "import icssl"],
    "from icssl import ICSSLClassifier": ["-c", "from icssl import ICSSLClassifier"],
    "import sklearn.ensemble": ["-c", "import sklearn.ensemble"],
}


def bytes_below(folder):
    """Return the bytes of all files below a folder, links not followed."""
    files = (path for path in folder.rglob("*") if not path.is_symlink())
    return sum(path.stat().st_size for path in files if path.is_file())


def install(folder, extras):
    """Install the clone with some extras into a new environment; return what it takes."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ["--constraint", str(CLONE / "constraints.txt")]
    pip = [str(python), "-m", "pip", "install", "--quiet", *constraints]
    subprocess.run([*pip, "pip"], check=True, stdout=sys.stderr)
    site = next((folder / "lib").glob("python*/site-packages"))
    before, begin = bytes_below(site), time.perf_counter()
    package = f"{CLONE}[{extras}]" if extras else str(CLONE)
    subprocess.run([*pip, package], check=True, stdout=sys.stderr)
    seconds = time.perf_counter() - begin
    sizes = {part.name: bytes_below(part) for part in site.iterdir() if part.is_dir()}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    return {
        "extras": extras,
        "mb": round((bytes_below(site) - before) / 1e6),
        "icssl_mb": round(sizes["icssl"] / 1e6, 2),
        "seconds": round(seconds),
        "largest_mb": {name: round(sizes[name] / 1e6) for name in largest},
    }


def start_seconds(python, arguments, count):
    """Return the median of the seconds until a command ends, after one run to warm up."""
    seconds = []
    for _ in range(count + 1):
        begin = time.perf_counter()
        subprocess.run([python, *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - begin)
    return round(median(seconds[1:]), 2)


def main():
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extras", nargs="*", default=EXTRAS)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--root", type=Path, default=CLONE)
    given = parser.parse_args()
    sizes, starts = [], {}
    for extras in given.extras:
        with TemporaryDirectory() as folder:
            sizes.append(install(Path(folder), extras))
            print(f"{sizes[-1]['mb']:6,} MB with {extras or 'no extra'}")
            if not starts:
                python = str(Path(folder) / "bin" / "python")
                for words, arguments in STARTS.items():
                    starts[words] = start_seconds(python, arguments, given.starts)
                    print(f"{starts[words]:6.2f} s {words}")
    result = {"benchmark": "install", "cores": os.cpu_count(), "seconds": starts}
    result["sizes"] = sizes
    path = given.root / "results" / "benchmark-install.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
