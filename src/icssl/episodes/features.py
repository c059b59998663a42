"""Episodes from a table of features: a few classes, some rows of each."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from icssl._util.errors import check_at_least, check_choice
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import ground_truth
from icssl.episodes.labels import PLACEMENTS, choose_labelled, label_count
from icssl.tables.features import read_features


@dataclass(frozen=True)
class FeatureSpec:
    """What an episode of rows of a table is drawn from.

    The paper's ImageNet100 episodes: two classes drawn at random, 50 images of each. Rows
    may come again in another episode, never twice in one. Training and test episodes have
    no class in common.

    Parameters
    ----------
    path : Path
        See :func:`icssl.tables.features.read_features`.
    split : {"train", "test"}
    train_classes : int
        How many of the classes, in the order of their names, are for training.
    n_classes, per_class : int
        Classes of an episode, and rows of each.
    labels, placement
        See :class:`icssl.episodes.synthetic.ManifoldSpec`.
    label : str, optional
        The column of classes of a table.
    eigenvectors, neighbours : int
        Ground truth; 0 eigenvectors for none.
    """

    path: Path
    split: str = "train"
    train_classes: int = 6
    n_classes: int = 2
    per_class: int = 50
    labels: float = 10
    placement: str = "random"
    label: str | None = None
    eigenvectors: int = 0
    neighbours: int = 6

    def __post_init__(self) -> None:
        check_choice("split", self.split, ["train", "test"])
        check_choice("placement", self.placement, PLACEMENTS)
        check_at_least("n_classes", self.n_classes, 2)
        check_at_least("per_class", self.per_class, 1)
        check_at_least("train_classes", self.train_classes, 0)
        label_count(self.labels, self.n)
        self._check_table()

    def _check_table(self) -> None:
        table = read_features(self.path, self.label)
        chosen = self.classes()
        if len(chosen) < self.n_classes:
            raise ValueError(self._too_few(len(table.classes), len(chosen)))
        for code in chosen:
            rows = int((table.y == code).sum())
            if rows < self.per_class:
                raise ValueError(
                    f"{self.path}: class {table.classes[code]!r} has {rows} rows, an "
                    f"episode needs {self.per_class}."
                )

    def _too_few(self, all_classes: int, chosen: int) -> str:
        least, most = self.n_classes, all_classes - self.n_classes
        allowed = f"set train_classes to {least}"
        if most > least:
            allowed = f"set train_classes from {least} to {most}"
        elif most < least:
            allowed = f"a table needs at least {2 * self.n_classes} classes"
        return (
            f"{self.path} has {all_classes} classes, {chosen} of them for {self.split} "
            f"with train_classes = {self.train_classes}, and an episode needs "
            f"{self.n_classes}: {allowed}, so that training and test share none."
        )

    @property
    def n(self) -> int:
        """Points of an episode."""
        return self.n_classes * self.per_class

    def classes(self) -> list[int]:
        """Codes of the classes of this split."""
        count = len(read_features(self.path, self.label).classes)
        border = min(self.train_classes, count)
        return list(range(border) if self.split == "train" else range(border, count))

    def draw(
        self,
        b: int,
        *,
        generator: Generator,
        labels: float | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Episode:
        """``b`` episodes, their rows in a random order."""
        device = generator.device
        x, rows, counts = _on_device(self, str(device))

        def random(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, device=device)

        classes = random(b, len(counts)).topk(self.n_classes, dim=1).indices  # (b, c)
        scores = random(b, self.n_classes, rows.shape[1])
        absent = torch.arange(rows.shape[1], device=device) >= counts[classes][..., None]
        picked = scores.masked_fill(absent, -1).topk(self.per_class, dim=2).indices
        chosen = rows[classes].gather(2, picked).flatten(1)  # (b, n)
        y = torch.arange(self.n_classes, device=device).repeat_interleave(self.per_class)
        order = random(b, self.n).argsort(dim=1)
        chosen, y = chosen.gather(1, order), y[order]
        points = x[chosen].to(dtype)
        amount = self.labels if labels is None else labels
        labelled = choose_labelled(
            y, amount, self.placement, n_classes=self.n_classes, generator=generator
        )
        laplacian = features = None
        if self.eigenvectors:
            laplacian, features = ground_truth(points, self.eigenvectors, self.neighbours)
        return Episode.unchecked(
            x=points,
            y=y,
            labelled=labelled,
            n_classes=self.n_classes,
            laplacian=laplacian,
            features=features,
        )


@lru_cache(maxsize=8)
def _on_device(
    spec: FeatureSpec, device: str
) -> tuple[Float[Tensor, "rows d"], Int[Tensor, "classes most"], Int[Tensor, " classes"]]:
    """Features, the rows of each class padded to the most, and how many there are."""
    table = read_features(spec.path, spec.label)
    y = torch.from_numpy(table.y)
    own = [(y == code).nonzero()[:, 0] for code in spec.classes()]
    rows = torch.nn.utils.rnn.pad_sequence(own, batch_first=True)
    counts = torch.tensor([len(r) for r in own])
    return torch.from_numpy(table.x).to(device), rows.to(device), counts.to(device)
