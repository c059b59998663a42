"""Fetch TabPFN v1, a peer of ``icssl bench real``, into a folder of its own.

Its code is in the wheel of tabpfn 0.1.11 and its weights are in the source distribution of
pfns 0.3.0, both on PyPI (Apache-2.0). pip downloads the two files, without what they depend
on; nothing is installed. The package is unpacked as ``tabpfn_v1``, so that it cannot be
mistaken for a later TabPFN, with what today's torch and scikit-learn need: names that have
moved, an argument that must be stated, and weights that are read without running code from
their file.

    python scripts/fetch_tabpfn.py [FOLDER]
    python scripts/fetch_tabpfn.py FOLDER --tabpfn WHEEL --pfns TAR_GZ   # without internet
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ARCHIVES = {
    "tabpfn": (
        "tabpfn-0.1.11-py3-none-any.whl",
        "d7699467049cf6e3950121777a5ee6aa625cb9066447a7888f8ebf8937d3858a",
    ),
    "pfns": (
        "pfns-0.3.0.tar.gz",
        "1b48899b4485188978930c76ce6eeea927ae468355ab9e636c9e583696943544",
    ),
}
WEIGHTS = "models_diff/prior_diff_real_checkpoint_n_0_epoch_42.cpkt"
INTERFACE = "scripts/transformer_prediction_interface.py"
MODULES = ("encoders.py", "layer.py", "transformer.py", "utils.py")
MODULES += ("scripts/model_builder.py", INTERFACE)

# What is changed in each module: a text, and what takes its place wherever it occurs.
CHANGES = {
    "layer.py": (
        ("Module, Tensor, Optional, MultiheadAttention", "Module, MultiheadAttention"),
        (
            "from torch import nn\n",
            "from typing import Optional\nfrom torch import nn, Tensor\n",
        ),
    ),
    "scripts/model_builder.py": (
        ("map_location='cpu')", "map_location='cpu', weights_only=True)"),
    ),
    INTERFACE: (
        ("force_all_finite", "ensure_all_finite"),
        ("softmax_temperature_, True)", "softmax_temperature_, True, use_reentrant=False)"),
    ),
}


def download(name, folder):
    """Download one archive by the name of its package, and return its path."""
    file, _ = ARCHIVES[name]
    version = file.split("-")[1].removesuffix(".tar.gz")
    kind = ["--no-binary", name] if file.endswith(".gz") else ["--only-binary", name]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, *kind, f"{name}=={version}", "--dest", folder], check=True)
    return Path(folder) / file


def check_digest(name, path):
    """Refuse an archive that is not the one which was measured."""
    file, expected = ARCHIVES[name]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != expected:
        raise SystemExit(f"{path} is not {file}: its sha256 is {digest}, not {expected}.")


def change_module(module, text):
    """Return a module's text as today's torch and scikit-learn need it."""
    for old, new in CHANGES.get(module, ()):
        if old not in text:
            raise SystemExit(f"{module} does not contain {old!r}.")
        text = text.replace(old, new)
    text = text.replace("from tabpfn.", "from tabpfn_v1.")
    return text.replace("import tabpfn.", "import tabpfn_v1.")


def unpack(wheel, source, package):
    """Write the modules that prediction needs, and the weights."""
    with zipfile.ZipFile(wheel) as archive:
        for module in MODULES:
            path = package / module
            path.parent.mkdir(parents=True, exist_ok=True)
            text = archive.read(f"tabpfn/{module}").decode()
            path.write_text(change_module(module, text))
    (package / "__init__.py").write_text('"""TabPFN v1; fetched by fetch_tabpfn.py."""\n')
    (package / "scripts" / "__init__.py").touch()
    weights = package / WEIGHTS
    weights.parent.mkdir(exist_ok=True)
    with tarfile.open(source) as archive:
        stream = archive.extractfile(f"pfns-0.3.0/{WEIGHTS}")
        with weights.open("wb") as file:
            shutil.copyfileobj(stream, file)


def main():
    """Fetch, check and unpack."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data/tabpfn"))
    for name, (file, _) in ARCHIVES.items():
        parser.add_argument(f"--{name}", type=Path, help=f"{file}, if it is already here.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as downloads:
        archives = {}
        for name in ARCHIVES:
            archives[name] = getattr(options, name) or download(name, downloads)
            check_digest(name, archives[name])
        unpack(archives["tabpfn"], archives["pfns"], options.folder / "tabpfn_v1")
    print(f"TabPFN v1 is in {options.folder}.")


if __name__ == "__main__":
    main()
