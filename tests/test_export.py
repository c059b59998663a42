"""ONNX files give the logits of torch, for any n where they may, or are not written."""

import random
import sys
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import icssl
from helpers import random_episode
from icssl._util.errors import DamagedFileError
from icssl._util.files import check_onnx
from icssl.app.cli import app
from icssl.app.onnx import TOLERANCES, to_onnx
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.classifier.weights import save_context_model
from icssl.model.baseline import BaselineConfig, BaselineTransformer
from icssl.model.build import save_model
from icssl.model.model_config import ModelConfig
from icssl.model.transformer import ICSSLTransformer

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

# Every kind of layer, and loops, in few nodes: to translate them is what takes the time.
SMALL = {
    "laplacian_layers": 1,
    "laplacian_heads": 2,
    "eigenmap_layers": 1,
    "eigenmap_heads": 2,
    "stage_loops": 1,
    "steps": 2,
}
FREE = {
    "free": ("free", {}),
    "lap_linear": ("free", {"laplacian_kernel": "linear"}),
    "encoder": ("encoder", {"width": 16, "encoder_layers": 1}),
    "orig_icl": ("orig_icl", {}),
    "eig_icl": ("eig_icl", {}),
}
LEARNED = {"learn_r_start": True, "attend_to_r": True, "kernel": "softmax"}
EXACT = {"n_points": 20, "expectation": "exact"}
TIED = {
    "paper": ("paper", {"n_points": 20}),
    "paper, exact": ("paper", EXACT),
    "paper_lap_linear": ("paper_lap_linear", {**EXACT, **LEARNED}),
}
WIDE = {"coordinates": 40}  # torch takes such points to fewer coordinates; ONNX cannot


@pytest.fixture(autouse=True)
def unchecked_types():
    """While torch traces a model, a size is a symbol and no int."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def build(name, **changes):
    """A small model of a preset with random weights, always the same ones."""
    torch.manual_seed(0)
    if name == "transformer":
        sizes = {"width": 16, "feed_forward": 32, "layers": 1, "scale": "neighbour"}
        return BaselineTransformer(BaselineConfig(**{**sizes, **changes}))
    preset, own = {**FREE, **TIED}[name]
    return ICSSLTransformer(ModelConfig.preset(preset, **{**SMALL, **own, **changes}))


def episode_for(model, b, n, m, *, d=3, c=2):
    generator = torch.Generator().manual_seed(n + m)
    k = 4 if getattr(model.config, "features", "") == "eigenvectors" else None
    dtype = next(model.parameters()).dtype
    return random_episode(generator, b=b, n=n, d=d, c=c, m=m, k=k, dtype=dtype)


def run(path, episode):
    """Logits by ONNX Runtime, told nothing of unlabelled points."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if episode.x.dtype == torch.float64:
        basic = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.graph_optimization_level = basic
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    given = {name: tensor.numpy() for name, tensor in episode.tensors().items()}
    given["y"] = np.where(given["labelled"], given["y"], -1)
    (logits,) = session.run(["logits"], given)
    return torch.from_numpy(logits)


def assert_same(path, model, episode):
    with torch.no_grad():
        expected = model.eval()(episode)
    found = run(path, episode)
    assert found.dtype == expected.dtype
    scale = float(expected.abs().max())
    assert scale > 1e-3  # of logits that say something
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9}[expected.dtype]
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * scale)


# What is exported


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("free", {}),
        ("lap_linear", {**WIDE, "n_classes": 5}),
        ("encoder", WIDE),
        ("orig_icl", {}),
        ("eig_icl", {}),
        ("transformer", {}),
    ],
    ids=str,
)
def test_a_file_takes_any_number_of_episodes_points_and_labels(tmp_path, name, options):
    model, path = build(name), tmp_path / "model.onnx"
    parity = to_onnx(model, path, **options)
    assert len(parity.points) > 2
    assert parity.difference < parity.tolerance == 1e-4
    sizes = {"d": options.get("coordinates", 3), "c": options.get("n_classes", 2)}
    for b, n, m in ((1, 4, 1), (3, 7, 7), (2, 61, 20)):
        assert_same(path, model, episode_for(model, b, n, m, **sizes))


