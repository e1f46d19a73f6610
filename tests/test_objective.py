"""MMDObjective: the paper's three terms in anybody's own loop, and as estimators train by it."""

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from helpers import assert_slopes_are_differences, mlp, seeded, slopes_of
from module_zoo import SCALE, ZOO, images, looked_at, of_zoo, perceptron, rows
from sklearn_mmdinit import MLP, MMDObjective
from sklearn_mmdinit._base.random_streams import StepRandom
from sklearn_mmdinit.losses import coherence, degeneracy, detachment, uniformity
from sklearn_mmdinit.networks.info import perturbed_logits
from sklearn_mmdinit.networks.passes import (
    hidden_activations,
    jacobian_norms,
    update_running_statistics,
)
from sklearn_mmdinit.objective import paper_terms
from sklearn_mmdinit.training.config import COHERENCE_WEIGHT, CoherenceConfig, Config
from sklearn_mmdinit.training.loop import SCALE_WEIGHT, loss_terms
from sklearn_mmdinit.training.schedule import ByEpochs

BOTH = pytest.mark.parametrize("sampler", ["gram", "functional"])


def objective(n_perturbations=16, seed=0, **params):
    return MMDObjective(n_perturbations, generator=torch.Generator().manual_seed(seed), **params)


def net_of(*between):
    return seeded(lambda: perceptron(*(between or (nn.ReLU(),))))


def batch(n=16, width=6, seed=0):
    return torch.from_numpy(rows(n, width, seed))


@BOTH
@pytest.mark.parametrize("name", ["mlp", "mlp+bn", "flatten first"])
def test_the_terms_are_those_of_the_perturbed_networks(name, sampler):
    module, info, X = of_zoo(name, sampler)
    weights = {"uniformity_weight": 0.5, "degeneracy_weight": 0.3, "detachment_weight": 2.0}
    own = objective(**weights, sampler=sampler, perturbation_scale=SCALE)
    found = paper_terms(own, module, info, X, StepRandom(5))
    draws = StepRandom(5)
    U = draws.simplex(16, info.n_classes)
    P = perturbed_logits(module, info, X, 16, SCALE, draws).softmax(-1)
    statistics = update_running_statistics(module, X)
    norms = jacobian_norms(module, X, info.n_classes, statistics)
    expected = uniformity(P, U), degeneracy(P), detachment(norms)
    assert_close(found[1:], expected)
    total = 0.5 * expected[0] + 0.3 * expected[1] + 2.0 * expected[2]
    assert_close(found.total, total)
    slopes = slopes_of(found.total, module)
    assert all(float(slope.abs().max()) > 0 for slope in slopes)


def test_a_term_of_no_weight_is_given_and_the_third_is_not_computed():
    module, X = seeded(ZOO["convnet+bn"][0]), torch.from_numpy(images(6))
    with torch.no_grad():
        terms = objective(uniformity_weight=0, degeneracy_weight=1, detachment_weight=0)(module, X)
    assert terms.detachment is None
    assert float(terms.uniformity) != 0
    assert torch.equal(terms.total, terms.degeneracy)
    assert int(module.norm1.num_batches_tracked) == 1, "its pass followed the rows all the same"


@BOTH
def test_draws_follow_from_the_generator_alone(sampler):
    net, X = net_of(), batch()
    own, same = (objective(sampler=sampler, seed=3) for _ in range(2))
    before = torch.get_rng_state()
    first, second = own(net, X), own(net, X)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.total != second.total
    assert all(map(torch.equal, same(net, X), first))
    assert objective(sampler=sampler, seed=4)(net, X).total != first.total
    # Without one they follow from PyTorch's global generator.
    totals = []
    for _ in range(2):
        torch.manual_seed(3)
        totals.append(MMDObjective(16, sampler=sampler)(net, X).total)
    assert torch.equal(*totals)
    assert torch.equal(totals[0], first.total)
    with torch.device("meta"):  # as a default
        assert torch.equal(objective(sampler=sampler, seed=3)(net, X).total, first.total)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, "autocast"])
