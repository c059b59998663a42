"""Stage 2, TF^phi of the paper: linear attention that computes an eigenmap (Lemma 2)."""

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

USE_TRITON = True
"""Whether backend ``"fused"`` may use :mod:`icssl.model.triton_eigenmap` on a GPU."""

_MOST_KERNEL_FEATURES, _MOST_KERNEL_POINTS = 16, 256  # an episode is held in registers


class EigenmapTransformer(nn.Module):
    r"""Layers of multi-head linear attention that refine n x k features F.

    With R the operator of stage 1, every layer computes

    .. math::
        F \leftarrow \mathrm{normalise}\Bigl(F + F S + \sum_h \bigl[
            \beta_h R (R^\top F) A_h + (F C_h) ((F B_h)^\top (F A_h)) \bigr]\Bigr),
        \qquad \beta_h = b_h c_h,

    the paper's eq. (transformer_eigmap) in rows, where ``normalise`` divides each column
    by its length. The number of parameters does not depend on n, but for a learned start.

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
        context, so that its eigenvalues lie in [0, 1] whatever the size of R.
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
    def lemma2(cls, k: int, iterations: int) -> "EigenmapTransformer":
        r"""Return the construction of Lemma 2: block power iteration with Gram-Schmidt.

        One iteration is one layer that multiplies F by :math:`\mu I - R R^\top`, then
        one layer for each column 2..k that makes it orthogonal to those before it. The
        columns converge to the bottom eigenvectors of :math:`R R^\top`. Here :math:`\mu` is
        1.25 times an estimate of the largest eigenvalue, made anew for every context by a
        short power iteration.

        Parameters
        ----------
        k : int
            Number of eigenvectors.
        iterations : int
            The stage has ``k * iterations`` layers.
        """
        check_sizes(k=k, iterations=iterations)
        stage = cls(k, layers=k * iterations, scale_operator=True).double()
        stage.start_from_lemma2()
        return stage

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw random weights around a power step and a mutual repulsion of the columns."""
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
    def start_from_lemma2(self, mu: float = 1.0, noise: float = 0.0) -> None:
        """Set the weights of Lemma 2 in the first head, layer after layer; else zero.

        Layers beyond a whole number of iterations begin another one.

        Parameters
        ----------
        mu : float
            Shift of the power iteration, which must exceed the largest eigenvalue of R R^T;
            1 is enough with ``scale_operator``.
        noise : float
            Standard deviation of what is added to every weight, so that training can leave
            the construction.
        """
        check_positive("mu", mu)
        for name, parameter in self.named_parameters():
            if name != "start":
                parameter.zero_()
        eye = torch.eye(self.k).to(self.skip)
        position = torch.arange(self.layers) % self.k  # 0: power; i: orthogonalise column i
        power = position == 0
        # F + (mu - 1) F - R R^T F = (mu I - R R^T) F: one step of the power iteration.
        self.skip[power] = (mu - 1) * eye
        self.value[power, 0] = -eye
        self.key_r[power, 0] = 1.0
        self.query_r[power, 0] = 1.0
        for i in range(1, self.k):
            # f_i - sum_{j<i} f_j (f_j . f_i): Gram-Schmidt, since columns have length one.
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
        """Compute the features of every point, in the dtype of ``x``.

        Parameters
        ----------
        operator : LaplacianOperator
            R of stage 1; it decides whether n x n matrices are formed.
        x : Tensor of shape (b, n, d)
            Points, for the Fourier start.
        backend : {"dense", "fused", "matrix_free"}
            ``"fused"`` may use Triton kernels on a GPU; the others are the same here.
        record : callable, optional
            Receives the name and value of what each layer computes.
        """
        check_features(self.k, x.shape[-2])
        f = self._start(x)
        shrink = torch.ones(x.shape[0], dtype=x.dtype, device=x.device)
        if self.scale_operator:
            shrink = 1 / (MU_MARGIN * largest_eigenvalue(operator, x))
        # Sums over heads that depend on the weights alone: one product for all layers.
        gain = self.key_r * self.query_r
        on_operator = torch.einsum("lh,lhij->lij", gain, self.value).to(x.dtype)
        query_key = (self.query @ self.key.mT).to(x.dtype)  # C B^T, (layers, heads, k, k)
        value = self.value.to(x.dtype)
        keep = torch.eye(self.k, dtype=x.dtype, device=x.device) + self.skip.to(x.dtype)
        if backend == "fused" and record is None and self._has_kernels(x):
            from icssl.model.triton_eigenmap import eigenmap_on_gpu

            gram = operator.gram_matrix() * shrink[:, None, None]
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
        # Split by layer once: the gradient of every index is a whole tensor of zeros.
        by_layer = [w.unbind() for w in (keep, on_operator, query_key, value)]
        for step, layer in enumerate(self.order):
            skip, on_power, left, right = (weights[layer] for weights in by_layer)
            # (F C)((F B)^T (F A)) = F (C B^T (F^T F) A): k x k but for one product.
            gram = (f.mT @ f)[:, None]
            within = (left @ gram @ right).sum(dim=1)
            power = operator.gram(f) * shrink[:, None, None]
            # F W + power V as one product, since small ones cost as much as large ones.
            mixing = torch.cat([skip + within, on_power.expand_as(within)], dim=-2)
            f = normalise(torch.cat([f, power], dim=-1) @ mixing)
            if record is not None:
                record(f"eigenmap.{step}.F", f)
        return f

    def _has_kernels(self, x: Tensor) -> bool:
        """Whether the Triton kernels of this stage are wanted and can take these points."""
        fits = USE_TRITON and self.k <= _MOST_KERNEL_FEATURES and x.dtype == torch.float32
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
    """Return k functions of the points, each of unit length, the first one constant.

    They are cosines of fixed projections of the cloud, centred and scaled to unit size. So
    they depend on neither the unit, the place nor the number of the points, and permuting
    the points permutes their rows.
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
    """Estimate the largest eigenvalue of R R^T from below, by power iteration."""
    # The largest eigenvalues of a Laplacian belong to its roughest eigenvectors, so the
    # iteration starts from waves too short for neighbours to agree.
    f = fourier_start(x, min(4, x.shape[-2]), frequency=100.0)
    for _ in range(_ESTIMATE_STEPS):
        f = operator.gram(f)
        length = torch.linalg.vector_norm(f, dim=-2)
        f = normalise(f)
    # The waves are equal on duplicates, so the iteration never meets the vectors that tell
    # duplicates apart; R multiplies those by its skip connections alone.
    unseen = torch.as_tensor(operator.skip_gain(), dtype=x.dtype, device=x.device).square()
    return torch.maximum(length.amax(dim=-1), unseen).clamp(min=_SHORTEST_COLUMN)


def _fixed_normals(rows: int, columns: int, *, like: Tensor) -> Tensor:
    """Return fixed numbers with a normal distribution: constants of the model, not a draw.

    They are a hash of the position. A generator's state would differ between devices and
    could not be captured in a CUDA graph.
    """
    if exporting():
        return _fixed_normals_in_python(rows, columns).to(like)
    index = torch.arange(1, rows * columns + 1, dtype=torch.float64, device=like.device)
    uniform = (torch.sin(index) * 1e4).remainder(1).clamp(1e-6, 1 - 1e-6)
    normal = torch.erfinv(2 * uniform - 1) * 2**0.5
    return normal.reshape(rows, columns).to(like.dtype)


def _fixed_normals_in_python(rows: int, columns: int) -> Tensor:
    """Compute the same numbers outside the graph: ONNX has no inverse error function."""
    wave = [1e4 * math.sin(i) % 1 for i in range(1, rows * columns + 1)]
    normal = [NormalDist().inv_cdf(min(max(u, 1e-6), 1 - 1e-6)) for u in wave]
    return torch.tensor(normal, dtype=torch.float64).reshape(rows, columns)


def check_features(k: int, n: int) -> None:
    """Raise ``ValueError`` unless k features of n points can be independent."""
    if k > n:
        raise ValueError(f"k features need at least k points, got k = {k}, n = {n}.")
