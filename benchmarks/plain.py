"""The model as a straightforward loop over heads and layers, to compare speed with.

Every head forms its own distance matrix and its own product with R; nothing is batched,
mixed or reordered. The loop takes its weights from an ``ICSSLTransformer`` with the descent
head, so that logits and gradients can be compared with those of the package.
"""

import torch

from icssl.model.inputs import prepare
from icssl.model.starts import fourier_start, waves_start

STARTS = {"fourier": fourier_start, "waves": waves_start}


def plain_logits(model, episode):
    """Return the logits of every point, by loops."""
    config = model.config
    x = prepare(episode.x, config.centre, config.scale)
    r = _laplacian(model.laplacian, x)
    start = STARTS[config.start](x, config.k)
    phi = x.shape[1] ** 0.5 * _eigenmap(model.eigenmap, r, start)
    return _descent(model.head, phi, episode.y, episode.labelled)


def _laplacian(stage, x):
    r = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
    for step, layer in enumerate(stage.order):
        new_x = (1 + stage.skip_x[layer]) * x
        new_r = (1 + stage.skip_r[layer]) * r
        for head in range(stage.heads):
            query = stage.query_scale[layer, head] * x
            key = stage.key_scale[layer, head] * x
            squared = (query[:, :, None] - key[:, None]).square().sum(dim=-1)
            walk = (-squared).softmax(dim=-1)
            new_x = new_x + stage.mix_x[layer, head] * (walk @ x)
            new_r = new_r + stage.mix_r[layer, head] * (walk @ r)
        x, r = (new_x if step + 1 < len(stage.order) else x), new_r
    return r


def _eigenmap(stage, r, f):
    for layer in stage.order:
        new = f + f @ stage.skip[layer]
        for head in range(stage.heads):
            gain = stage.key_r[layer, head] * stage.query_r[layer, head]
            value = f @ stage.value[layer, head]
            new = new + gain * (r @ (r.mT @ value))
            key, query = f @ stage.key[layer, head], f @ stage.query[layer, head]
            new = new + query @ (key.mT @ value)
        f = new / new.norm(dim=1, keepdim=True)
    return f


def _descent(head, phi, y, labelled):
    w = head.class_embeddings(head.n_classes)
    squared = (phi[:, :, None] - phi[:, None]).square().sum(dim=-1)
    kernel = (-head.log_gamma.exp() * squared).exp() * labelled[:, None]
    f = torch.zeros(*y.shape, w.shape[1], dtype=phi.dtype, device=phi.device)
    count = labelled.sum(dim=1)[:, None, None]
    for step_size in head.step_size:
        residual = w[y] - (f @ w.mT).softmax(dim=-1) @ w
        f = f + step_size / count * (kernel @ residual)
    return f @ w.mT
