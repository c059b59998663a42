"""Stage 3: the head that turns features into logits.

:class:`GradientDescentHead` is TF_sup of the paper: gradient descent on the labels inside
attention. :class:`EncoderHead` is not in the paper: a standard encoder, for contexts with
very few labels.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from icssl._util.errors import check_choice, check_positive
from icssl._util.references import is_reference, object_at
from icssl.model.attention import attention, bilinear, square_safe, squared_distances
from icssl.model.stage import STAGE_BACKENDS, Record, check_class_count, check_sizes

KERNELS = ("rbf", "linear", "softmax")
EMBEDDINGS = ("simplex", "learned")
EXPECTATIONS = ("exact", "mlp")
DISTANCE_BIASES = ("none", "points")


class GradientDescentHead(nn.Module):
    r"""Functional gradient descent on the cross-entropy of the labelled points.

    Class probabilities are :math:`\mathrm{softmax}(f W^\top)`. From :math:`f = 0`, each
    of the steps is the paper's eq. (f_update),

    .. math::
        f_i \leftarrow f_i + \frac{\alpha}{m} \sum_{j\ \mathrm{labelled}}
            K(\phi_i, \phi_j) \, \bigl(w_{y_j} - E[w \mid f_j]\bigr),

    a gradient step of size :math:`\alpha` for a linear or RBF kernel.
    :class:`icssl.model.tokens.TokenTransformer` spells it out as attention.

    Parameters
    ----------
    kernel : {"rbf", "linear", "softmax"} or str
        :math:`\exp(-\gamma\|\phi_i - \phi_j\|^2)`, :math:`\phi_i \cdot \phi_j`, or
        :math:`\mathrm{softmax}_j(\gamma\,\phi_i \cdot \phi_j)` over the labelled points;
        :math:`\gamma` is learned. ``"module:name"`` is one of your own: a function of
        queries (b, q, k), keys (b, m, k) and :math:`\gamma` that returns (b, q, m), or a
        class of modules, made without arguments, that do.
    steps : int
        Number of gradient steps.
    n_classes : int
        Number of classes of learned embeddings.
    embedding : {"simplex", "learned"}
        Class embeddings W: the corners of a simplex, which treat all classes alike and
        exist for any number of them, or learned vectors for ``n_classes`` (the paper's).
    expectation : {"exact", "mlp"}
        :math:`E[w \mid f]` by its formula, or the paper's MLP, tied across steps. With
        one step the MLP only ever sees f = 0. It needs learned embeddings.
    embedding_size, hidden : int
        Width of learned embeddings and of the MLP's hidden layer.
    step_size : float
        Initial :math:`\alpha`, learned for each step.
    gamma : float
        Initial :math:`\gamma`.
    """

    def __init__(
        self,
        kernel: str = "rbf",
        steps: int = 1,
        n_classes: int = 2,
        *,
        embedding: str = "simplex",
        expectation: str = "exact",
        embedding_size: int = 4,
        hidden: int = 32,
        step_size: float = 1.0,
        gamma: float = 1.0,
    ) -> None:
        super().__init__()
        check_kernel(kernel)
        check_choice("embedding", embedding, EMBEDDINGS)
        check_choice("expectation", expectation, EXPECTATIONS)
        check_sizes(steps=steps, embedding_size=embedding_size, hidden=hidden)
        check_class_count(n_classes)
        check_positive("step_size", step_size)
        check_positive("gamma", gamma)
        check_expectation(expectation, embedding)
        self.kernel, self.steps, self.n_classes = kernel, steps, n_classes
        self.own_kernel = own_kernel_of(kernel)
        self.step_size = nn.Parameter(torch.full((steps,), float(step_size)))
        self.log_gamma = None
        if kernel != "linear":
            self.log_gamma = nn.Parameter(torch.tensor(float(gamma)).log())
        self.embedding = None
        if embedding == "learned":
            self.embedding = nn.Parameter(torch.randn(n_classes, embedding_size))
        self.mlp = None
        if expectation == "mlp":
            self.mlp = nn.Sequential(
                nn.Linear(embedding_size, hidden),
                nn.GELU(),
                nn.Linear(hidden, embedding_size),
            )

    def extra_repr(self) -> str:
        """Return what was learned, for ``print(model)``."""
        rates = [round(rate, 4) for rate in self.step_size.tolist()]
        text = f"kernel={self.kernel!r}, steps={self.steps}, step_size={rates}"
        if self.log_gamma is None:
            return text
        return f"{text}, gamma={self.log_gamma.exp().item():.4g}"

    def class_embeddings(self, n_classes: int) -> Float[Tensor, "c e"]:
        """Return W for ``n_classes`` classes."""
        if self.embedding is not None:
            return self.embedding
        return simplex(n_classes, like=self.step_size)

    def expectation(
        self, f: Float[Tensor, "*b e"], w: Float[Tensor, "c e"]
    ) -> Float[Tensor, "*b e"]:
        """Return E[w | f], the paper's eq. (expectation): exact, or by its MLP."""
        if self.mlp is None:
            return (f @ w.mT).softmax(dim=-1) @ w
        # The exact expectation is flat for large f; an MLP would grow without bound.
        return self.mlp(f.clamp(-100, 100))

    def kernel_matrix(
        self,
        query: Float[Tensor, "b q k"],
        key: Float[Tensor, "b m k"],
        readable: Bool[Tensor, "b m"],
    ) -> Float[Tensor, "b q m"]:
        """Return K between points; zero for keys that may not be read."""
        query, key = square_safe(query, key)
        if self.log_gamma is None:
            return (query @ key.mT) * readable[:, None]
        gamma = self.log_gamma.exp()
        if self.kernel == "rbf":
            return (-gamma * squared_distances(query, key)).exp() * readable[:, None]
        if self.own_kernel is not None:
            return self.own_kernel(query, key, gamma) * readable[:, None]
        if self.kernel != "softmax":
            raise NotImplementedError(f"kernel_matrix has no branch for {self.kernel!r}.")
        scores = gamma * (query @ key.mT)
        # Every episode has a labelled point, so that no row is -inf throughout.
        return scores.masked_fill(~readable[:, None], -torch.inf).softmax(dim=-1)

    def coefficients(
        self,
        kernel: Float[Tensor, "b m m"],
        y: Int[Tensor, "b m"],
        labelled: Bool[Tensor, "b m"],
        w: Float[Tensor, "c e"],
    ) -> Float[Tensor, "steps b m e"]:
        """Return what each labelled point adds to f: ``f = K @ sum(coefficients)``.

        Only labelled points are read, so the descent runs on the kernel between them alone.
        Coefficients of other points are zero.
        """
        target = w[y.clamp(min=0)]  # unlabelled points may carry -1; they are masked
        weight = (labelled / labelled.sum(dim=1, keepdim=True, dtype=w.dtype))[..., None]
        f = torch.zeros_like(target)  # the paper starts from f = 0
        added = []
        for step_size in self.step_size:
            added.append(step_size * weight * (target - self.expectation(f, w)))
            f = f + kernel @ added[-1]
        return torch.stack(added)

    def forward(
        self,
        phi: Float[Tensor, "b n k"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        *,
        n_classes: int | None = None,
        points: Float[Tensor, "b n d"] | None = None,
        backend: str = "dense",
        record: Record | None = None,
    ) -> Float[Tensor, "b n c"]:
        """Compute the logits of every point.

        Parameters
        ----------
        phi : Tensor of shape (b, n, k)
            Features.
        y, labelled : Tensor of shape (b, n)
            Classes, and which points the model may read them of.
        n_classes : int, optional
            c of this batch, where embeddings are a simplex; by default that of the head.
        points : Tensor, optional
            Not used: this head sees features only.
        backend : {"dense", "matrix_free"}
            ``"matrix_free"`` gathers the labelled points, so that K is n x m and not
            n x n. It waits for the device to learn m.
        record : callable, optional
            Receives f and the logits after each step.
        """
        check_choice("backend", backend, STAGE_BACKENDS)
        w = self.class_embeddings(n_classes or self.n_classes).to(phi.dtype)
        if backend != "matrix_free":
            # All n points as keys: shapes do not depend on m, as CUDA graphs ask.
            kernel = self.kernel_matrix(phi, phi, labelled)
            added = self.coefficients(kernel, y, labelled, w)
        else:
            key, y_key, readable = gather_labelled(phi, y, labelled)
            among_labelled = self.kernel_matrix(key, key, readable)
            added = self.coefficients(among_labelled, y_key, readable, w)
            kernel = self.kernel_matrix(phi, key, readable)
        if record is not None:
            for step, f in enumerate((kernel @ added).cumsum(dim=0)):
                record(f"head.{step}.f", f)
                record(f"head.{step}.logits", f @ w.mT)
        return kernel @ added.sum(dim=0) @ w.mT


OwnKernel = Callable[[Tensor, Tensor, Tensor], Tensor]


def check_kernel(kernel: str) -> None:
    """Raise ``ValueError`` unless a kernel has a branch here or is ``module:name``."""
    if not is_reference(kernel):
        check_choice("head kernel", kernel, KERNELS, "module:name of your own")


def own_kernel_of(kernel: str) -> OwnKernel | None:
    """Return the kernel that ``module:name`` names; None for those of this package."""
    if not is_reference(kernel):
        return None
    named = object_at(kernel)
    if isinstance(named, type) and issubclass(named, nn.Module):
        return named()
    if isinstance(named, type) or not callable(named):
        raise ValueError(
            f"kernel {kernel!r} must be a function or a class of torch.nn.Module, got "
            f"{named!r}."
        )
    return named


def simplex(n_classes: int, *, like: Tensor) -> Float[Tensor, "c c"]:
    """Return unit vectors at equal angles, one per row: permuting classes permutes them."""
    # Corners of the standard simplex, moved to their centre and brought to length one.
    eye = torch.eye(n_classes, dtype=like.dtype, device=like.device)
    return (eye - 1 / n_classes) * (n_classes / (n_classes - 1)) ** 0.5


def gather_labelled(
    phi: Float[Tensor, "b n k"], y: Int[Tensor, "b n"], labelled: Bool[Tensor, "b n"]
) -> tuple[Float[Tensor, "b m k"], Int[Tensor, "b m"], Bool[Tensor, "b m"]]:
    """Return the labelled points, padded to the largest number of them in an episode."""
    m = int(labelled.sum(dim=1).max())
    # Labelled points come first in a stable sort; an episode with fewer than m of them is
    # filled up with points that the last result says are not labelled.
    index = labelled.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :m]
    key = phi.gather(1, index[..., None].expand(-1, -1, phi.shape[-1]))
    return key, y.gather(1, index), labelled.gather(1, index)


def check_expectation(expectation: str, embedding: str) -> None:
    """Raise ``ValueError`` for an MLP without learned embeddings."""
    if expectation == "mlp" and embedding != "learned":
        raise ValueError(
            "expectation='mlp' needs embedding='learned': an MLP has a fixed width, the "
            "simplex has another one for each number of classes."
        )


class EncoderHead(nn.Module):
    r"""A small pre-norm encoder over features, with a label token per labelled point.

    The descent head can only add up kernels; an encoder can also learn what classes look
    like, which is worth most when labels are few. With a distance bias, the attention
    logits of head h carry :math:`-\lambda_h \|x_i - x_j\|^2` with a learned
    :math:`\lambda_h > 0`. Same signature as :class:`icssl.model.head.GradientDescentHead`,
    for a fixed number of classes.

    Parameters
    ----------
    k : int
        Number of features.
    n_classes : int
        Number of classes.
    width, heads, layers : int
        Width of the state, attention heads and layers; ``width`` must be a multiple of
        ``heads``.
    distance_bias : {"none", "points"}
        Whether attention logits also see the distances of the points.
    """

    def __init__(
        self,
        k: int,
        n_classes: int = 2,
        *,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        distance_bias: str = "points",
    ) -> None:
        super().__init__()
        check_choice("distance_bias", distance_bias, DISTANCE_BIASES)
        check_sizes(k=k, width=width, heads=heads, layers=layers)
        check_class_count(n_classes)
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {heads}.")
        self.n_classes = n_classes
        self.embed = nn.Linear(k, width)
        self.label = nn.Embedding(n_classes + 1, width)  # the last one: "unknown"
        self.layers = nn.ModuleList(
            EncoderLayer(width, heads, distance_bias) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.classify = nn.Linear(width, n_classes)

    def forward(
        self,
        phi: Float[Tensor, "b n k"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        *,
        n_classes: int | None = None,
        points: Float[Tensor, "b n d"] | None = None,
        backend: str = "dense",
        record: Record | None = None,
    ) -> Float[Tensor, "b n c"]:
        """Compute logits; ``points``, by default the features, are for distances.

        See ``GradientDescentHead.forward`` for the rest.
        """
        check_choice("backend", backend, STAGE_BACKENDS)
        backend = "dense" if backend == "fused" else backend
        points = phi if points is None else points
        token = torch.where(labelled, y, self.n_classes)
        state = self.embed(phi) + self.label(token)
        for step, layer in enumerate(self.layers):
            state = layer(state, points, backend)
            if record is not None:
                record(f"head.{step}.state", state)
                record(f"head.{step}.logits", self.classify(self.norm(state)))
        return self.classify(self.norm(state))


class EncoderLayer(nn.Module):
    """One encoder layer: an attention that may see distances of the points, and an MLP."""

    def __init__(self, width: int, heads: int, distance_bias: str) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.log_nearness = None  # log lambda: heads start from wide to narrow
        if distance_bias == "points":
            self.log_nearness = nn.Parameter(torch.linspace(-3, 1, heads))

    def forward(
        self, state: Float[Tensor, "b n w"], points: Float[Tensor, "b n d"], backend: str
    ) -> Float[Tensor, "b n w"]:
        """Return the state of every point after this layer."""
        b, n, width = state.shape
        parts = self.query_key_value(self.attention_norm(state))
        split = parts.reshape(b, n, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (b, h, n, width / h)
        query = query * query.shape[-1] ** -0.5
        if self.log_nearness is not None:
            # Extra coordinates of queries and keys whose products are -lambda |x - y|^2, up
            # to a constant of the row, which the softmax cancels.
            root = (self.log_nearness / 2).exp()[:, None, None]
            near = root * points[:, None]
            near_query, near_key = bilinear("rbf", near, near)
            query = torch.cat([query, near_query], dim=-1)
            key = torch.cat([key, near_key], dim=-1)
        read = attention("softmax", query, key, value, backend=backend)
        state = state + self.project(read.transpose(1, 2).reshape(b, n, width))
        return state + self.mlp(state)
