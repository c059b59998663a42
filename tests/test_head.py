"""The descent head against autograd, its formula, and the token Transformer."""

import pytest
import torch

from helpers import F64, random_episode, without_gradient
from icssl.model.head import GradientDescentHead, gather_labelled, simplex
from icssl.model.tokens import TokenTransformer

OPTIONS = [
    {"kernel": "rbf"},
    {"kernel": "linear", "steps": 3},
    {"kernel": "softmax", "steps": 2},
    {"kernel": "rbf", "steps": 3, "embedding": "learned", "embedding_size": 5},
    {"kernel": "rbf", "steps": 2, "embedding": "learned", "expectation": "mlp"},
]


def case(generator, **options):
    values = {"b": 2, "n": 10, "c": 3, "m": 4, "k": 3} | options
    episode = random_episode(generator, **values)
    return episode.features, episode.y, episode.labelled


def head_of(options, n_classes=3):
    head = GradientDescentHead(n_classes=n_classes, **options).double()
    with torch.no_grad():
        for parameter in (head.step_size, head.log_gamma):
            if parameter is not None:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return head


@pytest.mark.parametrize("embedding", ["simplex", "learned"])
@pytest.mark.parametrize("steps", [1, 2, 20])
def test_linear_head_is_gradient_descent_on_the_labels(generator, steps, embedding):
    """f = phi A^T, with A moved down the gradient of the cross-entropy, by autograd."""
    phi, y, labelled = case(generator)
    head = head_of({"kernel": "linear", "steps": steps, "embedding": embedding})
    w = head.class_embeddings(3).detach()
    for i in range(2):
        a = torch.zeros(phi.shape[-1], w.shape[1], dtype=torch.float64, requires_grad=True)
        for alpha in head.step_size.detach():
            logits = (phi[i] @ a @ w.T)[labelled[i]]
            loss = torch.nn.functional.cross_entropy(logits, y[i][labelled[i]])
            (grad,) = torch.autograd.grad(loss, a)
            a = (a - alpha * grad).detach().requires_grad_()
        result = head(phi, y, labelled)[i]
        torch.testing.assert_close(result, phi[i] @ a @ w.T, **F64)


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_rbf_head_is_gradient_descent_in_its_feature_space(generator, steps):
    """The RBF kernel has no finite psi, but K = psi psi^T holds for any root of K."""
    phi, y, labelled = case(generator)
    head = head_of({"kernel": "rbf", "steps": steps})
    w = head.class_embeddings(3)
    gaps = (phi[:, :, None] - phi[:, None]).square().sum(dim=-1)
    kernel = (-head.log_gamma.detach().exp() * gaps).exp()
    values, vectors = torch.linalg.eigh(kernel)
    psi = vectors * values.clamp(min=0).sqrt()[:, None]
    for i in range(2):
        a = torch.zeros(phi.shape[1], w.shape[1], dtype=torch.float64, requires_grad=True)
        for alpha in head.step_size.detach():
            logits = (psi[i] @ a @ w.T)[labelled[i]]
            loss = torch.nn.functional.cross_entropy(logits, y[i][labelled[i]])
            (grad,) = torch.autograd.grad(loss, a)
            a = (a - alpha * grad).detach().requires_grad_()
        result = head(phi, y, labelled)[i]
        torch.testing.assert_close(result, psi[i] @ a @ w.T, **F64)


def test_softmax_head_is_its_formula(generator):
    phi, y, labelled = case(generator, b=1)
    head = head_of({"kernel": "softmax", "steps": 3})
    w, gamma = head.class_embeddings(3), head.log_gamma.exp()
    seen = labelled[0].nonzero().flatten().tolist()
    f = torch.zeros(10, 3, dtype=torch.float64)
    for alpha in head.step_size:
        new = f.clone()
        for i in range(10):
            scores = torch.stack([gamma * phi[0, i] @ phi[0, j] for j in seen]).exp()
            for weight, j in zip(scores / scores.sum(), seen, strict=True):
                expectation = sum(
                    p * w[c] for c, p in enumerate((f[j] @ w.T).softmax(dim=0))
                )
                new[i] = new[i] + alpha / len(seen) * weight * (w[y[0, j]] - expectation)
        f = new
    torch.testing.assert_close(head(phi, y, labelled)[0], f @ w.T, **F64)


@pytest.mark.parametrize("options", OPTIONS)
def test_head_is_the_papers_token_transformer(generator, options):
    phi, y, labelled = case(generator)
    head = head_of(options)
    literal = TokenTransformer(head, phi, y, labelled)
    torch.testing.assert_close(head(phi, y, labelled), literal.logits(), **F64)
    # Between layers the tokens hold what the appendix says they hold.
    for tokens in literal.layers():
        f = tokens[..., literal.f_slot]
        expectation = head.expectation(f, head.class_embeddings(3))
        torch.testing.assert_close(
            tokens[..., literal.expectation_slot], expectation, **F64
        )
        assert torch.equal(tokens[..., literal.phi_slot], phi)


