"""Learning theta0 without labels, looking at it, and the paper's theorems on it."""

from __future__ import annotations

from copy import copy

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import normalize

from sklearn_mmdinit import (
    Architecture,
    Coherence,
    MMDInitializer,
    OrientedGradients,
    RandomAffine,
    RandomLabelInitializer,
    Theta0,
)
from sklearn_mmdinit.diagnostics import (
    coherence_kernel,
    dead_neuron_ratio,
    degenerate_softmax_ratio,
    prediction_samples,
)
from sklearn_mmdinit.display import CoherenceDisplay, LossCurveDisplay, PredictionDensityDisplay
from sklearn_mmdinit.theory import (
    JacobianRowNormMoments,
    class_probability_lower_bound,
    jacobian_row_norm_moments,
    mean_vertex_distances,
    perturbation_norm_tail_bound,
    perturbation_std,
    relu_jacobian_row_norms,
)
from tour_steps.journey import Claims, Journey, say

__all__ = [
    "augmentation",
    "baseline",
    "coherence",
    "diagnose",
    "paper",
    "second_round",
    "theorems",
]

HIDDEN = (64, 64)


def paper(journey: Journey) -> Claims:
    """The paper's objective: MMDInitializer with its defaults, on a smaller network."""
    init = MMDInitializer(
        HIDDEN,
        n_perturbations=journey.amount(128, 16),
        max_iter=journey.amount(20, 4),
        window=journey.amount(50, 9),
        random_state=0,
    ).fit(journey.X)
    journey.learned["paper"] = init
    say(f"theta0 of {init.theta0_.architecture.widths}, {init.n_iter_} passes, no labels")
    say(f"loss of a window {init.loss_curve_[0]:.3f}, the best {init.best_loss_:.3f}")
    journey.save("tour-loss.png", LossCurveDisplay.from_estimator(init))
    return {
        "theta0_ is a Theta0 of an Architecture": isinstance(init.theta0_, Theta0)
        and isinstance(init.theta0_.architecture, Architecture),
        "coefs_ are in scikit-learn's orientation": [w.shape for w in init.coefs_]
        == [(64, 64), (64, 64), (64, 2)],
        "the loss has fallen": init.best_loss_ < init.loss_curve_[0],
    }


def coherence(journey: Journey) -> Claims:
    """The fourth term: coherence="auto", for ten classes."""
    init = MMDInitializer(
        HIDDEN,
        n_classes=10,
        coherence="auto",
        max_iter=journey.amount(60, 8),
        random_state=0,
    ).fit(journey.X)
    journey.learned["coherent"] = init
    say(f'"auto" stood for {init.auto_params_}')
    say(f"gain {tuple(round(factor, 2) for factor in init.gain_)}")
    shown = journey.X[:200]
    display = CoherenceDisplay.from_estimator(init, shown, image_shape=(8, 8), random_state=0)
    journey.save("tour-coherence-images.png", display)
    journey.save("tour-coherence-map.png", CoherenceDisplay.from_estimator(init, shown))
    named = MMDInitializer(
        HIDDEN, n_classes=10, coherence=Coherence(walk_length=40.0), max_iter=1, random_state=0
    )
    auto = MMDInitializer(HIDDEN, n_classes=10, coherence="auto", max_iter=1, random_state=0)
    same = zip(named.fit(journey.X).coefs_, auto.fit(journey.X).coefs_, strict=True)
    return {
        "the history has the term": "coherence" in init.history_[0],
        '"auto" is Coherence() where rows are many': journey.quick
        or all(np.array_equal(a, b) for a, b in same),
    }


def augmentation(journey: Journey) -> Claims:
    """Coherence under small changes of the images: features that do not mind them."""
    change = RandomAffine(shift=1.0)
    moved = change(journey.X, np.random.default_rng(0))

    def likeness(init: MMDInitializer) -> float:
        one, other = (normalize(init.transform(rows)) for rows in (journey.X, moved))
        return float(np.mean(np.sum(one * other, axis=1)))

    without = copy(journey.learned["coherent"]).set_params(output="hidden")
    init = clone(without).set_params(coherence=Coherence(augmentation=change)).fit(journey.X)
    plain, changed = likeness(without), likeness(init)
    journey.learned["augmented"] = init
    say(f"an image's features and those of it moved: cosine {plain:.2f}; so learned {changed:.2f}")
    return {"features learned under changes mind them less": changed > plain}


