"""Stage 2, TF^phi of the paper: linear attention that finds an eigenmap (Lemma 2)."""

import math
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icssl._util.errors import check_choice, check_positive
from icssl.model.operator import LaplacianOperator, has_kernels
from icssl.model.stage import Record, application_order, check_sizes, exporting

STARTS = ("fourier", "learned")

# A column shorter than this is left short: dividing by its length would amplify noise.
_SHORTEST_COLUMN = 1e-12

# The estimate of the largest eigenvalue comes from below and within a fifth. Were it half
# the truth, the smallest eigenvalues would still dominate the power iteration.
MU_MARGIN = 1.25
_ESTIMATE_STEPS = 8

_MOST_KERNEL_FEATURES, _MOST_KERNEL_POINTS = 16, 256  # an episode is held in registers


class EigenmapTransformer(nn.Module):
    r"""Layers of multi-head linear attention that refine n x k features F.

    With R the operator of stage 1, every layer computes

    .. math::
        F \leftarrow \mathrm{normalise}\Bigl(F + F S + \sum_h \bigl[
            \beta_h R (R^\top F) A_h + (F C_h) ((F B_h)^\top (F A_h)) \bigr]\Bigr),
        \qquad \beta_h = b_h c_h,

    the paper's eq. (transformer_eigmap) in rows, where ``normalise`` divides each column
    by its length. The parameters do not depend on n, but for a learned start.

    Parameters
    ----------
    k : int
        Number of features.
    layers, heads : int
    layer_loops, stage_loops : int
        How often each layer, and the whole stage, is applied.
    start : {"fourier", "learned"}
        ``"fourier"``: fixed Fourier features of the scaled coordinates
        (:func:`fourier_start`), which depend on neither n nor the order of the points.
        ``"learned"``: the paper's matrix M, which depends on both.
    start_points : int, optional
        n of a learned start.
    scale_operator : bool
        Divide R R^T by a little more than its largest eigenvalue, estimated from the
        context, so that its eigenvalues lie in [0, 1] whatever the scale of R.
    """

    def __init__(
        self,
        k: int,
        layers: int = 1,
        heads: int = 1,
        *,
        layer_loops: int = 1,
        stage_loops: int = 1,
        start: str = "fourier",
        start_points: int | None = None,
        scale_operator: bool = False,
    ) -> None:
        super().__init__()
        check_choice("start", start, STARTS)
        check_sizes(
            k=k,
            layers=layers,
            heads=heads,
            layer_loops=layer_loops,
            stage_loops=stage_loops,
        )
        if (start == "learned") != (start_points is not None):
            raise ValueError(
                "start_points goes with start='learned' and with no other, got "
                f"start={start!r}, start_points={start_points!r}."
            )
        self.k, self.layers, self.heads = k, layers, heads
        self.layer_loops = layer_loops
        self.order = application_order(layers, layer_loops, stage_loops)
        self.scale_operator = scale_operator

        self.skip = nn.Parameter(torch.zeros(layers, k, k))  # S
        self.value = nn.Parameter(torch.zeros(layers, heads, k, k))  # A
        self.key = nn.Parameter(torch.zeros(layers, heads, k, k))  # B
        self.query = nn.Parameter(torch.zeros(layers, heads, k, k))  # C
        self.key_r = nn.Parameter(torch.zeros(layers, heads))  # b
        self.query_r = nn.Parameter(torch.zeros(layers, heads))  # c
        self.start = None
        if start_points is not None:
            check_features(k, start_points)
            self.start = nn.Parameter(torch.zeros(start_points, k))
        self.reset_parameters()

    @classmethod
    def lemma2(
        cls, k: int, iterations: int, mu: float | None = None
    ) -> "EigenmapTransformer":
        r"""The construction of Lemma 2: block power iteration with Gram-Schmidt.

        One iteration is one layer that multiplies F by :math:`\mu I - R R^\top`, then
        one layer for each column 2..k that makes it orthogonal to those before it. The
        columns converge to the bottom eigenvectors of :math:`R R^\top`.

        Parameters
        ----------
        k : int
            Number of eigenvectors.
        iterations : int
            The stage has ``k * iterations`` layers.
        mu : float, optional
            Must exceed the largest eigenvalue of :math:`R R^\top`. By default 1.25 times
            an estimate of it, made anew for every context by a short power iteration.
        """
        check_sizes(k=k, iterations=iterations)
        stage = cls(k, layers=k * iterations, scale_operator=mu is None).double()
        stage.start_from_lemma2(mu)
        return stage

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Random weights around a power step and a mutual repulsion of the columns."""
        eye = torch.eye(self.k)
        noise = 0.1 / self.heads**0.5
        for parameter in (self.value, self.key, self.query):
            parameter.copy_(noise * torch.randn_like(parameter))
        self.value.sub_(eye / self.heads)
        nn.init.normal_(self.skip, std=0.1)
        for parameter in (self.key_r, self.query_r):
            nn.init.normal_(parameter, mean=1.0, std=0.1)
        if self.start is not None:
            nn.init.normal_(self.start, std=len(self.start) ** -0.5)

    @torch.no_grad()
    def start_from_lemma2(self, mu: float | None = None, noise: float = 0.0) -> None:
        """Set the weights of Lemma 2 in the first head, layer after layer; else zero.

        Layers beyond a whole number of iterations begin another one. ``noise`` is the
        standard deviation added to every weight, so that training can leave the
        construction. ``mu`` defaults to 1, for eigenvalues of at most one.
        """
        mu = 1.0 if mu is None else mu
        check_positive("mu", mu)
        for name, parameter in self.named_parameters():
            if name != "start":
                parameter.zero_()
        eye = torch.eye(self.k).to(self.skip)
        position = torch.arange(self.layers) % self.k  # 0: power; i: orthogonalise column i
        power = position == 0
        self.skip[power] = (mu - 1) * eye
        self.value[power, 0] = -eye
        self.key_r[power, 0] = 1.0
        self.query_r[power, 0] = 1.0
        for i in range(1, self.k):
            before = torch.diag((torch.arange(self.k) < i).to(self.skip))
            self.value[position == i, 0, i, i] = -1.0
            self.key[position == i, 0] = before
            self.query[position == i, 0] = before
        for parameter in self.parameters():
            parameter.add_(noise * torch.randn_like(parameter))

    def forward(
        self,
        operator: LaplacianOperator,
        x: Float[Tensor, "b n d"],
        *,
        backend: str = "dense",
        record: Record | None = None,
    ) -> Float[Tensor, "b n k"]:
        """Features of every point, in the dtype of ``x``.

        ``record`` is given what each layer computed. Backend ``"fused"`` may use kernels
        of the GPU; the operator decides about the rest.
        """
        check_features(self.k, x.shape[-2])
        f = self._start(x)
        scale = torch.ones(x.shape[0], dtype=x.dtype, device=x.device)
        if self.scale_operator:
            scale = 1 / (MU_MARGIN * largest_eigenvalue(operator, x))
        # Sums over heads that depend on the weights alone: one product for all layers.
        gain = self.key_r * self.query_r
        on_operator = torch.einsum("lh,lhij->lij", gain, self.value).to(x.dtype)
        query_key = (self.query @ self.key.mT).to(x.dtype)  # C B^T, (layers, heads, k, k)
        value = self.value.to(x.dtype)
        keep = torch.eye(self.k, dtype=x.dtype, device=x.device) + self.skip.to(x.dtype)
        if backend == "fused" and record is None and self._has_kernels(x):
            from icssl.model.triton_eigenmap import eigenmap_on_gpu

            gram = operator.gram_matrix() * scale[:, None, None]
            return eigenmap_on_gpu(
                gram,
                f,
                keep,
                on_operator,
                query_key,
                value,
                steps=len(self.order),
                layer_loops=self.layer_loops,
                shortest=_SHORTEST_COLUMN,
            )
        # Taken apart once: the gradient of an index is a whole tensor of zeros each time.
        by_layer = [w.unbind() for w in (keep, on_operator, query_key, value)]
        for step, layer in enumerate(self.order):
            kept, on_power, left, right = (weights[layer] for weights in by_layer)
            # (F C)((F B)^T (F A)) = F (C B^T (F^T F) A): k x k but for one product.
            gram = (f.mT @ f)[:, None]
            within = (left @ gram @ right).sum(dim=1)
            power = operator.gram(f) * scale[:, None, None]
            # F W + power V as one product, since small ones cost as much as large ones.
            mixing = torch.cat([kept + within, on_power.expand_as(within)], dim=-2)
            f = normalise(torch.cat([f, power], dim=-1) @ mixing)
            if record is not None:
                record(f"eigenmap.{step}.F", f)
        return f

    def _has_kernels(self, x: Tensor) -> bool:
        fits = self.k <= _MOST_KERNEL_FEATURES and x.dtype == torch.float32
        return fits and has_kernels(x, _MOST_KERNEL_POINTS)

    def _start(self, x: Tensor) -> Tensor:
        if self.start is None:
            return fourier_start(x, self.k)
        if len(self.start) != x.shape[-2]:
            raise ValueError(
                f"the start was learned for {len(self.start)} points, got {x.shape[-2]}: "
                "use start='fourier' for any number of points."
            )
        return self.start.to(x.dtype).expand(x.shape[0], -1, -1)


def normalise(f: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
    """Divide every column by its length."""
    return f / torch.linalg.vector_norm(f, dim=-2, keepdim=True).clamp(min=_SHORTEST_COLUMN)


def fourier_start(
    x: Float[Tensor, "b n d"], k: int, frequency: float = 1.0
) -> Float[Tensor, "b n k"]:
    """k functions of the points of unit length, the first of them constant.

    Cosines of fixed projections of the centred cloud, scaled to unit size: they depend
    on neither the scale, the place nor the number of the points, and follow their order.
    """
    # Halved and divided by n first: sums and differences of huge numbers stay finite.
    centred = x / 2 - (x / (2 * x.shape[-2])).sum(dim=-2, keepdim=True)
    largest = centred.abs().amax(dim=(-2, -1), keepdim=True)
    unit = centred / largest.where(largest > 0, 1)
    size = unit.square().sum(dim=-1).mean(dim=-1).sqrt()[:, None, None]
    unit = unit / size.where(size > 0, 1)
    numbers = _fixed_normals(x.shape[-1] + 1, k, like=x)
    projections, phases = frequency * numbers[:-1], numbers[-1]
    waves = torch.cos(unit @ projections[:, 1:] + phases[1:])
    return normalise(torch.cat([torch.ones_like(unit[..., :1]), waves], dim=-1))


def largest_eigenvalue(
    operator: LaplacianOperator, x: Float[Tensor, "b n d"]
) -> Float[Tensor, " b"]:
    """The largest eigenvalue of R R^T, estimated from below by power iteration."""
    # The largest eigenvalues of a Laplacian belong to its roughest eigenvectors, so the
    # iteration starts from waves too short for neighbours to agree.
    f = fourier_start(x, min(4, x.shape[-2]), frequency=100.0)
    for _ in range(_ESTIMATE_STEPS):
        f = operator.gram(f)
        length = torch.linalg.vector_norm(f, dim=-2)
        f = normalise(f)
    # Waves are equal on duplicates, so the iteration never meets their differences.
    unseen = torch.as_tensor(operator.skip_gain(), dtype=x.dtype, device=x.device).square()
    return torch.maximum(length.amax(dim=-1), unseen).clamp(min=_SHORTEST_COLUMN)


def _fixed_normals(rows: int, columns: int, *, like: Tensor) -> Tensor:
    """Scattered numbers with a normal distribution: a constant of the model, not a draw.

    A hash of the position instead of a generator, whose state would differ between
    devices and could not be captured in a CUDA graph.
    """
    if exporting():
        return _written_normals(rows, columns).to(like)
    index = torch.arange(1, rows * columns + 1, dtype=torch.float64, device=like.device)
    uniform = (torch.sin(index) * 1e4).remainder(1).clamp(1e-6, 1 - 1e-6)
    normal = torch.erfinv(2 * uniform - 1) * 2**0.5
    return normal.reshape(rows, columns).to(like.dtype)


def _written_normals(rows: int, columns: int) -> Tensor:
    """The same as numbers in the code: ONNX has no inverse of the error function."""
    wave = [1e4 * math.sin(i) % 1 for i in range(1, rows * columns + 1)]
    normal = [NormalDist().inv_cdf(min(max(u, 1e-6), 1 - 1e-6)) for u in wave]
    return torch.tensor(normal, dtype=torch.float64).reshape(rows, columns)


def check_features(k: int, n: int) -> None:
    """Raise ``ValueError`` unless k features of n points can be independent."""
    if k > n:
        raise ValueError(f"k features need at least k points, got k = {k}, n = {n}.")