def test_token_transformer_refuses_what_it_cannot_tell_apart(generator):
    phi, y, labelled = case(generator)
    phi = phi.clone()
    phi[1, 7] = phi[1, 2]
    head = head_of({"kernel": "rbf"})
    with pytest.raises(ValueError, match="same for points 2 and 7 of episode 1"):
        TokenTransformer(head, phi, y, labelled)
    labelled = labelled.clone()
    labelled[0] = True
    with pytest.raises(ValueError, match=r"one m, got \[10, 4\]"):
        TokenTransformer(head, phi, y, labelled)


@pytest.mark.parametrize("options", OPTIONS)
def test_gathering_the_labelled_points_changes_nothing(generator, options):
    phi, y, labelled = case(generator)
    labelled = labelled.clone()
    labelled[0, labelled[0].nonzero()[0]] = False  # episodes with different m
    head = head_of(options)
    free = head(phi, y, labelled, backend="matrix_free")
    torch.testing.assert_close(free, head(phi, y, labelled), **F64)
    key, y_key, readable = gather_labelled(phi, y, labelled)
    assert key.shape[1] == 4
    assert readable.sum(dim=1).tolist() == [3, 4]
    assert torch.equal(y_key[readable], y[labelled])


@pytest.mark.parametrize("options", OPTIONS)
def test_unlabelled_classes_are_not_read(generator, options):
    phi, y, labelled = case(generator)
    head = head_of(options)
    hidden = torch.where(labelled, y, -1)
    assert torch.equal(head(phi, hidden, labelled), head(phi, y, labelled))


@pytest.mark.parametrize("kernel", ["rbf", "linear", "softmax"])
def test_equivariant_to_class_names_and_to_order(generator, kernel):
    phi, y, labelled = case(generator, c=4)
    head = head_of({"kernel": kernel, "steps": 3}, n_classes=4)
    logits = head(phi, y, labelled)
    names = torch.randperm(4, generator=generator)
    torch.testing.assert_close(head(phi, names[y], labelled)[..., names], logits, **F64)
    order = torch.randperm(10, generator=generator)
    shuffled = head(phi[:, order], y[:, order], labelled[:, order])
    torch.testing.assert_close(shuffled, logits[:, order], **F64)


def test_simplex_head_takes_any_number_of_classes(generator):
    phi, y, labelled = case(generator, c=7)
    head = GradientDescentHead(n_classes=2).double()
    assert head(phi, y, labelled, n_classes=7).shape == (2, 10, 7)


@pytest.mark.parametrize("c", [2, 3, 10])
def test_simplex_has_unit_vectors_at_equal_angles(c):
    w = simplex(c, like=torch.zeros(1, dtype=torch.float64))
    gram = torch.full((c, c), -1 / (c - 1), dtype=torch.float64).fill_diagonal_(1)
    torch.testing.assert_close(w @ w.T, gram, **F64)


def test_one_class_only_is_valid(generator):
    phi, y, labelled = case(generator)
    logits = head_of({"kernel": "rbf", "steps": 5})(phi, torch.zeros_like(y), labelled)
    assert logits.isfinite().all()
    assert (logits.argmax(dim=-1) == 0).all()


@pytest.mark.parametrize("options", OPTIONS)
def test_gradcheck_and_gradient_to_every_parameter(generator, options):
    phi, _, _ = case(generator, b=1, n=6)
    # Labels of one class would leave a softmax head nothing to choose between.
    y, labelled = torch.tensor([[0, 1, 2, 0, 1, 2]]), torch.arange(6)[None] < 3
    head = head_of({**options, "steps": 2})
    names = [name for name, _ in head.named_parameters()]

    def logits(phi, *values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(head, parameters, (phi, y, labelled))

    phi = phi.requires_grad_()
    assert torch.autograd.gradcheck(logits, (phi, *head.parameters()))
    assert without_gradient(head, head(phi, y, labelled), generator) == []


def test_prediction_is_a_sum_over_labelled_points(generator):
    phi, y, labelled = case(generator)
    head = head_of({"kernel": "rbf", "steps": 3})
    w = head.class_embeddings(3)
    kernel = head.kernel_matrix(phi, phi, labelled)
    added = head.coefficients(kernel, y, labelled, w).sum(dim=0)
    each = kernel[..., None] * (added @ w.T)[:, None]  # (b, n, labelled point, c)
    torch.testing.assert_close(each.sum(dim=2), head(phi, y, labelled), **F64)
    assert each.transpose(1, 2)[~labelled].abs().max() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "poly"}, r"unknown head kernel 'poly'.*'linear', 'rbf', 'softmax'"),
        ({"embedding": "onehot"}, r"unknown embedding 'onehot'"),
        ({"expectation": "none"}, r"unknown expectation 'none'"),
        ({"expectation": "mlp"}, r"expectation='mlp' needs embedding='learned'"),
        ({"steps": 0}, r"steps must be at least 1, got 0"),
        ({"n_classes": 1}, r"n_classes must be at least 2, got 1"),
        ({"gamma": 0.0}, r"gamma must be a positive"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        GradientDescentHead(**options)
