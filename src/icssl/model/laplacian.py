"""Stage 1, TF^L of the paper: RBF attention that outputs a graph Laplacian (Lemma 1)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icssl._util.errors import check_choice, check_positive
from icssl.model.attention import square_safe
from icssl.model.operator import (
    Factor,
    LaplacianOperator,
    MixedFactor,
    Walk,
    mixed_walks,
    mixed_walks_of_products,
    mixed_walks_reading_r,
)
from icssl.model.stage import STAGE_BACKENDS, Record, application_order, check_sizes

KERNELS = ("rbf", "linear", "linear_unbounded")

# Above what rows of the linear walk sum to for the paper's data, and small enough that a
# dozen applications do not overflow.
_LARGEST_ROW = 16.0


class LaplacianTransformer(nn.Module):
    r"""Layers of multi-head RBF attention acting on points x and on a matrix R.

    Every layer computes one walk :math:`P_h` per head from the points, with keys
    :math:`b_h x` and queries :math:`c_h x`, and updates, from :math:`R = I`,

    .. math::
        x \leftarrow (1 + s) x + \sum_h a_h P_h x, \qquad
        R \leftarrow (1 + s') R + \sum_h a'_h P_h R .

    Every block is a scalar times the identity (the paper's remark on Lemma 1), so the
    number of parameters does not depend on n. R is returned as an operator.

    Parameters
    ----------
    layers, heads : int
        Number of layers, and of heads in each.
    kernel : {"rbf", "linear", "linear_unbounded"}
        ``"linear"`` is the paper's ablation. Its walk is :math:`v_j \cdot u_i / n`, with
        rows that could sum to more than 16 drawn in to it: unbounded, x grows cubically,
        as printed.
    layer_loops, stage_loops : int
        How often each layer, and the whole stage, is applied.
    attend_to_r : bool
        Let queries and keys look at the rows of R also, through two more scalars per head
        (the paper's B and C). Forms R, so it needs the dense backend.
    start_points : int, optional
        Learn the start of R, a matrix that ties the model to this many points; by
        default it is the identity.
    sigma : float
        Bandwidth around which those of the heads are spread at initialisation.
    """

    def __init__(
        self,
        layers: int = 1,
        heads: int = 1,
        *,
        kernel: str = "rbf",
        layer_loops: int = 1,
        stage_loops: int = 1,
        attend_to_r: bool = False,
        start_points: int | None = None,
        sigma: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("Laplacian kernel", kernel, KERNELS)
        check_positive("sigma", sigma)
        check_sizes(
            layers=layers, heads=heads, layer_loops=layer_loops, stage_loops=stage_loops
        )
        self.kernel, self.sigma, self.attend_to_r = kernel, sigma, attend_to_r
        self.layers, self.heads = layers, heads
        self.order = application_order(layers, layer_loops, stage_loops)

        # Nothing reads the points after the last application, so where no layer is
        # applied again, the last one has no parameters to move them.
        moves = layers if len(self.order) > layers else layers - 1
        self.skip_x = nn.Parameter(torch.zeros(moves)) if moves else None  # s
        self.mix_x = nn.Parameter(torch.zeros(moves, heads)) if moves else None  # a
        self.skip_r = nn.Parameter(torch.zeros(layers))  # s'
        self.mix_r = nn.Parameter(torch.zeros(layers, heads))  # a'
        self.key_scale = nn.Parameter(torch.zeros(layers, heads))  # b
        self.query_scale = nn.Parameter(torch.zeros(layers, heads))  # c
        on_r = torch.zeros(layers, heads) if attend_to_r else None
        self.key_scale_r = None if on_r is None else nn.Parameter(on_r.clone())  # b'
        self.query_scale_r = None if on_r is None else nn.Parameter(on_r.clone())  # c'
        self.start = None if start_points is None else nn.Parameter(torch.eye(start_points))
        self.reset_parameters()

    @classmethod
    def lemma1(cls, sigma: float) -> "LaplacianTransformer":
        r"""Return the construction of Lemma 1: R is exactly :math:`I - D^{-1} A`.

        That is the transposed right-normalised Laplacian of the graph with affinities
        :math:`\exp(-\|x_i - x_j\|^2 / \sigma^2)`: see
        :func:`icssl.episodes.ground_truth.right_normalised_laplacian`.
        """
        stage = cls(layers=1, heads=1).double()  # float64: 1 / sigma is then exact to 1e-16
        stage.start_from_lemma1(sigma)
        return stage

    def bandwidths(self) -> Float[Tensor, "layers heads"]:
        """Return 1 / sqrt(b c) of every head, in the unit of the points given to it."""
        return (self.key_scale * self.query_scale).abs().rsqrt()

    def extra_repr(self) -> str:
        """Return what was learned, for ``print(model)``."""
        rows = [[round(w, 4) for w in row] for row in self.bandwidths().tolist()]
        return f"kernel={self.kernel!r}, layers={self.layers}, bandwidths={rows}"

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw random weights around a sum of Laplacians with different bandwidths."""
        spread = torch.linspace(-1, 1, self.heads) if self.heads > 1 else torch.zeros(1)
        # exp(-|x / sigma - y / sigma|^2): a factor of 1 / sigma is a bandwidth of sigma.
        factor = (1 / (self.sigma * 2**spread)).expand(self.layers, -1)
        # Keys and queries alike: where they differ, it matters where a cloud lies.
        factor = factor * (1 + 0.1 * torch.randn_like(factor))
        self.key_scale.copy_(factor)
        self.query_scale.copy_(factor)
        nn.init.normal_(self.mix_r, mean=-1 / self.heads, std=0.1 / self.heads)
        # Small, since it is a factor of every application: with 0.1, eigenvalues of R R^T
        # exceed 2 for some seeds, and the power steps of stage 2 find the wrong end.
        nn.init.normal_(self.skip_r, std=0.02)
        for optional in (self.skip_x, self.mix_x, self.key_scale_r, self.query_scale_r):
            if optional is not None:
                nn.init.normal_(optional, std=0.1)
        if self.start is not None:
            nn.init.eye_(self.start)

    @torch.no_grad()
    def start_from_lemma1(self, sigma: float, noise: float = 0.0) -> None:
        """Set the weights of Lemma 1 in the first head of the first layer, else zero.

        ``noise`` is the standard deviation added to every weight, so that training can
        leave the construction.
        """
        check_positive("sigma", sigma)
        if len(self.order) > self.layers:
            raise ValueError(
                "Lemma 1 is one application of a layer: a looped stage would give a power "
                "of its Laplacian. Use layer_loops = stage_loops = 1."
            )
        for name, parameter in self.named_parameters():
            if name == "start":
                nn.init.eye_(parameter)
            elif name in ("key_scale", "query_scale"):
                parameter.fill_(1 / sigma)
            else:
                parameter.zero_()
        self.mix_r[0, 0] = -1
        for parameter in self.parameters():
            parameter.add_(noise * torch.randn_like(parameter))

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        *,
        backend: str = "dense",
        record: Record | None = None,
    ) -> LaplacianOperator:
        """Compute R of every episode, in the dtype of ``x``.

        ``record`` receives the name and value of what each layer computes.
        """
        check_choice("backend", backend, STAGE_BACKENDS)
        if self.attend_to_r and backend == "matrix_free":
            raise ValueError("attend_to_r needs backend='dense', got 'matrix_free'.")
        (x,) = square_safe(x)
        start = None if self.start is None else self.start.to(x.dtype)
        needs_r = self.attend_to_r or record is not None
        if backend == "fused" and self.kernel == "rbf" and record is None:
            return self._fused(x, start)
        backend = "dense" if backend == "fused" else backend
        r = self._start_of_r(x) if needs_r else None
        factors = []
        for step, layer in enumerate(self.order):
            walk = self._walk(layer, x, r if self.attend_to_r else None, backend)
            skip, mix = self.skip_r[layer].to(x.dtype), self.mix_r[layer].to(x.dtype)
            factor = Factor(1 + skip, mix, walk)
            factors.append(factor)
            if step + 1 < len(self.order):
                x = self._move(layer, x, walk)
            if r is None:
                continue
            r = factor.matmul(r)
            if record is not None:
                record(f"laplacian.{step}.walk", walk.dense())
                record(f"laplacian.{step}.x", x)
                record(f"laplacian.{step}.R", r)
        return LaplacianOperator(factors, start)

    def _fused(self, x: Tensor, start: Tensor | None) -> LaplacianOperator:
        """Compute R with the walks of all heads mixed as they are formed."""
        # Split by layer once: the gradient of every index is a whole tensor of zeros.
        mix_r, skip_r = self.mix_r.to(x.dtype).unbind(), self.skip_r.to(x.dtype).unbind()
        mix_x = None if self.mix_x is None else self.mix_x.to(x.dtype).unbind()
        skip_x = None if self.skip_x is None else self.skip_x.to(x.dtype).unbind()
        # With more coordinates than points, the Gram matrix is smaller than the points and
        # says as much: walks depend on distances alone. A move M then acts as M G M^T.
        wide = x.shape[-1] >= x.shape[-2]
        state = x @ x.mT if wide else x
        walks = mixed_walks_of_products if wide else mixed_walks
        query, key = self._scales(x.dtype)
        r = self._start_of_r(x) if self.attend_to_r else None
        factors = []
        for step, layer in enumerate(self.order):
            moves = step + 1 < len(self.order)
            mix = [mix_r[layer]]
            if moves and mix_x is not None:
                mix.append(mix_x[layer])
            if r is None:
                mixed = walks(state, query[layer], key[layer], torch.stack(mix)).unbind(1)
            else:
                mixed = mixed_walks_reading_r(
                    state, r, query[layer], key[layer], torch.stack(mix), of_products=wide
                ).unbind(1)
            factors.append(MixedFactor(1 + skip_r[layer], mixed[0]))
            if r is not None:
                r = factors[-1].matmul(r)
            if moves and skip_x is not None:
                move = MixedFactor(1 + skip_x[layer], mixed[1])
                state = move.matmul(state)
                state = move.matmul(state.mT) if wide else state
        return LaplacianOperator(factors, start, matrix=r)

    def _scales(self, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
        """Return factors of queries and keys by layer: of the points, or (x, R) stacked."""
        query: Tensor = self.query_scale
        key: Tensor = self.key_scale
        if self.query_scale_r is not None and self.key_scale_r is not None:
            query = torch.stack([query, self.query_scale_r], dim=1)
            key = torch.stack([key, self.key_scale_r], dim=1)
        return list(query.to(dtype).unbind()), list(key.to(dtype).unbind())

    def _walk(self, layer: int, x: Tensor, r: Tensor | None, backend: str) -> Walk:
        key = _by_head(self.key_scale[layer], x)
        query = _by_head(self.query_scale[layer], x)
        if (
            r is not None
            and self.key_scale_r is not None
            and self.query_scale_r is not None
        ):
            key = torch.cat([key, _by_head(self.key_scale_r[layer], r)], dim=-1)
            query = torch.cat([query, _by_head(self.query_scale_r[layer], r)], dim=-1)
        if self.kernel == "rbf":
            return Walk("rbf", query, key, backend)
        query, key = square_safe(query, key)
        if self.kernel == "linear":
            query = _bounded_linear_query(query, key)
        else:
            query = query / query.shape[-2]
        return Walk("linear", query, key, backend)

    def _move(self, layer: int, x: Tensor, walk: Walk) -> Tensor:
        if self.skip_x is None or self.mix_x is None:
            return x
        skip, mix = self.skip_x[layer].to(x.dtype), self.mix_x[layer].to(x.dtype)
        return Factor(1 + skip, mix, walk).matmul(x)

    def _start_of_r(self, x: Tensor) -> Tensor:
        n = x.shape[-2]
        eye = torch.eye(n, dtype=x.dtype, device=x.device)
        start = eye if self.start is None else self.start.to(x.dtype)
        return start.expand(x.shape[0], n, n)


def _by_head(factors: Float[Tensor, " h"], points: Float[Tensor, "b n d"]) -> Tensor:
    """Return points times the factor of each head, of shape (b, h, n, d)."""
    return factors.to(points.dtype)[:, None, None] * points[:, None]


def _bounded_linear_query(query: Tensor, key: Tensor) -> Tensor:
    """Return ``query / n``, shrunk where its row of the walk could sum above the bound.

    By Cauchy-Schwarz the row sum of j is at most ``n |v_j| mean_i |u_i|``.
    """
    mean_key = key.norm(dim=-1, keepdim=True).mean(dim=-2, keepdim=True)
    reach = query.norm(dim=-1, keepdim=True) * mean_key / _LARGEST_ROW
    return query / (query.shape[-2] * reach.clamp(min=1))
