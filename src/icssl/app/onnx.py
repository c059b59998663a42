"""Export to ONNX files, which are compared with torch in ONNX Runtime before writing."""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from icssl._util.errors import check_at_least
from icssl._util.files import add_onnx_digest, read_tensors, replacing
from icssl.classifier.model import ContextModel
from icssl.classifier.weights import KIND as CONTEXT_KIND
from icssl.episodes.episode import Episode
from icssl.model.baseline import BaselineConfig
from icssl.model.build import AnyConfig, AnyModel, config_to_dict, load_model
from icssl.model.model_config import ModelConfig
from icssl.model.stage import while_exporting

_OPSET = 20
_LEAST_OPSET = 18  # torch translates to this one and only converts upwards
_COORDINATES = 3  # as on the paper's surfaces; most models take any number
# Allowed differences, as a share of the largest logit. In another order, sums of a few
# hundred float32 numbers differ by 1e-6, which a deep model can enlarge tenfold.
TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-9}

_SEED, _WIDTHS = 0, (0.1, 1.0)  # of the random clouds that an export is tested on
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_NO_CONTEXT = (
    "ContextModel, the model of ICSSLClassifier, cannot be exported: it takes eigenvectors "
    "(eigh), orthogonal bases (qr), inverses (inv), ranks (searchsorted) and normal scores "
    "(ndtri) of its context, and ONNX has no such operators. Models of icssl train can be."
)


class Parity(NamedTuple):
    """How closely an exported model agrees with torch.

    Parameters
    ----------
    points : tuple of int
        Numbers of points n of the episodes that were compared.
    difference : float
        The largest difference between logits of ONNX Runtime and of torch, as a share of
        the largest logit in the batch.
    tolerance : float
        The largest difference that is allowed.
    """

    points: tuple[int, ...]
    difference: float
    tolerance: float


def to_onnx(
    model: nn.Module,
    path: Path | str,
    *,
    points: int | None = None,
    coordinates: int | None = None,
    n_classes: int | None = None,
    opset: int = _OPSET,
) -> Parity:
    """Write a model's dense forward pass as ONNX, if ONNX Runtime agrees with torch.

    Inputs of the file are ``x (b, n, d)`` in the model's dtype, ``y (b, n)`` int64 and
    ``labelled (b, n)`` bool, and ``features (b, n, k)`` where a model reads eigenvectors;
    its output is ``logits (b, n, c)``. The file takes any number b of episodes and any
    number of labels. As in torch, an episode needs at least one label, and ``y`` of an
    unlabelled point can be -1 or any class, since it is not read. The file checks none of
    this.

    Parameters
    ----------
    model : ICSSLTransformer or BaselineTransformer
        A model in float32, or in float64 where ONNX Runtime has its operators.
    path : Path or str
        File to write. If anything fails, it is left as it was.
    points : int, optional
        Number of points n. By default the file takes any number, which a model with a
        learned start cannot.
    coordinates : int, optional
        Number of coordinates d. By default that of the model where it has one, else 3.
    n_classes : int, optional
        Number of classes c, where the model takes any. By default that of the model.
    opset : int
        Version of the ONNX operator set, at least 18.

    Raises
    ------
    ValueError
        If the model does not fit these numbers, cannot be translated to ONNX, or gives
        other results there.
    """
    _check_packages()
    _check_opset(opset)
    copied = _copy_to_export(model)
    sizes = _Sizes.of(copied, points, coordinates, n_classes)
    with replacing(Path(path)) as unfinished:  # fails at once where nothing can be written
        content = _translate(copied, sizes, opset)
        parity = _compare(copied, sizes, content)
        if not parity.difference <= parity.tolerance:
            raise ValueError(
                f"ONNX Runtime differs from torch by {parity.difference:.1e} of the "
                f"largest logit, more than {parity.tolerance:.0e}: {path} was not written."
            )
        unfinished.write_bytes(content)
    return parity


