"""``Episode``: the one value that data, model, loss and evaluation share."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, no_type_check

import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

_OPTIONAL = ("laplacian", "features", "distances")


@no_type_check  # under test, too, a wrong value must meet the errors below first
@dataclass(frozen=True, eq=False)
class Episode:
    """A batch of contexts: b episodes of n points, some of them labelled.

    Everything is checked here, once; models trust an episode. Code that makes episodes
    in a hot loop and knows them to be sound builds them with :meth:`unchecked`.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
        Coordinates, finite floating-point numbers of any size.
    y : Tensor of shape (b, n)
        Class of each point, from 0 to ``n_classes - 1``. A point that is not labelled
        may carry its true class, for the loss and the score, or -1 for "not known".
    labelled : Tensor of bool, of shape (b, n)
        Points whose class the model may see, at least one in every episode. They may all
        be of one class.
    n_classes : int, default 0
        Number of classes c. 0 stands for the largest class in ``y`` plus one, and at least
        two; classes of unlabelled points count.
    laplacian : Tensor of shape (b, n, n), optional
        Ground-truth Laplacian.
    features : Tensor of shape (b, n, k), optional
        Ground-truth eigenmap features, with k at most n.
    distances : Tensor of shape (b, n, n), optional
        Ground-truth distances along the manifold.

    Examples
    --------
    >>> episode = Episode.single([[0.0], [1.0], [9.0]], [0, -1, 1], [True, False, True])
    >>> episode.x.shape, episode.n_classes
    (torch.Size([1, 3, 1]), 2)
    """

    x: Float[Tensor, "b n d"]
    y: Int[Tensor, "b n"]
    labelled: Bool[Tensor, "b n"]
    n_classes: int = 0
    laplacian: Float[Tensor, "b n n"] | None = None
    features: Float[Tensor, "b n k"] | None = None
    distances: Float[Tensor, "b n n"] | None = None

    def __post_init__(self) -> None:
        _check_types(self)
        _check_shapes(self)
        _check_finite("x", self.x)
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                _check_finite(name, getattr(self, name))
        object.__setattr__(self, "y", self.y.long())
        if self.n_classes == 0:
            object.__setattr__(self, "n_classes", max(2, int(self.y.max()) + 1))
        _check_labels(self)

    @classmethod
    def single(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        labelled: ArrayLike,
        *,
        n_classes: int = 0,
        laplacian: ArrayLike | None = None,
        features: ArrayLike | None = None,
        distances: ArrayLike | None = None,
    ) -> "Episode":
        """Return one context from arrays without the batch axis: NumPy, lists, tensors."""

        def batch_of_one(array: Any) -> Any:
            return None if array is None else torch.as_tensor(array)[None]

        return cls(
            x=batch_of_one(x),
            y=batch_of_one(y),
            labelled=batch_of_one(labelled),
            n_classes=n_classes,
            laplacian=batch_of_one(laplacian),
            features=batch_of_one(features),
            distances=batch_of_one(distances),
        )

    @classmethod
    def unchecked(cls, **values: Any) -> "Episode":
        """Return an episode without the checks, which would wait for a GPU.

        ``n_classes`` must be given and ``y`` must be int64.
        """
        episode = object.__new__(cls)
        for name, default in _DEFAULTS.items():
            object.__setattr__(episode, name, values.pop(name, default))
        if values:
            raise TypeError(f"Episode has no field {', '.join(map(repr, values))}.")
        return episode

    @classmethod
    def concat(cls, episodes: Sequence["Episode"]) -> "Episode":
        """Return batches of one shape and one set of fields joined into one."""

        def join(values: list[Any]) -> Any:
            return torch.cat(values) if isinstance(values[0], Tensor) else values[0]

        names = [field.name for field in fields(cls)]
        return cls.unchecked(**{k: join([getattr(e, k) for e in episodes]) for k in names})

    def __getitem__(self, index: Any) -> "Episode":
        """Return some episodes of the batch, by slice, mask or tensor of indices."""

        def pick(value: Any) -> Any:
            return value[index] if isinstance(value, Tensor) else value

        return self.unchecked(**{f.name: pick(getattr(self, f.name)) for f in fields(self)})

    def tensors(self) -> dict[str, Tensor]:
        """Return the fields that are tensors, by name."""
        values = {name: getattr(self, name) for name in _DEFAULTS}
        return {name: t for name, t in values.items() if isinstance(t, Tensor)}

    def without(self, name: str) -> "Episode":
        """Return the same episodes without an optional field."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return self.unchecked(**{**values, name: None})

    def with_labels(self, labelled: Bool[Tensor, "b n"]) -> "Episode":
        """Return the same episodes with other points labelled, which is not checked."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return self.unchecked(**{**values, "labelled": labelled})

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> "Episode":
        """Return a copy on ``device``, with floating-point fields in ``dtype``."""

        def move(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return value.to(device, dtype if value.is_floating_point() else None)

        return self.unchecked(**{f.name: move(getattr(self, f.name)) for f in fields(self)})


_DEFAULTS = {field.name: field.default for field in fields(Episode)}


def _check_types(episode: Episode) -> None:
    wanted = {
        "x": ("floats", torch.is_floating_point),
        "y": ("integers", lambda t: not (t.is_floating_point() or t.dtype == torch.bool)),
        "labelled": ("bools", lambda t: t.dtype == torch.bool),
        "laplacian": ("floats", torch.is_floating_point),
        "features": ("floats", torch.is_floating_point),
        "distances": ("floats", torch.is_floating_point),
    }
    for name, (kind, is_kind) in wanted.items():
        value = getattr(episode, name)
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, Tensor) or not is_kind(value):
            actual = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a tensor of {kind}, got {actual}.")
    if not isinstance(episode.n_classes, int):
        raise TypeError(f"n_classes must be an int, got {episode.n_classes!r}.")


def _check_shapes(episode: Episode) -> None:
    x = episode.x
    if x.ndim != 3:
        raise ValueError(f"x must have shape (b, n, d), got {tuple(x.shape)}.")
    b, n, d = x.shape
    if b < 1 or d < 1:
        raise ValueError(f"need an episode and a coordinate, got x of shape {(b, n, d)}.")
    if n < 2:
        raise ValueError(f"an episode needs at least 2 points, got n = {n}.")
    wanted = {"y": (b, n), "labelled": (b, n), "laplacian": (b, n, n)}
    wanted["distances"] = (b, n, n)
    for name, shape in wanted.items():
        value = getattr(episode, name)
        if value is not None and tuple(value.shape) != shape:
            raise ValueError(
                f"{name} must have shape {shape} to fit x, got {tuple(value.shape)}."
            )
    features = episode.features
    if features is not None:
        if features.ndim != 3 or tuple(features.shape[:2]) != (b, n):
            raise ValueError(
                f"features must have shape {(b, n)} and k, got {tuple(features.shape)}."
            )
        if features.shape[2] > n:
            raise ValueError(
                f"k features need k <= n, got k = {features.shape[2]}, n = {n}."
            )


def _check_finite(name: str, value: Tensor) -> None:
    wrong = ~value.isfinite()
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise ValueError(
            f"{name} must be finite, got {value[place].item()} at {name}{list(place)} "
            f"and {int(wrong.sum())} such value(s) in all."
        )


def _check_labels(episode: Episode) -> None:
    y, labelled, c = episode.y, episode.labelled, episode.n_classes
    if c < 2:
        raise ValueError(f"n_classes must be at least 2, got {c}.")
    without = (~labelled.any(dim=1)).nonzero()
    if len(without):
        first = without[0].item()
        raise ValueError(f"every episode needs a labelled point, episode {first} has none.")
    least = torch.where(labelled, 0, -1)
    wrong = ((y < least) | (y >= c)).nonzero()
    if len(wrong):
        place = tuple(wrong[0].tolist())
        kind = "a labelled" if labelled[place] else "an unlabelled"
        also = "" if labelled[place] else ", or -1 for 'not known'"
        raise ValueError(
            f"the class of {kind} point must be from 0 to {c - 1}{also}, "
            f"got {y[place].item()} at y{list(place)}."
        )