@pytest.mark.parametrize(
    "name", ["free", "encoder", "orig_icl", "eig_icl", *TIED, "transformer"]
)
def test_a_file_for_a_fixed_number_of_points_has_all_the_digits(tmp_path, name):
    # ONNX Runtime has no error function in float64, which GELU takes.
    double = name not in ("encoder", "paper")
    model, path = build(name), tmp_path / "model.onnx"
    model = model.double() if double else model
    parity = to_onnx(model, path, points=20)
    assert parity.points == (20,)
    assert parity.difference < parity.tolerance == (1e-9 if double else 1e-4)
    for b, m in ((1, 1), (3, 12)):
        assert_same(path, model, episode_for(model, b, 20, m))
    shape = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    assert (shape[0].dim_param, shape[1].dim_value, shape[2].dim_value) == ("b", 20, 3)
    if name == "free":  # scales itself, so that points may be of any size
        few = episode_for(model, 1, 20, 5)
        huge = few.unchecked(**{**few.tensors(), "x": 1e200 * few.x}, n_classes=2)
        assert_same(path, model, huge)


@pytest.mark.parametrize("name", ["lemmas", "transformer"])
def test_digits_are_kept_for_any_number_of_points(tmp_path, name):
    path = tmp_path / "model.onnx"
    if name == "lemmas":
        model = ICSSLTransformer(ModelConfig.constructed(k=2, iterations=2))
    else:
        model = build(name).double()
    assert to_onnx(model, path).tolerance == 1e-9
    assert_same(path, model, episode_for(model, 2, 33, 5))


def test_the_file_says_what_it_is_and_the_model_stays_as_it_was(tmp_path):
    model, path = build("orig_icl").train(), tmp_path / "model.onnx"
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    to_onnx(model, path, opset=18)
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert [(one.domain, one.version) for one in proto.opset_import] == [("", 18)]
    assert [one.name for one in proto.graph.input] == ["x", "y", "labelled"]
    shape = proto.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in shape] == ["b", "n", 2]
    assert b"site-packages" not in path.read_bytes()  # nor any other trace of this machine
    assert str(Path(icssl.__file__).parent).encode() not in path.read_bytes()
    about, digest = proto.metadata_props
    assert digest.key == "icssl-digest"
    assert '"features": "coordinates"' in about.value
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_b2_a_damaged_onnx_file_is_refused_by_name(tmp_path):
    path = tmp_path / "model.onnx"
    to_onnx(build("orig_icl"), path)
    check_onnx(path)
    whole, rng = path.read_bytes(), random.Random(0)
    spoiled = [whole[:-1], whole + b"a", whole[: len(whole) // 2], b"", b"a text"]
    for place in [*range(-100, 0), *(rng.randrange(len(whole)) for _ in range(100))]:
        content = bytearray(whole)
        content[place] ^= 1 << rng.randrange(8)
        spoiled.append(bytes(content))
    for content in spoiled:
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"model\.onnx is damaged, or no ONNX"):
            check_onnx(path)


# What is refused, and leaves nothing


def refused(model, path, match, error=ValueError, **options):
    with pytest.raises(error, match=match):
        to_onnx(model, path, **options)
    assert not list(path.parent.iterdir())


def test_models_that_cannot_be_exported(tmp_path):
    path = tmp_path / "model.onnx"
    context = ContextModel(ContextConfig(k=4, steps=2, width=8, embedding=4))
    refused(context, path, r"eigh.*qr.*searchsorted.*ndtri")
    refused(nn.Linear(3, 2), path, "icssl train.*Linear", TypeError)
    refused(build("orig_icl").half(), path, "float32 or float64.*float16")
    refused(build("encoder").double(), path, "float32.*Erf", points=9)


class _Factorised(nn.Module):
    """A head with an operator that ONNX lacks."""

    def forward(self, phi, y, labelled, **_):
        return torch.linalg.qr(phi).Q


def test_an_operator_without_onnx_is_named(tmp_path):
    model = build("orig_icl")
    model.head = _Factorised()
    model.scale = nn.Parameter(torch.ones(()))  # what its dtype is read from
    refused(model, tmp_path / "model.onnx", "linalg_qr", points=9)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("paper", {}, "built for 20 points.*points=20"),
        ("paper", {"points": 30}, "built for 20 points, got 30"),
        ("free", {"points": 3}, "points must be at least 4, got 3"),
        ("transformer", {"coordinates": 5}, "takes 3 coordinates, got 5"),
        ("orig_icl", {"coordinates": 0}, "coordinates must be at least 1, got 0"),
        ("orig_icl", {"n_classes": 3}, "has 2 classes, got n_classes=3"),
        ("transformer", {"n_classes": 3}, "has 2 classes, got n_classes=3"),
        ("free", {"n_classes": 1}, "n_classes must be at least 2, got 1"),
        ("free", {"opset": 17}, "opset must be from 18 to .*, got 17"),
    ],
)
def test_sizes_that_do_not_fit(tmp_path, name, options, match):
    refused(build(name), tmp_path / "model.onnx", match, **options)