class _Sizes(NamedTuple):
    """The sizes of the episodes that an exported file takes.

    ``n`` is None for any number of points from ``least`` on. ``k`` is the number of
    features that episodes come with, None for no features.
    """

    n: int | None
    least: int
    d: int
    c: int
    k: int | None

    @classmethod
    def of(cls, model: AnyModel, n: int | None, d: int | None, c: int | None) -> "_Sizes":
        """Return the given sizes, or the model's; raise if the model cannot take them."""
        config = model.config
        features = config.features if isinstance(config, ModelConfig) else "coordinates"
        least = 2 if features == "coordinates" else max(2, config.k)
        k = config.k if features == "eigenvectors" else None
        d = _n_coordinates(config) if d is None else d
        c = _n_classes(config, c)
        check_at_least("coordinates", d, 1)
        if n is None and (fixed := fixed_points(model)) is not None:
            raise ValueError(
                f"the model was built for {fixed} points and cannot take any number: "
                f"export it for points={fixed}."
            )
        if n is not None:
            check_at_least("points", n, least)
        sizes = cls(n, least, d, c, k)
        model.check_fits(sizes.episode(1, n or least, torch.float32))
        return sizes

    def episode(self, b: int, n: int, dtype: torch.dtype, width: float = 1.0) -> Episode:
        """Return random points; the first is labelled, and any number of the others."""
        generator = Generator().manual_seed(_SEED + n)
        x = width * torch.randn(b, n, self.d, generator=generator, dtype=torch.float64)
        y = torch.randint(self.c, (b, n), generator=generator)
        labelled = torch.rand(b, n, generator=generator) < torch.rand(
            b, 1, generator=generator
        )
        labelled[:, 0] = True
        values: dict[str, Any] = {"x": x, "y": y.where(labelled, -1), "labelled": labelled}
        if self.k is not None:
            features = torch.randn(b, n, self.k, generator=generator, dtype=torch.float64)
            values["features"] = torch.linalg.qr(features).Q
        return Episode.unchecked(**values, n_classes=self.c).to(dtype=dtype)


class _Forward(nn.Module):
    """A model as a module whose inputs are tensors."""

    def __init__(self, model: AnyModel, n_classes: int) -> None:
        super().__init__()
        self.model, self.n_classes = model, n_classes

    def forward(
        self, x: Tensor, y: Tensor, labelled: Tensor, features: Tensor | None = None
    ) -> Tensor:
        values = {"x": x, "y": y, "labelled": labelled, "features": features}
        return self.model(Episode.unchecked(**values, n_classes=self.n_classes))


