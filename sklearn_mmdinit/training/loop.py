"""Pre-training: windows of steps, the best parameters kept; and what it is between two steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from .._base.environment import learned_is_finite, progress_bar, with_gradients
from .._base.random_streams import StepRandom
from .._base.validation import check_fits_in_memory, warn_user
from ..networks.info import Profile
from ..networks.passes import ROWS_OF_JACOBIANS, Network
from ..objective import loss_terms
from ..theta0 import Theta0
from .config import Config
from .cuda_graph import Recorded
from .minibatches import RowBatches

# What Adam keeps of a parameter beside its number of steps.
_MOMENTS = ("exp_avg", "exp_avg_sq")
# Steps of a training from which on recording them gains more than it takes.
_WORTH_RECORDING = 16


@dataclass
class State:
    """All that the next step needs to know of the ones before it: NumPy arrays and numbers."""

    seed: int
    current: Theta0
    # Adam's, by the parameters' names.
    moments: dict[str, list[np.ndarray]] = field(default_factory=dict)
    step: int = 0
    # The step before which Adam began: not the first where the weights had to go back.
    moments_since: int = 0
    # Passes begun, and steps of the last one, 0 where it has ended.
    n_passes: int = 0
    steps_in_pass: int = 0
    # Passes that the first one had in view, by which the learning rate falls.
    n_planned: int = 1
    # Sums of the terms over the steps of the window that has not ended, and how many.
    window_sum: np.ndarray | None = None
    window_steps: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    first_loss: float = math.inf  # of the first mini-batch, before its step
    best: Theta0 | None = None
    best_loss: float = math.inf

    def records(self, names: tuple[str, ...]) -> list[dict[str, float]]:
        """Means of the windows; of the first one alone, even if it has not ended."""
        if self.history or self.window_sum is None:
            return [dict(record) for record in self.history]
        means = (self.window_sum / self.window_steps).tolist()
        return [{"step": self.step, **dict(zip(names, means, strict=True))}]

    def result(self, config: Config) -> Theta0:
        """Parameters at the end of the best window, or the last ones; before a window ends, too."""
        return self.current if self.best is None or config.coherence else self.best


def check_rows(config: Config) -> None:
    """Raise a ValueError where predictions, or Jacobians of the logits, are beyond memory."""
    d = config.n_classes
    # Logits, probabilities and their gradient.
    check_fits_in_memory(3 * config.rows_in_flight * d, f"n_perturbations={config.n_perturbations}")
    if config.detachment_weight:
        n_rows = min(config.batch_size, ROWS_OF_JACOBIANS)
        left_out = "which a weight of 0 leaves out,"
        check_fits_in_memory(7 * n_rows * d**2, f"the detachment term of {d} classes, {left_out}")


@with_gradients()
def train(
    profile: Profile,
    batches: RowBatches,
    config: Config,
    state: State,
    n_passes: int,
    device: str | torch.device,
    verbose: Any = 0,
    keep: Callable[[State], None] | None = None,
) -> State:
    """End a number of passes, in place: with what was before one training, to the last bit.

    The first of them goes on where it was left. `keep` is handed a copy of the state where a window
    or pass ends.
    A ValueError if the loss or the weights are not finite before the first window ends; later, the
    best window is taken with a ConvergenceWarning.
    """
    network = profile.network(state.current, device)
    check_rows(config)
    device = torch.device(device)
    optimizer = _adam(network, config, state, device)
    steps_a_pass = batches.steps_a_pass
    n_steps = n_passes * steps_a_pass - state.steps_in_pass

    def step(batch: torch.Tensor, random: StepRandom) -> torch.Tensor:
        return take_step(network, optimizer, batch, random, config)

    random, recorded = StepRandom(state.seed, device), None
    if device.type == "cuda" and n_steps >= _WORTH_RECORDING:
        recorded = Recorded(step, lambda: network.repeats, state.seed, device)

    def settle() -> None:
        state.current, state.moments = profile.theta0(network), _moments(network, optimizer)
        if keep is not None:
            keep(replace(state, history=list(state.history)))

    bar = progress_bar(verbose, total=n_steps, desc="pre-training", unit="step")
    with network.team(config.rows_in_flight, device), bar:
        for _ in range(n_passes):
            begun = state.steps_in_pass
            state.n_passes += begun == 0
            pass_number, before = state.n_passes - 1, state.step - begun
            for first, mini_batches in batches.portions(pass_number, before, config.window, begun):
                sums = torch.zeros(len(config.term_names), dtype=torch.float32, device=device)
                for offset, batch in enumerate(mini_batches.to(device)):
                    done = (pass_number + (first + offset) / steps_a_pass) / state.n_planned
                    _set_rate(optimizer, config.rate(done))
                    if recorded is not None:
                        own = recorded(batch, state.step)
                    else:
                        own = step(batch, random.at(state.step))
                    if state.step == 0:
                        state.first_loss = float(own[0])
                    sums += own
                    state.step += 1
                    bar.update()
                terms = sums.cpu().numpy().astype(np.float64)
                # A gradient can be NaN where the loss is not; one look a portion.
                if not (np.isfinite(terms[0]) and learned_is_finite(network.module)):
                    return _fall_back(state, config, len(mini_batches))
                state.window_steps += len(mini_batches)
                state.window_sum = terms + (0.0 if state.window_sum is None else state.window_sum)
                state.steps_in_pass += len(mini_batches)
                if state.step % config.window == 0:
                    bar.set_postfix(_close_window(state, profile, network, config), refresh=False)
                    if keep is not None:
                        settle()
            state.steps_in_pass = 0
            settle()
    return state


def take_step(
    network: Network,
    optimizer: torch.optim.Optimizer,
    batch: torch.Tensor,
    random: StepRandom,
    config: Config,
) -> torch.Tensor:
    """One step of the optimiser on a mini-batch; the terms before it, (n_terms,)."""
    terms = loss_terms(network, batch, random, config)
    # Kept, not freed: on a CPU their memory would come back as pages to be zeroed.
    optimizer.zero_grad(set_to_none=False)
    torch.autograd.backward(terms[0])
    optimizer.step()
    return terms.detach()


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _close_window(
    state: State, profile: Profile, network: Network, config: Config
) -> dict[str, str]:
    """Record the window that ended, keep the parameters if it is the best; its means in words."""
    assert state.window_sum is not None
    means = (state.window_sum / state.window_steps).tolist()
    state.window_sum, state.window_steps = None, 0
    record = dict(zip(config.term_names, means, strict=True))
    state.history.append({"step": state.step, **record})
    if record["loss"] < state.best_loss:
        state.best_loss, state.best = record["loss"], profile.theta0(network)
    return {name: f"{value:.4f}" for name, value in record.items()}


def _fall_back(state: State, config: Config, n_steps: int) -> State:
    """Go back to the best window, or fail where there is none."""
    message = (
        f"The loss or the weights are not finite between steps {state.step - n_steps} and "
        f"{state.step}; pre-training stops there. Try a smaller "
        f"learning_rate_init than {config.learning_rate_init}, or standardise X."
    )
    if state.best is None:
        raise ValueError(message)
    warn_user(message, ConvergenceWarning)
    state.step, state.steps_in_pass = state.step - n_steps, 0
    state.current, state.moments, state.moments_since = state.best, {}, state.step
    state.window_sum, state.window_steps = None, 0
    return state


def _adam(network: Network, config: Config, state: State, device: torch.device) -> torch.optim.Adam:
    """Adam over a network, with the moments that the last pass left."""
    lr: Any = config.learning_rate_init
    on_gpu = device.type == "cuda"
    if on_gpu:  # where what is recorded reads it
        lr = torch.tensor(lr, dtype=torch.float32, device=device)
    parameters = network.module.parameters()
    optimizer = torch.optim.Adam(parameters, lr, fused=True, capturable=on_gpu)
    n_steps = float(state.step - state.moments_since)
    for name, parameter in network.module.named_parameters():
        if parameter.requires_grad:
            # From the first step on, also of what no mini-batch may have reached by then.
            parameter.grad = torch.zeros_like(parameter)
        if name in state.moments:
            # In the parameter's order in memory, by which the fused step goes through all of them.
            moments = (
                torch.empty_like(parameter, requires_grad=False).copy_(torch.tensor(moment))
                for moment in state.moments[name]
            )
            optimizer.state[parameter] = {
                "step": torch.tensor(n_steps, dtype=torch.float32, device=parameter.device),
                **dict(zip(_MOMENTS, moments, strict=True)),
            }
    return optimizer


def _moments(network: Network, optimizer: torch.optim.Adam) -> dict[str, list[np.ndarray]]:
    state, named = optimizer.state, network.module.named_parameters()
    return {
        name: [state[parameter][key].cpu().numpy().copy() for key in _MOMENTS]
        for name, parameter in named
        if parameter in state
    }
