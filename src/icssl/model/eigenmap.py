"""Stage 2, TF^phi of the paper: linear attention that computes an eigenmap (Lemma 2)."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icssl._util.errors import check_choice, check_positive
from icssl.model.operator import LaplacianOperator, has_kernels
from icssl.model.stage import Record, application_order, check_sizes
from icssl.model.starts import (
    SHORTEST_COLUMN,
    fourier_start,
    normalise,
    polynomial_start,
    waves_start,
)

HASH_FREQUENCY = 100.0
_FREE_STARTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "fourier": fourier_start,
    "waves": waves_start,
    "hashed": partial(waves_start, frequency=HASH_FREQUENCY),
    "polynomial": polynomial_start,
}
STARTS = ("fourier", "waves", "hashed", "polynomial", "learned")
NORMALISED = ("features", "all")

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

    That is the equation's block of F with R left alone, as Lemma 2 needs it. The whole
    equation, with ``move_operator``, changes R too, in every layer,

    .. math::
        R \leftarrow (1 + s) R + \sum_h a_h \bigl[\beta_h R R^\top
            + (F C_h) (F B_h)^\top\bigr] R .

    Parameters
    ----------
    k : int
        Number of features.
    layers, heads : int
    layer_loops, stage_loops : int
        How often each layer, and the whole stage, is applied.
    start : {"fourier", "waves", "hashed", "polynomial", "learned"}
        Functions of the points (:mod:`icssl.model.starts`), which depend on neither n nor
        the order of the points: a constant and cosines of projections; cosines alone;
        cosines so short that near points have unrelated numbers; mixtures of coordinates
        and their products. ``"learned"``: the paper's matrix M, which depends on both.
    start_points : int, optional
        n of a learned start.
    scale_operator : bool
        Divide R R^T by a little more than its largest eigenvalue, estimated from the
        context, so that its eigenvalues lie in [0, 1] whatever the size of R.
    move_operator : bool
        Learn the scalars a and s, which change R from layer to layer. Forms R.
    normalise : {"features", "all"}
        Which columns are divided by their lengths after a layer: those of F, or of R too,
        as printed. Forms R.
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
        move_operator: bool = False,
        normalise: str = "features",
    ) -> None:
        super().__init__()
        check_choice("start", start, STARTS)
        check_normalised(normalise, move_operator, scale_operator)
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
        self.scale_operator, self.normalised = scale_operator, normalise

        self.skip = nn.Parameter(torch.zeros(layers, k, k))  # S
        self.value = nn.Parameter(torch.zeros(layers, heads, k, k))  # A
        self.key = nn.Parameter(torch.zeros(layers, heads, k, k))  # B
        self.query = nn.Parameter(torch.zeros(layers, heads, k, k))  # C
        self.key_r = nn.Parameter(torch.zeros(layers, heads))  # b
        self.query_r = nn.Parameter(torch.zeros(layers, heads))  # c
        self.skip_r = self.mix_r = None
        # Nothing reads R after the last application, as in stage 1.
        moves = layers if len(self.order) > layers else layers - 1
        if move_operator and moves:
            self.skip_r = nn.Parameter(torch.zeros(moves))  # s
            self.mix_r = nn.Parameter(torch.zeros(moves, heads))  # a
        self.start_kind, self.start = start, None
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

    def extra_repr(self) -> str:
        """Return what was learned, for ``print(model)``."""
        power = (self.key_r * self.query_r).sum(dim=1).tolist()
        rows = [round(weight, 4) for weight in power]
        return f"k={self.k}, layers={self.layers}, heads={self.heads}, power={rows}"

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
        for optional in (self.skip_r, self.mix_r):
            if optional is not None:  # small, since they are factors of every layer
                nn.init.normal_(optional, std=0.02)
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
        if self.normalised == "all":
            raise ValueError(
                "Lemma 2 and normalise='all' exclude each other: it needs R as it is. Use "
                "normalise='features'."
            )
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
        if self._changes_operator:
            if backend == "matrix_free":
                raise ValueError(
                    "move_operator and normalise='all' form R, got backend='matrix_free': "
                    "use 'dense'."
                )
            return self._forward_with_operator(operator.dense(), f, record)
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
                shortest=SHORTEST_COLUMN,
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

    @property
    def _changes_operator(self) -> bool:
        return self.skip_r is not None or self.normalised == "all"

    def _forward_with_operator(
        self, r: Float[Tensor, "b n n"], f: Float[Tensor, "b n k"], record: Record | None
    ) -> Float[Tensor, "b n k"]:
        """Compute the features where R changes with them: the equation as printed."""
        gain = self.key_r * self.query_r
        on_operator = torch.einsum("lh,lhij->lij", gain, self.value).to(f.dtype)
        query_key = (self.query @ self.key.mT).to(f.dtype)  # C B^T
        value = self.value.to(f.dtype)
        keep = torch.eye(self.k, dtype=f.dtype, device=f.device) + self.skip.to(f.dtype)
        for step, layer in enumerate(self.order):
            within = (query_key[layer] @ (f.mT @ f)[:, None] @ value[layer]).sum(dim=1)
            moved = f @ (keep[layer] + within) + r @ (r.mT @ f) @ on_operator[layer]
            is_read = step + 1 < len(self.order)
            if is_read and self.skip_r is not None and self.mix_r is not None:
                mix = self.mix_r[layer].to(f.dtype)
                # Sums over heads first: a_h b_h c_h, and k x k matrices a_h C_h B_h^T.
                power = (mix * gain[layer].to(f.dtype)).sum()
                cross = torch.einsum("h,hij->ij", mix, query_key[layer])
                skip = 1 + self.skip_r[layer].to(f.dtype)
                r = skip * r + power * (r @ (r.mT @ r)) + f @ (cross @ (f.mT @ r))
            r = normalise(r) if self.normalised == "all" else r
            f = normalise(moved)
            if record is not None:
                record(f"eigenmap.{step}.F", f)
                record(f"eigenmap_operator.{step}", r)
        return f

    def _has_kernels(self, x: Tensor) -> bool:
        """Whether the Triton kernels of this stage are wanted and can take these points."""
        fits = USE_TRITON and self.k <= _MOST_KERNEL_FEATURES and x.dtype == torch.float32
        return fits and has_kernels(x, _MOST_KERNEL_POINTS)

    def _start(self, x: Tensor) -> Tensor:
        if self.start is None:
            return _FREE_STARTS[self.start_kind](x, self.k)
        if len(self.start) != x.shape[-2]:
            raise ValueError(
                f"the start was learned for {len(self.start)} points, got {x.shape[-2]}: "
                "use start='fourier' for any number of points."
            )
        return self.start.to(x.dtype).expand(x.shape[0], -1, -1)


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
    return torch.maximum(length.amax(dim=-1), unseen).clamp(min=SHORTEST_COLUMN)


def check_normalised(normalise: str, move_operator: bool, scale_operator: bool) -> None:
    """Raise ``ValueError`` for options of stage 2 that exclude each other."""
    check_choice("normalise", normalise, NORMALISED)
    if scale_operator and (move_operator or normalise == "all"):
        other = "move_operator=True" if move_operator else "normalise='all'"
        raise ValueError(
            f"scale_operator=True and {other} exclude each other: one divides R by its "
            "size once, the other changes R in every layer."
        )


def check_features(k: int, n: int) -> None:
    """Raise ``ValueError`` unless k features of n points can be independent."""
    if k > n:
        raise ValueError(f"k features need at least k points, got k = {k}, n = {n}.")
