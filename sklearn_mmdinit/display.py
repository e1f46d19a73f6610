"""Which inputs move together, as a picture, in the style of scikit-learn's displays.

It keeps its data; its ``plot`` draws them and sets ``ax_`` and ``figure_``. Matplotlib is imported
when a plot is drawn and not before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.utils import check_random_state

from ._core.estimators import check_integer, check_kind, finite_array
from ._core.numbers import array_of
from .diagnostics import coherence_kernel

__all__ = ["CoherenceDisplay"]


def _axes_or_new(ax: Any, **options: Any) -> Any:
    """The axes to draw on: those given, or a new figure's; an ImportError without matplotlib."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.axes import Axes
    except ImportError as error:
        said = "drawing needs matplotlib: pip install 'sklearn-mmdinit[plot]'"
        raise ImportError(said) from error
    if ax is None:
        return plt.subplots(**options)[1]
    for own in np.ravel(np.asarray(ax, dtype=object)):
        check_kind("ax", own, Axes)
    return ax


@dataclass(eq=False, repr=False)
class CoherenceDisplay:
    """The kernel C of some inputs: as images beside their nearest and farthest, or as a heat map.

    C is the correlation of what perturbations of the last layer add to a logit: inputs of a
    large C get their labels together. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    kernel : array-like of shape (n, n)
        C of the inputs, as :func:`sklearn_mmdinit.diagnostics.coherence_kernel` gives it.
    images : array-like of shape (n, height, width), default=None
        The inputs as images; None draws a heat map.
    anchors : sequence of int, default=None
        Inputs whose row of C is shown, as images; None: the first four.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        What was drawn on.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit.display import CoherenceDisplay
    >>> kernel = np.eye(4) + np.eye(4)[[2, 3, 0, 1]]  # 0 with 2, and 1 with 3
    >>> order = CoherenceDisplay(kernel).order()
    >>> sorted(order[:2].tolist()) in ([0, 2], [1, 3])
    True
    """

    kernel: ArrayLike
    images: ArrayLike | None = None
    anchors: Sequence[int] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        image_shape: tuple[int, int] | None = None,
        n_anchors: int = 4,
        n_shown: int = 6,
        random_state: Any = None,
        ax: Any = None,
    ) -> CoherenceDisplay:
        """Draw C at the theta0 of a fitted estimator.

        Parameters
        ----------
        estimator : initializer, MLPClassifier or Theta0
            Whose theta0 is looked at.
        X : array-like of shape (n_samples, ...)
            Inputs, some hundred.
        image_shape : tuple of int, default=None
            Height and width of a row of X as an image of one channel; None draws a heat map.
        n_anchors : int, default=4
            Inputs, drawn at random, whose row of C is shown, as images.
        n_shown : int, default=6
            As :meth:`plot` takes it.
        random_state : int, RandomState instance or None, default=None
            Of the anchors.
        ax : matplotlib Axes, default=None
            As :meth:`plot` takes it.

        Returns
        -------
        CoherenceDisplay
        """
        check_integer("n_anchors", n_anchors)
        kernel = coherence_kernel(estimator, X)  # of a DataFrame, by the names of its columns
        images = None if image_shape is None else _as_images(np.asarray(array_of(X)), image_shape)
        random = check_random_state(random_state)
        anchors = random.choice(len(kernel), size=min(n_anchors, len(kernel)), replace=False)
        return cls(kernel, images, anchors.tolist()).plot(ax=ax, n_shown=n_shown)

    def order(self) -> np.ndarray:
        """The inputs in an order in which those of a large C are near each other.

        That of the leaves of a tree of clusters, by average linkage of 1 - C, turned at each
        branch so that neighbours are as alike as they can be (Bar-Joseph et al., 2001).

        Returns
        -------
        ndarray of int of shape (n,)
            A permutation of the inputs.
        """
        distances = squareform(1.0 - _checked(self.kernel), checks=False)
        return leaves_list(linkage(distances, "average", optimal_ordering=True))

    def plot(self, ax: Any = None, *, n_shown: int = 6) -> CoherenceDisplay:
        """Draw the anchors beside their nearest and farthest images, or the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        n_shown : int, default=6
            The nearest and the farthest inputs shown beside an anchor, so many of each.

        Returns
        -------
        CoherenceDisplay
        """
        check_integer("n_shown", n_shown)
        C = _checked(self.kernel)
        if self.images is not None:
            images, n_shown = finite_array("images", self.images), min(n_shown, (len(C) - 1) // 2)
            self._plot_images(C, images, ax, n_shown)
            return self
        self.ax_ = _axes_or_new(ax)
        self.figure_ = self.ax_.figure
        order = self.order()
        sorted_C = C[np.ix_(order, order)]
        drawn = self.ax_.imshow(sorted_C, vmin=min(C.min(), 0.0), vmax=1.0, cmap="magma")
        self.figure_.colorbar(drawn, ax=self.ax_, label="C")
        self.ax_.set(xlabel="inputs, in groups", ylabel="inputs, in groups", title="Coherence")
        return self

    def _plot_images(self, C: np.ndarray, images: np.ndarray, ax: Any, n_shown: int) -> None:
        """A row of images an anchor, on one pair of axes: itself, its nearest, its farthest."""
        n = len(C)
        if images.ndim != 3 or len(images) != n:
            raise ValueError(f"images must have shape ({n}, height, width), got {images.shape}")
        anchors = np.atleast_1d(range(min(4, n)) if self.anchors is None else self.anchors).tolist()
        if not (anchors and all(type(a) is int and 0 <= a < n for a in anchors)):
            raise ValueError(f"anchors must be numbers of the {n} inputs, got {anchors}")
        if n_shown < 1:
            raise ValueError(f"{n} inputs have no nearest and farthest: give three or more")
        size = (0.75 * (2 * n_shown + 2.5), 0.95 * len(anchors) + 0.4)
        ax = _axes_or_new(ax, figsize=size, layout="constrained")
        height, width = images.shape[1:]
        look = {"cmap": "gray_r", "vmin": float(images.min()), "vmax": float(images.max())}
        # Room for a gap after the anchor, one before the farthest, and C under each image.
        gap, line = 0.5 * width, 0.35 * height
        for row, anchor in enumerate(anchors):
            top = row * (height + line)
            others = np.argsort(-C[anchor], kind="stable")
            others = others[others != anchor]
            shown = [anchor, *others[:n_shown], *others[len(others) - n_shown :]]
            for place, index in enumerate(shown):
                left = place * width * 1.08 + gap * ((place > 0) + (place > n_shown))
                ax.imshow(images[index], extent=(left, left + width, top + height, top), **look)
                if place:
                    middle, value = left + width / 2, f"{C[anchor, index]:.2f}"
                    ax.text(middle, top + height, value, ha="center", va="top", fontsize="small")
        ax.set_xlim(-0.1 * width, (2 * n_shown + 1) * width * 1.08 + 2 * gap)
        ax.set_ylim(len(anchors) * (height + line), -0.1 * height)
        ax.set_aspect("equal")
        ax.set_axis_off()
        ax.set_title("input, its nearest and its farthest, with C")
        self.ax_, self.figure_ = ax, ax.figure


def _checked(kernel: ArrayLike) -> np.ndarray:
    """A kernel (n, n) in float64; a ValueError unless it is symmetric and finite."""
    C = finite_array("kernel", kernel)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or len(C) < 2:
        raise ValueError(f"kernel must have shape (n, n) with n of 2 or more, got {C.shape}")
    if not np.allclose(C, C.T, atol=1e-4):
        raise ValueError("kernel must be symmetric")
    return C


def _as_images(rows: np.ndarray, image_shape: Any) -> np.ndarray:
    """Rows (n, ...) as images (n, height, width); axes of length 1 do not matter."""
    sides = np.atleast_1d(image_shape).tolist()
    valid = len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
    own = [side for side in rows.shape[1:] if side != 1]
    if not valid or own not in ([side for side in sides if side != 1], [math.prod(sides)]):
        said = "it must be None or a height and a width"
        raise ValueError(f"{image_shape=} does not fit X of shape {rows.shape}: {said}")
    return rows.reshape(len(rows), *sides)
