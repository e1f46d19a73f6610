"""The pre-training loop: windows of steps, the best snapshot, an early stop.

Between passes everything lives in a :class:`PretrainingState`.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from .._compute import StepRandom, learned_is_finite, with_gradients
from .blueprint import Blueprint, Network
from .feeds import Feed
from .recording import steps_on
from .schedule import Schedule
from .state import PretrainingState
from .steps import Objective

__all__ = ["run_passes"]


def run_passes(
    state: PretrainingState,
    feed: Feed,
    blueprint: Blueprint,
    objective: Objective,
    schedule: Schedule,
    n_passes: int,
    device: str | torch.device,
    verbose: int = 0,
) -> PretrainingState:
    """Train for a number of passes over the rows, in place.

    Parameters
    ----------
    state : PretrainingState
        Where to start; updated and returned.
    feed : Feed
        The mini-batches of each pass.
    blueprint : Blueprint
        Makes the network.
    objective : Objective
        What to minimise.
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
    network = blueprint.network(state.current, device)
    optimizer = _adam(network, schedule, state)
    random = StepRandom(state.seed, device)
    steps = steps_on(torch.device(device), network, objective, optimizer, random)
    stopped = False
    with (
        with_gradients(),
        blueprint.threads(objective.rows_a_step(feed.n_rows), device),
        _progress(n_passes, feed.steps_a_pass, verbose) as bar,
    ):
        for _ in range(n_passes):
            state.n_passes += 1
            portions = feed.portions(state.n_passes - 1, state.step, schedule.window)
            for first, mini_batches in portions:
                n_steps = len(mini_batches)
                rates = schedule.rates(
                    state.n_passes - 1,
                    state.n_planned,
                    range(first, first + n_steps),
                    feed.steps_a_pass,
                )
                sums = steps.run(mini_batches.to(device), state.step, bar.update, rates)
                # A gradient can be NaN where the loss is not; one look a window.
                if not (np.isfinite(sums[0]) and learned_is_finite(network.parameters())):
                    return _diverged(state, schedule, n_steps)
                state.step += n_steps
                state.window_steps += n_steps
                state.window_sum = sums + (0.0 if state.window_sum is None else state.window_sum)
                if state.step % schedule.window == 0:
                    stopped = _close_window(state, blueprint, network, objective, schedule, bar)
                    if stopped:
                        break
            if stopped:
                break
    state.current = blueprint.theta0(network)
    state.moments = _moments(network, optimizer)
    return state


def _close_window(
    state: PretrainingState,
    blueprint: Blueprint,
    network: Network,
    objective: Objective,
    schedule: Schedule,
    bar: Any,
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
        state.best_loss, state.best = loss, blueprint.theta0(network)
    if schedule.tol is None:
        return False
    state.stale_windows = 0 if improvement > schedule.tol else state.stale_windows + 1
    return state.stale_windows >= schedule.n_iter_no_change


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
    state.current, state.moments, state.moments_since = state.best, {}, state.step
    state.window_sum, state.window_steps = None, 0
    return state


def _adam(network: Network, schedule: Schedule, state: PretrainingState) -> torch.optim.Adam:
    """Adam over a network, with the moments the last pass left."""
    device = next(network.parameters()).device
    on_gpu = device.type == "cuda"
    rate: Any = schedule.learning_rate_init
    if on_gpu and schedule.learning_rate != "constant":
        # A recorded step reads from memory what may change.
        rate = torch.tensor(float(rate), dtype=torch.float32, device=device)
    # capturable: the count of steps is on the device too.
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True, capturable=on_gpu)
    n_steps = float(state.step - state.moments_since)
    for name, parameter in network.named_parameters():
        if name in state.moments:
            # In the parameter's order in memory, by which the fused step goes through all of them.
            first, second = (
                torch.empty_like(parameter, requires_grad=False).copy_(torch.tensor(moment))
                for moment in state.moments[name]
            )
            optimizer.state[parameter] = {
                "step": torch.tensor(n_steps, dtype=torch.float32, device=parameter.device),
                "exp_avg": first,
                "exp_avg_sq": second,
            }
    return optimizer


def _moments(
    network: Network, optimizer: torch.optim.Adam
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    def array(moment: torch.Tensor) -> np.ndarray:
        return moment.detach().cpu().numpy().copy()

    return {
        name: (
            array(optimizer.state[parameter]["exp_avg"]),
            array(optimizer.state[parameter]["exp_avg_sq"]),
        )
        for name, parameter in network.named_parameters()
        if parameter in optimizer.state
    }


def _progress(n_passes: int, steps_a_pass: int | None, verbose: int) -> Any:
    n_steps = None if steps_a_pass is None else n_passes * steps_a_pass
    return tqdm(total=n_steps, desc="pre-training", unit="step", disable=verbose <= 0)