def test_terms_in_any_precision_are_near_those_of_float32(dtype, sampler):
    net, X = seeded(lambda: MLP(6, (32, 32), 3)), batch(32)
    plain = objective(64, sampler=sampler)(net, X)
    expected, half = slopes_of(plain.total, net), dtype == "autocast"
    dtype = torch.float32 if half else dtype
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        terms = objective(64, sampler=sampler)(net.to(dtype), X.to(dtype))
    assert {term.dtype for term in terms} == {torch.promote_types(dtype, torch.float32)}
    assert_close(terms, tuple(plain), rtol=0.03, atol=0.02, check_dtype=False)
    for slope, own in zip(slopes_of(terms.total, net), expected, strict=True):
        assert slope.dtype == dtype
        assert float((slope - own).norm()) < 0.15 * float(own.norm())


# Of what PyTorch's compiler imports, and of its own look at tensors.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
@BOTH
def test_a_compiled_module_objective_or_step_has_the_same_terms(sampler):
    net, X = net_of(nn.Tanh()), batch()
    plain = objective(sampler=sampler)(net, X)
    expected = slopes_of(plain.total, net)
    compiled, step = torch.compile(net, backend="aot_eager"), objective(sampler=sampler)
    for own, module in (
        (objective(sampler=sampler), compiled),
        (torch.compile(objective(sampler=sampler), backend="aot_eager"), net),
        (torch.compile(lambda *args: step(*args), backend="aot_eager"), net),
    ):
        terms = own(module, X)
        assert_close(terms, plain)
        assert_close(slopes_of(terms.total, net), expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", [ZOO["mlp+bn"][0], ZOO["hooked"][0]])
def test_running_statistics_follow_the_mini_batch_once_a_call_and_nothing_else_changes(
    make, training
):
    module, X, own = seeded(make).train(training), batch(), objective()
    expected = copy.deepcopy(module)
    kept = [(part.training, len(part._forward_hooks)) for part in module.modules()]
    for _ in range(2):
        expected(X)
        own(module, X)
    assert_close(module.state_dict(), expected.state_dict())
    assert [(part.training, len(part._forward_hooks)) for part in module.modules()] == kept
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not X.requires_grad


@BOTH
def test_what_changes_between_calls_is_seen(sampler):
    net, X, own = net_of(), batch(), objective(sampler=sampler)
    own(net, X)
    net[0].requires_grad_(False)
    terms = own(net, X)
    terms.total.backward()
    assert net[0].weight.grad is None
    assert float(net[2].weight.grad.abs().max()) > 0
    net[0].requires_grad_(True)
    net[2] = nn.Linear(5, 4)
    assert own(net, X).total.requires_grad
    net[0].register_forward_hook(lambda layer, args, output: output * 0)
    if sampler == "gram":
        with pytest.raises(ValueError, match="it has hooks"):
            own(net, X)
    else:
        # The hook takes the input out of the logits: no norm but the last layer's is left.
        assert float(own(net, X).detachment.detach()) > 0.9
    for shape in ((5, 6), (3, 6), (1, 6)):
        assert own(copy.deepcopy(net_of()), torch.ones(shape)).total.isfinite()


@BOTH
def test_gradients_reach_what_computes_the_inputs(sampler):
    body, head, X = nn.Sequential(nn.Linear(6, 6), nn.Tanh()), net_of(nn.Tanh()), batch().double()
    body, head = body.double(), head.double()
    objective(sampler=sampler)(head, body(X)).total.backward()
    assert float(body[0].weight.grad.abs().max()) > 0

    def loss():
        # The bandwidth of L_uni has no gradient and changes all the same.
        return objective(uniformity_weight=0, sampler="functional")(head, body(X)).total

    assert_slopes_are_differences(loss, body, step=1e-5, tol=1e-5)


def test_a_copy_and_a_pickle_go_on_as_the_objective_does():
    net, X, own = net_of(), batch(), objective(detachment_weight=0.5)
    own(net, X)
    copies = [copy.deepcopy(own), pickle.loads(pickle.dumps(own))]
    expected = own(net, X)
    for other in copies:
        assert repr(other) == repr(own)
        assert all(map(torch.equal, other(net, X), expected))


def config(**params):
    defaults = {"learning_rate_init": 1e-3, "batch_size": 6, "schedule": ByEpochs(1)}
    weights = {"uniformity_weight": 1.0, "degeneracy_weight": 0.4, "detachment_weight": 2.0}
    drawn = {"n_classes": 2, "n_perturbations": 16, "perturbation_scale": 0.7}
    return Config(**{**defaults, **weights, **drawn, **params})


def terms_of(own, X, random):
    module, info, X = looked_at(mlp(4, 5, 3, 2), X)
    return loss_terms(module, info, X, random, own), module, info


def test_the_loss_of_a_training_is_the_objective_and_coherence():
    X = rows(12, 4)
    plain = config(batch_size=3)
    assert plain.term_names == ("loss", "uniformity", "degeneracy", "detachment")
    assert plain.rows_in_flight == 3 * 16
    paper, module, info = terms_of(plain, X[:3], StepRandom(0))
    expected = paper_terms(plain, module, info, torch.from_numpy(X[:3]), StepRandom(0))
    assert_close(paper, torch.stack(expected))
    coherent = config(batch_size=3, coherence=CoherenceConfig(2.0, 6))
    assert coherent.term_names == (*plain.term_names, "coherence")
    assert coherent.rows_in_flight == 12 + 3 * 16
    (loss, *terms, term), module, info = terms_of(coherent, X, StepRandom(0))
    assert_close(tuple(terms), tuple(paper[1:]))
    H = hidden_activations(module, torch.from_numpy(X), info.last_layer)
    assert_close(term, coherence(H, 2.0))
    variance = H.var(dim=0).mean()
    scale = SCALE_WEIGHT * (variance - 1 - variance.log())
    assert_close(loss, paper[0] + COHERENCE_WEIGHT * term + scale)
    # Alone it draws nothing.
    none = dict.fromkeys(("uniformity_weight", "degeneracy_weight", "detachment_weight"), 0.0)
    alone = config(coherence=coherent.coherence, **none)
    assert (alone.term_names, alone.rows_in_flight) == (("loss", "coherence"), 12)
    (loss, term_alone), _, _ = terms_of(alone, X, None)
    assert_close((loss, term_alone), (COHERENCE_WEIGHT * term + scale, term))


ELEMENTWISE = [
    *(nn.ReLU, nn.ReLU6, nn.RReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU),
    *(nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.LogSigmoid),
    *(nn.Tanhshrink, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardshrink, nn.Softshrink),
    *(nn.Identity, nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout),
]


@pytest.mark.parametrize("layer", ELEMENTWISE)
@BOTH
def test_every_elementwise_layer_has_all_terms(layer, sampler):
    if layer in (nn.PReLU, nn.FeatureAlphaDropout, nn.RReLU):
        sampler = "auto"  # gram serves neither of the first two, and vmap not the last
    net = net_of(layer())
    net[1].eval()
    terms = objective(4, sampler=sampler)(net, torch.tensor(rows(8)))
    terms.detachment.backward()
    assert net[0].weight.grad.isfinite().all()
    assert net[2].weight.grad.any()


@pytest.mark.parametrize("layer", [nn.Dropout, nn.AlphaDropout, nn.RReLU])
def test_a_layer_that_draws_before_the_first_linear_one_draws_for_each_network(layer):
    net = seeded(lambda: nn.Sequential(layer(), nn.Linear(6, 3)))
    with pytest.raises(ValueError, match="gram"):
        objective(4, sampler="gram")(net, batch())
    objective(4, sampler="gram")(net.eval(), batch())


def test_hardsigmoid_has_the_terms_of_its_formula():
    class Formula(nn.Module):
        def forward(self, x):
            return nn.functional.relu6(x + 3) / 6

    of_layer, of_formula = (
        seeded(partial(net_of, layer)) for layer in (nn.Hardsigmoid(inplace=True), Formula())
    )
    for net in (of_layer, of_formula):
        objective(4, sampler="functional")(net, torch.tensor(rows(8))).total.backward()
    assert_close(of_layer[0].weight.grad, of_formula[0].weight.grad)