def _translate(model: AnyModel, sizes: _Sizes, opset: int) -> bytes:
    """Return the bytes of a model's ONNX file."""
    import onnx
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    # The numbers of episodes and points differ: equal ones torch would take for one axis.
    example = sizes.episode(2, sizes.n or sizes.least + 11, _dtype_of(model)).tensors()
    axes = {0: "b"} if sizes.n else {0: "b", 1: "n"}
    with while_exporting(), _silence_translators(), torch.no_grad():
        try:
            program = torch.onnx.export(
                _Forward(model, sizes.c).eval(),
                tuple(example.values()),
                input_names=list(example),
                output_names=["logits"],
                opset_version=opset,
                dynamo=True,
                dynamic_shapes=dict.fromkeys(example, axes),
                custom_translation_table=_exact_in(_dtype_of(model)),
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason: BaseException = error
            while reason.__cause__ is not None:
                reason = reason.__cause__
            raise ValueError(f"ONNX has no such model: {_first_line(reason)}") from error
    assert program is not None
    # The file would hold lines of this code and the folder it lies in.
    ClearMetadataAndDocStringPass()(program.model)
    proto = program.model_proto
    about = {"icssl": json.dumps(config_to_dict(model.config))}
    onnx.helper.set_model_props(proto, about)
    onnx.checker.check_model(proto, full_check=True)
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    if versions[""] != opset:
        raise ValueError(f"the model needs opset {versions['']}, got opset={opset}.")
    return add_onnx_digest(proto.SerializeToString())


def _compare(model: AnyModel, sizes: _Sizes, content: bytes) -> Parity:
    """Compare ONNX Runtime with torch, on narrow and wide random clouds."""
    least = sizes.least
    points = (least, least + 1, 30, 100) if sizes.n is None else (sizes.n,)
    session, forward = _session(content, _dtype_of(model)), _Forward(model, sizes.c)
    difference = 0.0
    for n in points:
        for b, width in enumerate(_WIDTHS, start=1):
            inputs = sizes.episode(b, n, _dtype_of(model), width).tensors()
            with torch.no_grad():
                expected = forward(**inputs)
            (logits,) = session.run(None, {name: t.numpy() for name, t in inputs.items()})
            error = (torch.from_numpy(logits) - expected).abs().max()
            largest = expected.abs().max().clamp(min=torch.finfo(expected.dtype).tiny)
            # torch.maximum keeps a NaN, which Python's max could lose.
            difference = float(torch.maximum(torch.tensor(difference), error / largest))
    return Parity(points, difference, TOLERANCES[_dtype_of(model)])


def _session(content: bytes, dtype: torch.dtype) -> Any:
    """Return a session of ONNX Runtime that has loaded the model."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # only errors, which are raised as well
    if dtype == torch.float64:
        # Above this level, fused products round their factor to float32.
        basic = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.graph_optimization_level = basic
    try:
        return onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
    except (state.Fail, state.InvalidGraph, state.NotImplemented) as error:
        raise ValueError(
            "ONNX Runtime cannot run the model, which float32 (it has fewer operators in "
            f"float64) or another opset may solve: {_first_line(error)}"
        ) from error


def model_to_export(path: Path) -> AnyModel:
    """Load a model; refuse that of ICSSLClassifier, and say why."""
    try:
        return load_model(path)
    except ValueError:
        if _is_context_model(path):
            raise ValueError(_NO_CONTEXT) from None
        raise


def _is_context_model(path: Path) -> bool:
    try:
        read_tensors(path, CONTEXT_KIND)
    except ValueError:
        return False
    return True


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def _check_packages() -> None:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"ONNX export needs {', '.join(missing)}: pip install 'icssl[onnx]'."
        )


def _copy_to_export(model: nn.Module) -> AnyModel:
    """Return a copy of the model on the CPU; raise for a model that has no ONNX."""
    if isinstance(model, ContextModel):
        raise ValueError(_NO_CONTEXT)
    if not isinstance(model, AnyModel):
        raise TypeError(f"a model of icssl train is needed, got {type(model).__name__}.")
    if _dtype_of(model) not in TOLERANCES:
        dtype = str(_dtype_of(model)).removeprefix("torch.")
        raise ValueError(f"a model in float32 or float64 is needed, got {dtype}.")
    return deepcopy(model).cpu().eval().requires_grad_(False)


def _check_opset(opset: int) -> None:
    from onnx.defs import onnx_opset_version

    if not _LEAST_OPSET <= opset <= onnx_opset_version():
        allowed = f"from {_LEAST_OPSET} to {onnx_opset_version()}"
        raise ValueError(f"opset must be {allowed}, got {opset}.")


def _dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype in which a model computes."""
    return next(model.parameters()).dtype


def fixed_points(model: AnyModel) -> int | None:
    """Return the number of points that a learned start ties a model to; None for any."""
    config = model.config
    if isinstance(config, ModelConfig) and config.tied_to_n:
        return config.n_points
    return None


def _n_classes(config: AnyConfig, c: int | None) -> int:
    """Return ``c``, or the model's number of classes; raise if it cannot take ``c``."""
    if c is None:
        return config.n_classes
    check_at_least("n_classes", c, 2)
    takes_any = (
        isinstance(config, ModelConfig)
        and config.head == "descent"
        and config.embedding == "simplex"
    )
    if c != config.n_classes and not takes_any:
        raise ValueError(f"the model has {config.n_classes} classes, got n_classes={c}.")
    return c


def _n_coordinates(config: AnyConfig) -> int:
    if isinstance(config, BaselineConfig):
        return config.d
    reads_k_coordinates = config.features == "coordinates" and config.head == "encoder"
    return config.k if reads_k_coordinates else _COORDINATES


def _exact_in(dtype: torch.dtype) -> dict[Callable, Callable]:
    """Return our translations of operators that torch always translates in float32."""
    if dtype == torch.float32:
        return {}
    import onnx_ir
    from onnxscript import opset18

    op: Any = opset18

    def constant(value: float, kind: int) -> Any:
        return op.Constant(value=onnx_ir.tensor(value, dtype=onnx_ir.DataType(kind)))

    # Names and types of the arguments are those of aten, by which torch finds the numbers.
    def scalar_tensor(
        s: float,
        dtype: int = 1,
        layout: str = "",
        device: str = "",
        pin_memory: bool = False,
    ) -> Any:
        return constant(s, dtype) if isinstance(s, int | float) else op.Cast(s, to=dtype)

    def layer_norm(
        x: Any,
        shape: Sequence[int],
        weight: Any,
        bias: Any,
        eps: float,
        cudnn_enable: bool = False,
    ) -> Any:
        last = op.Constant(value_ints=[-1])
        centred = op.Sub(x, op.ReduceMean(x, last))
        variance = op.ReduceMean(op.Mul(centred, centred), last)
        unit = op.Div(centred, op.Sqrt(op.Add(variance, constant(eps, x.dtype))))
        return op.Add(op.Mul(unit, weight), bias)

    aten = torch.ops.aten
    return {aten.scalar_tensor.default: scalar_tensor, aten.layer_norm.default: layer_norm}


@contextmanager
def _silence_translators() -> Iterator[None]:
    """Hide what the translators log and warn about in their own code."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
