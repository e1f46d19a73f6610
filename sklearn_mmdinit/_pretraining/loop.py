"""The pre-training loop: windows of steps, the best snapshot, an early stop.

Between passes everything lives in a :class:`PretrainingState`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from .._compute import StepRandom, permutation, team
from .._network import MLP, module_from_theta0, theta0_from_module
from .batches import Batches
from .recording import steps_on
from .schedule import Schedule
from .state import PretrainingState
from .steps import Objective

__all__ = ["run_passes"]


def run_passes(
    state: PretrainingState,
    X: np.ndarray,
    objective: Objective,
    batches: Batches,
    schedule: Schedule,
    n_passes: int,
    device: str | torch.device,
    verbose: int = 0,
) -> PretrainingState:
    """Train for a number of passes over X, in place.

    Parameters
    ----------
    state : PretrainingState
        Where to start; updated and returned.
    X : ndarray of shape (n, n_features)
        Unlabelled rows; a memory map is read a window at a time. Each pass visits the rows in
        a new random order and leaves out the last n modulo the batches' size of it.
    objective : Objective
        What to minimise.
    batches : Batches
        The rows of each step; their size is at most n.
    schedule : Schedule
        Learning rate, window, early stop.
    n_passes : int
        Number of passes.
    device : str or torch.device
        Where to compute.
    verbose : int, default=0
        A progress bar if positive.

    Returns
    -------
    PretrainingState
        The same object.
    """
    steps_a_pass = len(X) // batches.size
    module = module_from_theta0(state.current, device).train()
    optimizer = _adam(module, schedule, state)
    random = StepRandom(state.seed, device)
    steps = steps_on(torch.device(device), module, objective, optimizer, random)
    stopped = False
    with (
        team(module.architecture.widths, objective.rows_a_step(batches.n_rows)),
        _progress(n_passes * steps_a_pass, verbose) as bar,
    ):
        for _ in range(n_passes):
            order = permutation(state.seed, state.n_passes, len(X))
            order = order[: steps_a_pass * batches.size].reshape(steps_a_pass, batches.size)
            state.n_passes += 1
            most = batches.n_steps(X.shape[1])
            for first, n_steps in _portions(steps_a_pass, state.step, schedule.window, most):
                rows = batches.rows(order[first : first + n_steps].ravel(), state.step)
                mini_batches = torch.from_numpy(X[rows].astype(np.float32)).to(device)
                rates = schedule.rates(
                    state.n_passes - 1,
                    state.n_planned,
                    range(first, first + n_steps),
                    steps_a_pass,
                )
                sums = steps.run(mini_batches, state.step, bar.update, rates)
                if not (np.isfinite(sums[0]) and _is_finite(module)):
                    return _diverged(state, schedule, n_steps)
                state.step += n_steps
                state.window_steps += n_steps
                state.window_sum = sums + (0.0 if state.window_sum is None else state.window_sum)
                if state.step % schedule.window == 0:
                    stopped = _close_window(state, module, objective, schedule, bar)
                    if stopped:
                        break
            if stopped:
                break
    state.current = theta0_from_module(module)
    state.moments = _moments(module, optimizer)
    return state


def _portions(
    steps_a_pass: int, step: int, window: int, most: int | None
) -> Iterator[tuple[int, int]]:
    """First step and number of steps of portions of a pass, up to the end of each window.

    Windows may span passes; `step` is how many steps there were before this one.
    """
    first = 0
    while first < steps_a_pass:
        n_steps = min(window - (step + first) % window, steps_a_pass - first)
        n_steps = min(n_steps, n_steps if most is None else most)
        yield first, n_steps
        first += n_steps


def _close_window(
    state: PretrainingState, module: MLP, objective: Objective, schedule: Schedule, bar: Any
) -> bool:
    """Record the window that ended, keep the parameters if it is the best; whether to stop."""
    assert state.window_sum is not None
    means = (state.window_sum / state.window_steps).tolist()
    state.window_sum, state.window_steps = None, 0
    record = dict(zip(objective.term_names, means, strict=True))
    loss = record["loss"]
    state.history.append({"step": state.step, **record})
    bar.set_postfix({name: f"{value:.4f}" for name, value in record.items()})
    improvement = state.best_loss - loss
    if improvement > 0:
        state.best_loss, state.best = loss, theta0_from_module(module)
    if schedule.tol is None:
        return False
    state.stale_windows = 0 if improvement > schedule.tol else state.stale_windows + 1
    return state.stale_windows >= schedule.n_iter_no_change


def _is_finite(module: MLP) -> bool:
    # A gradient can be NaN where the loss is not; one look a window.
    return all(bool(parameter.isfinite().all()) for parameter in module.parameters())


def _diverged(state: PretrainingState, schedule: Schedule, n_steps: int) -> PretrainingState:
    """Fall back on the best window, or fail where there is none."""
    message = (
        f"The loss or the weights are not finite between steps {state.step} and "
        f"{state.step + n_steps}; pre-training stops there. Try a smaller "
        f"learning_rate_init than {schedule.learning_rate_init}, or standardise X."
    )
    if state.best is None:
        raise ValueError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=5)
    state.current, state.moments = state.best, {}
    state.window_sum, state.window_steps = None, 0
    return state


def _adam(module: MLP, schedule: Schedule, state: PretrainingState) -> torch.optim.Adam:
    """Adam over a module, with the moments the last pass left."""
    device = next(module.parameters()).device
    on_gpu = device.type == "cuda"
    rate: Any = schedule.learning_rate_init
    if on_gpu and schedule.learning_rate != "constant":
        # A recorded step reads from memory what may change.
        rate = torch.tensor(float(rate), dtype=torch.float32, device=device)
    # capturable: the count of steps is on the device too.
    optimizer = torch.optim.Adam(module.parameters(), lr=rate, fused=True, capturable=on_gpu)
    for name, parameter in module.named_parameters():
        if name in state.moments:
            first, second = (torch.tensor(m).to(parameter.device) for m in state.moments[name])
            optimizer.state[parameter] = {
                "step": torch.tensor(float(state.step), device=parameter.device),
                "exp_avg": first,
                "exp_avg_sq": second,
            }
    return optimizer


def _moments(module: MLP, optimizer: torch.optim.Adam) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    def array(moment: torch.Tensor) -> np.ndarray:
        return moment.detach().cpu().numpy().copy()

    return {
        name: (
            array(optimizer.state[parameter]["exp_avg"]),
            array(optimizer.state[parameter]["exp_avg_sq"]),
        )
        for name, parameter in module.named_parameters()
        if parameter in optimizer.state
    }


def _progress(n_steps: int, verbose: int) -> Any:
    return tqdm(total=n_steps, desc="pre-training", unit="step", disable=verbose <= 0)
