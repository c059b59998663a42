"""Many models of one architecture, trained at once on one objective.

The weights of every model are one row of a matrix.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from icssl._util.random import generator_for
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import identity_like
from icssl.episodes.labels import label_count
from icssl.episodes.stream import Source
from icssl.model.build import AnyModel, build_model
from icssl.model.transformer import ICSSLTransformer
from icssl.training.config import TrainConfig

SHARED = (
    "model",
    "steps",
    "batch",
    "warmup",
    "final_rate",
    "clip",
    "laplacian_weight",
    "eigenmap_weight",
)


class Group:
    """Models that differ in seed, data or learning rate and in nothing else.

    Every model's weights are one row of a matrix, so that clipping and the optimiser are a
    few operations however many tensors a model has; ``vmap`` runs the forward pass of all.

    Parameters
    ----------
    configs : sequence of TrainConfig
        Configurations of the models, which must agree in :data:`SHARED`.
    """

    def __init__(self, configs: Sequence[TrainConfig]) -> None:
        self.configs = list(configs)
        first = self.configs[0]
        for config in self.configs:
            for name in SHARED:
                if getattr(config, name) != getattr(first, name):
                    raise ValueError(
                        f"models trained together must have the same {name}, got "
                        f"{getattr(first, name)!r} and {getattr(config, name)!r}."
                    )
        with torch.random.fork_rng(devices=[]):  # these weights are never used
            self.model = build_model(first.model)
        self.shapes = {name: p.shape for name, p in self.model.named_parameters()}
        self.objective = Objective(
            self.model, first.laplacian_weight, first.eigenmap_weight
        )

    def fresh_weights(self) -> Float[Tensor, "m p"]:
        """Return initial weights, each row from the seed of its model."""
        rows = []
        for config in self.configs:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator_for(config.seed, "weights").initial_seed())
                model = build_model(config.model)
            rows.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        return torch.stack(rows)

    def place_of(self, name: str) -> slice:
        """Return where the weights of a parameter stand in a row."""
        begin = 0
        for known, shape in self.shapes.items():
            if known == name:
                return slice(begin, begin + shape.numel())
            begin += shape.numel()
        raise ValueError(f"the model has no parameter {name!r}: {', '.join(self.shapes)}.")

    def row_of(self, model: nn.Module) -> Float[Tensor, " p"]:
        """Return the weights of a model as a row; raise ``ValueError`` if it is another."""
        parameters = dict(model.named_parameters())
        shapes = {name: p.shape for name, p in parameters.items()}
        if shapes != self.shapes:
            wrong = sorted({*shapes.items()} ^ {*self.shapes.items()})[0][0]
            raise ValueError(
                f"the model to start from has other weights than the configuration: {wrong}"
                f" is {tuple(shapes.get(wrong, ()))} in it and "
                f"{tuple(self.shapes.get(wrong, ()))} here."
            )
        return torch.cat([parameters[name].detach().flatten() for name in self.shapes])

    def by_name(self, row: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """Return a row as the parameters that it holds, by name."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = row.split(sizes)
        return {
            name: part.view(shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def losses(
        self, weights: Float[Tensor, "m p"], episodes: Episode
    ) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Return loss and accuracy of every model on its own episodes ``(m, b, ...)``."""
        tensors_of_all = episodes.tensors()
        n_classes = episodes.n_classes

        def loss_of_model(row: Tensor, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            episode = Episode.unchecked(**tensors, n_classes=n_classes)
            parameters = {f"model.{k}": v for k, v in self.by_name(row).items()}
            return functional_call(self.objective, parameters, (episode,))

        if len(weights) == 1:  # a plain forward pass, without what vmap costs
            single = {k: v[0] for k, v in tensors_of_all.items()}
            loss, accuracy = loss_of_model(weights[0], single)
            return loss[None], accuracy[None]
        # Fused attention under vmap meets strides that its backward pass refuses.
        with sdpa_kernel(SDPBackend.MATH):
            return vmap(loss_of_model)(weights, tensors_of_all)

    def models_of(self, weights: Float[Tensor, "m p"]) -> list[AnyModel]:
        """Return the models with the weights of their rows, ready to predict."""
        models = []
        for config, row in zip(self.configs, weights, strict=True):
            with torch.random.fork_rng(devices=[]):
                model = build_model(config.model).to(row.dtype)
            model.load_state_dict(self.by_name(row.detach().cpu().clone()))
            models.append(model.eval())
        return models


def check_episodes(group: Group, device: str, *, one_shape: bool = False) -> None:
    """Raise ``ValueError``, before any work, if a model cannot take all it would be given.

    One episode of every source is drawn, with the fewest labels. With ``one_shape`` they
    must be alike, as also for several models and for finite sets of episodes.
    """
    one_shape = one_shape or len(group.configs) > 1
    shapes, seen = set(), set()
    for config in group.configs:
        fewest = min(config.labels, key=lambda amount: label_count(amount, config.data.n))
        data = config.episodes_config()
        one_shape = one_shape or data.episodes > 0
        for name in data.sources:
            single = replace(data, sources=(name,), episodes=0)
            if (repr(single), fewest) in seen:
                continue
            seen.add((repr(single), fewest))
            generator = generator_for(config.seed, "check", device=device)
            episode = single.build().draw(1, generator=generator, labels=fewest)
            group.model.check_fits(episode)
            shapes.add((*episode.x.shape[1:], episode.n_classes))
    if one_shape and len(shapes) > 1:
        raise ValueError(
            "several models, a CUDA graph and a finite set of episodes need sources that "
            f"agree in points, coordinates and classes, got {sorted(shapes)}."
        )


def episode_drawer(configs: Sequence[TrainConfig], device: str) -> Callable[[int], Episode]:
    """Return a function from a step to the episodes of all models, ``(m, b, ...)``.

    A model's episodes depend on its own configuration and seed alone, so that training it
    with others changes nothing. Models with the same data and seed share one draw.
    """
    sources: dict[tuple[str, int], Source] = {}
    for config in configs:
        data = config.episodes_config()
        key = (repr(data), config.seed)
        if key not in sources:
            sources[key] = data.build(seed=config.seed, device=device)
    keys = [(repr(config.episodes_config()), config.seed) for config in configs]

    def draw(step: int) -> Episode:
        drawn: dict[tuple[str, int, tuple[float, ...]], Episode] = {}
        batch = []
        for key, config in zip(keys, configs, strict=True):
            wanted = (*key, config.labels)
            if wanted not in drawn:
                generator = generator_for(config.seed, "train", step, device=device)
                budget = label_budget(config, step)
                source = sources[key]
                episodes = source.draw(config.batch, generator=generator, labels=budget)
                drawn[wanted] = (
                    episodes if config.laplacian_weight else episodes.without("laplacian")
                )
            batch.append(drawn[wanted])
        return stack_episodes(batch)

    return draw


def label_budget(config: TrainConfig, step: int) -> float:
    """Return the label budget of a step, drawn from those of the configuration."""
    generator = generator_for(config.seed, "labels", step)
    return config.labels[int(torch.randint(len(config.labels), (), generator=generator))]


def stack_episodes(episodes: Sequence[Episode]) -> Episode:
    """Return batches side by side, on a new first axis."""
    names = episodes[0].tensors()
    values = {name: torch.stack([getattr(e, name) for e in episodes]) for name in names}
    return Episode.unchecked(**values, n_classes=episodes[0].n_classes)


class Objective(nn.Module):
    """A model with its training objective: an episode in, loss and accuracy out.

    The loss is the paper's in-context semi-supervised loss (cross-entropy of the unlabelled
    points, with the minus sign it lacks in print) plus the weighted distances of stage 1
    from the true Laplacian and of stage 2 from the span of the true eigenvectors.

    Parameters
    ----------
    model : nn.Module
        A function from an episode to logits.
    laplacian_weight, eigenmap_weight : float
        Weights of the two other terms, which need the ground truth in the episode. Zero
        leaves a term out.
    """

    def __init__(
        self, model: nn.Module, laplacian_weight: float = 0.0, eigenmap_weight: float = 0.0
    ) -> None:
        super().__init__()
        self.model = model
        self.laplacian_weight = laplacian_weight
        self.eigenmap_weight = eigenmap_weight

    def forward(self, episode: Episode) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Compute loss and accuracy over the unlabelled points of all episodes."""
        model = self.model
        if not isinstance(model, ICSSLTransformer):
            logits = model(episode)
            return _classification_loss(logits, episode.y, episode.labelled)
        operator, phi, logits = model.stages(episode, backend="fused")
        loss, accuracy = _classification_loss(logits, episode.y, episode.labelled)
        if self.laplacian_weight:
            assert operator is not None
            assert episode.laplacian is not None
            loss = loss + self.laplacian_weight * laplacian_loss(
                operator.dense(), episode.laplacian
            )
        if self.eigenmap_weight:
            assert episode.features is not None
            loss = loss + self.eigenmap_weight * subspace_loss(phi, episode.features)
        return loss, accuracy


def _classification_loss(
    logits: Float[Tensor, "b n c"], y: Int[Tensor, "b n"], labelled: Bool[Tensor, "b n"]
) -> tuple[Tensor, Tensor]:
    """Return mean cross-entropy and accuracy over unlabelled points of known class."""
    scored = ~labelled & (y >= 0)
    by_point = cross_entropy(
        logits.flatten(0, 1), y.flatten().clamp(min=0), reduction="none"
    )
    right = (logits.argmax(dim=-1) == y) & scored
    count = scored.sum().clamp(min=1)
    # A product and no selection: shapes do not depend on values, as CUDA graphs ask.
    return (by_point * scored.flatten()).sum() / count, right.sum() / count


def laplacian_loss(
    r: Float[Tensor, "b n n"], laplacian: Float[Tensor, "b n n"]
) -> Float[Tensor, ""]:
    """Return the mean squared Frobenius distance of R from the true Laplacian."""
    return (r - laplacian.to(r.dtype)).square().sum(dim=(-2, -1)).mean()


def subspace_loss(
    phi: Float[Tensor, "b n k"], features: Float[Tensor, "b n e"]
) -> Float[Tensor, ""]:
    """Return the mean share of the true eigenvectors that the span of ``phi`` misses.

    With P the projection to the span, it is ``1 - |P V|^2 / |V|^2``, in [0, 1]. Only spans
    are compared, since eigenvectors have no sign and repeated eigenvalues no basis.
    """
    truth = features.to(phi.dtype)
    gram = phi.mT @ phi
    # Dependent columns would make it singular; the ridge is below what float32 resolves.
    size = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    inner = phi.mT @ truth
    ridge = 10 * torch.finfo(phi.dtype).eps
    solved = torch.linalg.solve(gram + ridge * size * identity_like(gram), inner)
    seen = (inner * solved).sum(dim=(-2, -1))
    return (1 - seen / truth.square().sum(dim=(-2, -1))).mean()