def second_round(journey: Journey) -> Claims:
    """Coherence with neighbours among what a first round has learned."""
    first = FrozenEstimator(journey.learned["augmented"])
    coherence = Coherence(augmentation=RandomAffine(shift=1.0), embedding=first)
    second = clone(journey.learned["augmented"]).set_params(
        coherence=coherence, max_iter=journey.amount(10, 2)
    )
    second.fit(journey.X)
    once = clone(second).set_params(coherence__embedding=None).fit(journey.X)

    def agreement(rows: np.ndarray) -> float:
        graph = kneighbors_graph(rows, 10, mode="connectivity").toarray() > 0
        return float((journey.y[:, None] == journey.y)[graph].mean())

    gradients = OrientedGradients().fit_transform(journey.X)
    places = {"pixels": journey.X, "gradients": gradients}
    places["activations"] = second.embedding_.transform(journey.X)
    found = {name: agreement(rows) for name, rows in places.items()}
    shares = ", ".join(f"{share:.1%} among {name}" for name, share in found.items())
    say(f"neighbours of one digit: {shares}; embedding= is for the place where they are most")
    return {
        "more neighbours are alike among gradients": found["gradients"] > found["pixels"],
        "the first is asked, and not learned again": second.embedding_ is first,
        "other neighbours make another theta0": once.history_ != second.history_,
    }


def diagnose(journey: Journey) -> Claims:
    """Degenerate softmax, dead units, predictions around theta0, the kernel of coherence."""
    init, X = journey.learned["paper"], journey.X
    fresh = MMDInitializer(HIDDEN, max_iter=0, random_state=0).fit(X)
    n_batches = journey.amount(32, 4)
    ratios = [
        float(degenerate_softmax_ratio(i, X, n_batches=n_batches, random_state=0).mean())
        for i in (fresh, init)
    ]
    dead = dead_neuron_ratio(init, X, n_batches=n_batches, random_state=0)
    say(f"degenerate softmax {ratios[0]:.0%} before, {ratios[1]:.0%} after")
    say(f"dead units by hidden layer {dead.mean(0).round(3).tolist()}")
    draws = [prediction_samples(i, X[:4], random_state=0) for i in (fresh, init)]
    journey.save("tour-densities.png", PredictionDensityDisplay.from_predictions(*draws))
    kernel = coherence_kernel(journey.learned["coherent"], X[:200])
    same = journey.y[:200, None] == journey.y[None, :200]
    np.fill_diagonal(same, False)
    within, between = float(kernel[same].mean()), float(kernel[~same].mean())
    say(f"kernel of coherence {within:.2f} within a digit, {between:.2f} between digits")
    return {
        "predictions lie on the simplex": all(np.allclose(p.sum(-1), 1, atol=1e-5) for p in draws),
        "fewer networks leave out a class": ratios[1] <= ratios[0],
        "shares are between 0 and 1": bool(((dead >= 0) & (dead <= 1)).all()),
        "the kernel has ones on its diagonal": np.allclose(np.diag(kernel), 1.0, atol=1e-5),
        "a digit's images belong together": within > between,
    }


def theorems(journey: Journey) -> Claims:
    """The three theorems, at the theta0 of the paper's objective."""
    init = journey.learned["paper"]
    std = perturbation_std(init.theta0_.architecture)
    radius = 1.1 * float(np.sqrt(np.square(std).sum()))
    tail = float(perturbation_norm_tail_bound(radius, std, form="sub_exponential"))
    draws = np.random.default_rng(2).normal(size=(500, std.size)) * std
    longer = float((np.linalg.norm(draws, axis=1) >= radius).mean())
    say(f"1: longer than {radius:.1f}: {longer:.1%} of perturbations, {tail:.1%} at most")
    predictions = prediction_samples(init, journey.X, n_perturbations=8, random_state=0)
    holds = []
    for P in predictions:
        bound = class_probability_lower_bound(mean_vertex_distances(P), 2)
        shares = np.bincount(P.argmax(1), minlength=2) / len(P)
        holds.append(bool((shares >= bound - 1e-9).all()))
    say(f"2: the bound of a class's share holds for {sum(holds)} of {len(holds)} networks")
    moments = jacobian_row_norm_moments(HIDDEN[0])
    weight = np.random.default_rng(0).normal(0, np.sqrt(2 / HIDDEN[0]), (500, HIDDEN[0]))
    inputs = np.random.default_rng(1).normal(size=(200, HIDDEN[0]))
    norms = relu_jacobian_row_norms(weight, inputs)
    say(f"3: rows of Jacobians have the mean norm {norms.mean():.3f}, expected {moments.mean:.3f}")
    return {
        "theorem 1 holds": longer <= tail,
        "theorem 2 holds": all(holds),
        "theorem 3's mean is met": isinstance(moments, JacobianRowNormMoments)
        and abs(norms.mean() - moments.mean) < 0.05,
    }


def baseline(journey: Journey) -> Claims:
    """The paper's baseline: RandomLabelInitializer."""
    init = RandomLabelInitializer(HIDDEN, max_iter=journey.amount(5, 2), random_state=0)
    init.fit(journey.X)
    say(f"random labels: best loss {init.best_loss_:.3f}; log 2 = {np.log(2):.3f} says nothing")
    return {"random labels cannot be told": 0.5 < init.best_loss_ < 0.9}