def test_a_difference_beyond_the_tolerance_keeps_the_file_before(tmp_path, monkeypatch):
    monkeypatch.setitem(TOLERANCES, torch.float32, 0.0)
    path = tmp_path / "model.onnx"
    path.write_text("older")
    with pytest.raises(ValueError, match=r"differs from torch by .*model\.onnx was not"):
        to_onnx(build("orig_icl"), path, points=40)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        to_onnx(build("orig_icl"), tmp_path / "file" / "model.onnx", points=9)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["onnx", "onnxscript", "onnxruntime"])
def test_absence_of_a_package_names_the_extra(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    match = rf"needs {name}: pip install 'icssl\[onnx\]'"
    refused(build("orig_icl"), tmp_path / "model.onnx", match, ImportError)


# The command


def command(*arguments):
    result = CliRunner().invoke(app, ["export", *map(str, arguments)])
    plain = "".join(c for c in result.output if c not in "│╭╮╰╯─")
    return result.exit_code, " ".join(plain.split())


def test_the_command_writes_a_file_and_says_how_far_it_is_from_torch(tmp_path):
    """For the points of a learned start, which it knows."""
    model, path = build("paper"), tmp_path / "new" / "model.onnx"
    save_model(model, tmp_path / "model.safetensors")
    options = (tmp_path / "model.safetensors", "-o", path)
    code, output = command(*options, "--dynamic")
    assert code == 2
    assert "built for 20 points" in output
    code, output = command(*options)
    assert code == 0, output
    assert "model.onnx" in output
    assert "at n = 20." in output
    assert_same(path, model, episode_for(model, 2, 20, 3))


def test_what_the_command_refuses(tmp_path):
    model, other = tmp_path / "model.safetensors", tmp_path / "tables.safetensors"
    save_model(build("orig_icl"), model)
    small = ContextConfig(k=4, steps=2, width=8, embedding=4)
    save_context_model(ContextModel(small), other)
    path, empty = tmp_path / "model.onnx", tmp_path / "empty"
    empty.mkdir()
    for arguments, word in (
        ((tmp_path / "none.safetensors", "-o", path), "does not exist"),
        ((other, "-o", path), "searchsorted"),
        ((empty, "-o", path), "folder"),
        ((model, "-o", tmp_path), "folder"),
        ((model, "-o", model / "model.onnx"), "is a file"),
        ((model, "-o", path, "--points", 9, "--dynamic"), "--points 9"),
        ((model, "-o", path, "--points", 1), "--points"),
        ((model, "-o", path, "--opset", 3), "opset"),
    ):
        code, output = command(*arguments)
        assert code == 2, arguments
        assert word in output
    assert not path.exists()
