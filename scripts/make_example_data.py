"""Write examples/data/wines.csv: 178 wines, nine of which have a label.

The measurements are those of the wine data that come with scikit-learn, which are in the
public domain. Three wines of each grower keep their label, drawn at random; the column of
all others is empty. Tutorials and tests get the truth from scikit-learn.

    python scripts/make_example_data.py [--root FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

LABELS = 3  # per grower
GROWERS = np.array(["Ada", "Bruno", "Carla"])


def wines():
    """Return the table with its few labels."""
    bunch = load_wine(as_frame=True)
    frame, grower = bunch.data.copy(), GROWERS[bunch.target]
    rng = np.random.default_rng(0)
    shown = np.full(len(frame), "", dtype=object)
    for name in GROWERS:
        chosen = rng.choice(np.flatnonzero(grower == name), LABELS, replace=False)
        shown[chosen] = name
    frame.columns = [name.replace("/", "_of_") for name in frame.columns]
    frame["grower"] = shown
    return frame


def main():
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    folder = parser.parse_args().root / "examples" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    wines().to_csv(folder / "wines.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
