"""L_coh: exact, invariant where it says so, and of the right gradient."""

import math

import numpy as np
import pytest
import torch

from helpers import as_a_team_of, network, normal
from sklearn_mmdinit._compute import StepRandom
from sklearn_mmdinit._objective import CoherentObjective, MMDObjective, coherence_kernel
from sklearn_mmdinit._objective.coherence import coherence
from sklearn_mmdinit._sampling import Perturbation
from sklearn_mmdinit._sampling.law import bias_std, weight_std


@pytest.mark.parametrize("scale", [0.1, math.sqrt(0.5)])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_kernel_is_the_correlation_of_sampled_perturbations_of_the_last_layer(n_classes, scale):
    H = normal(6, 5).relu()
    draws, random = 200_000, torch.Generator().manual_seed(1)
    weights = torch.randn(draws, 5, dtype=torch.float64, generator=random) * weight_std(5, scale)
    biases = torch.randn(draws, 1, dtype=torch.float64, generator=random)
    moves = weights @ H.mT + biases * bias_std(n_classes, scale)
    # The standard error of a correlation is at most 1 / sqrt(draws) = 0.0022.
    np.testing.assert_allclose(
        coherence_kernel(H, n_classes), np.corrcoef(moves.numpy().T), atol=0.011
    )


@pytest.mark.parametrize("seed", range(5))
def test_kernel_is_a_correlation_matrix(seed):
    C = coherence_kernel(normal(9, 4, seed=seed), 2)
    torch.testing.assert_close(C, C.mT)
    torch.testing.assert_close(C.diagonal(), torch.ones(9, dtype=C.dtype))
    assert float(torch.linalg.eigvalsh(C).min()) > -1e-12
    assert float(C.abs().max()) <= 1 + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_orthogonal_maps_of_the_activations_change_nothing(seed):
    H = normal(8, 5, seed=seed)
    Q, _ = torch.linalg.qr(normal(5, 5, seed=seed + 10))
    torch.testing.assert_close(coherence_kernel(H @ Q, 3), coherence_kernel(H, 3))
    torch.testing.assert_close(coherence(H @ Q, 3, 2.0), coherence(H, 3, 2.0))


def test_scaled_activations_go_from_one_to_the_cosine():
    H = normal(7, 5)
    cosine = torch.nn.functional.cosine_similarity(H[:, None], H, dim=-1)
    torch.testing.assert_close(coherence_kernel(1e6 * H, 2), cosine, atol=1e-9, rtol=0)
    torch.testing.assert_close(coherence_kernel(1e-6 * H, 2), torch.ones_like(cosine))
    # As with n units where a unit's square is divided by n: the scale says how much the bias is.
    wide = torch.cat([H] * 4, dim=1)
    torch.testing.assert_close(coherence_kernel(wide, 2), coherence_kernel(H, 2))


def test_dead_layers_move_all_inputs_together():
    torch.testing.assert_close(coherence_kernel(torch.zeros(3, 4), 2), torch.ones(3, 3))
    assert float(coherence(torch.zeros(4, 4), 2, 2.0)) == pytest.approx(2.0)


@pytest.mark.parametrize("separation", [0.0, 2.0])
def test_a_case_by_hand(separation):
    # Two walks; with one unit per input and d infinite C would be the identity of groups.
    H = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    # Cov = 1/2 + 1/2 on the diagonal and along the walks, 1/2 between them.
    assert float(coherence(H, 2, separation)) == pytest.approx(0.0 + separation * 0.25)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_walks_and_their_direction_do_not_matter(seed):
    H = normal(12, 5, seed=seed)
    starts, ends = H[:6], H[6:]
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    expected = coherence(H, 2, 1.5)
    torch.testing.assert_close(coherence(torch.cat([starts[order], ends[order]]), 2, 1.5), expected)
    torch.testing.assert_close(coherence(torch.cat([ends, starts]), 2, 1.5), expected)


def test_it_is_the_mean_over_pairs_written_out():
    H, n = normal(10, 4), 5
    C = coherence_kernel(H, 2)
    related = [(i, i + n) for i in range(n)] + [(i + n, i) for i in range(n)]
    between = [
        float(C[i, j]) ** 2
        for i in range(2 * n)
        for j in range(2 * n)
        if i != j and (i, j) not in related
    ]
    along = [float(C[i, i + n]) for i in range(n)]
    expected = 1 - np.mean(along) + 3.0 * np.mean(between)
    assert float(coherence(H, 2, 3.0)) == pytest.approx(expected)


def test_gradient_by_finite_differences():
    H = normal(8, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda H: coherence(H, 3, 2.0), H)


def objective(weight=4.0, paper=True):
    terms = MMDObjective(Perturbation(16, 0.7), 12, 0.4, 2.0, "unbiased", "sampled")
    return CoherentObjective(terms if paper else None, 3, weight, 2.0)


def test_the_objective_adds_it_to_the_papers_terms_on_the_first_starts():
    module, X = network(4, 5, 3, 2).float(), normal(12, 4).float()
    own = objective()
    assert own.term_names == ("loss", "uniformity", "degeneracy", "detachment", "coherence")
    loss, *terms, coherent = own(module, X, StepRandom(0)).tolist()
    paper = own.paper(module, X[:3], StepRandom(0)).tolist()
    assert terms == pytest.approx(paper[1:])
    assert coherent == pytest.approx(float(coherence(module.hidden(X), 2, 2.0).detach()), rel=1e-5)
    assert loss == pytest.approx(paper[0] + 4.0 * coherent, rel=1e-5)
    assert own.rows_a_step(12) == 12 + 3 * 16


def test_alone_it_draws_nothing():
    module, X = network(4, 5, 2).float(), normal(12, 4).float()
    alone = objective(paper=False)
    assert alone.term_names == ("loss", "coherence")
    loss, coherent = alone(module, X, None).tolist()
    assert loss == pytest.approx(4.0 * coherent)
    assert alone.rows_a_step(12) == 12


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_rows_in_parts_have_the_gradient_of_all_at_once(activation, n_threads):
    module, X = network(6, 9, 7, 2, activation=activation), normal(520, 6)
    alone = objective(paper=False)
    with as_a_team_of(n_threads):
        alone(module, X, None)[0].backward()
    gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    (4.0 * coherence(module.hidden(X), 2, 2.0)).backward()
    expected = [p.grad for p in module.parameters() if p.grad is not None]
    assert len(gradients) == len(expected) == 4, "the last layer has no part in it"
    for own, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(own, other)


def test_batch_norm_takes_the_statistics_of_all_rows():
    module, X = network(6, 9, 2, batch_norm=True).train(), normal(300, 6)
    found = objective(paper=False)(module, X, None)[1]
    torch.testing.assert_close(found, coherence(module.hidden(X), 2, 2.0))


def test_without_a_bias_the_kernel_is_the_cosine_at_any_scale():
    H = normal(6, 4)
    H[2] = 0
    rest = [0, 1, 3, 4, 5]
    cosine = torch.nn.functional.cosine_similarity(H[rest, None], H[None, rest], dim=-1)
    for scale in (1e-3, 1.0, 1e3):
        scaled = (scale * H).requires_grad_()
        C = coherence_kernel(scaled, math.inf)
        torch.testing.assert_close(C[rest][:, rest].detach(), cosine, rtol=1e-5, atol=1e-5)
        assert not C[2].any()
        (gradient,) = torch.autograd.grad(C.sum(), scaled)
        assert gradient.isfinite().all()
