"""The training of theta0: epochs of steps, and the state between two steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from .._base.environment import array_of, learned_is_finite, progress_bar, with_gradients
from .._base.random_streams import StepRandom
from .._base.threads import team
from .._base.validation import warn_user
from ..losses import coherence
from ..networks.builder import NetworkBuilder
from ..networks.gram import gram_layers
from ..networks.info import ModuleInfo
from ..networks.passes import explained_single_row, hidden_activations
from ..objective import paper_terms
from ..theta0 import Theta0
from . import Config
from .cuda_graph import RecordedStep
from .minibatches import RowBatches
from .schedule import CONSTANT_SHARE, SPAN, planned_steps, rate_factor
from .streams import StreamBatches

# What Adam keeps for each parameter, besides the number of steps.
_MOMENTS = ("exp_avg", "exp_avg_sq")
# With at least this many steps, recording them as a CUDA graph saves more time than it takes.
_WORTH_RECORDING = 16


@dataclass
class State:
    """All that the next step needs to know of the steps before it: NumPy arrays and numbers."""

    seed: int
    current: Theta0
    # Adam's moments, by the parameters' names.
    moments: dict[str, list[np.ndarray]] = field(default_factory=dict)
    step: int = 0
    # The step at which Adam began; above 0 if training went back to the best window.
    moments_since: int = 0
    n_epochs: int = 0  # epochs begun
    steps_in_epoch: int = 0  # steps of the last of them; 0 if it has ended
    # max_iter at the first epoch: the number of epochs of the learning rate schedule.
    n_planned: int = 1
    # Mean of L_coh over each span of steps; sum and number of steps of the unfinished span.
    levels: list[float] = field(default_factory=list)
    level_sum: float = 0.0
    level_steps: int = 0
    # Sums of the terms over the steps of the unfinished window, and the number of these steps.
    window_sum: np.ndarray | None = None
    window_steps: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    first_loss: float = math.inf  # of the first mini-batch, before its step
    best: Theta0 | None = None
    best_loss: float = math.inf

    def copied(self) -> State:
        """A copy that does not change when training goes on with the original."""
        return replace(self, history=list(self.history), levels=list(self.levels))

    def records(self, names: tuple[str, ...]) -> list[dict[str, float]]:
        """A record of each window that has ended; if none has, one record of all steps so far."""
        if self.history or self.window_sum is None:
            return [dict(record) for record in self.history]
        means = (self.window_sum / self.window_steps).tolist()
        return [{"step": self.step, **dict(zip(names, means, strict=True))}]

    @property
    def n_ended(self) -> int:
        """Epochs that have ended."""
        return self.n_epochs - (self.steps_in_epoch > 0)

    def n_steps_planned(self, config: Config, steps_an_epoch: float) -> float:
        """Number of steps until the learning rate has its last value, as far as is known now."""
        if config.length_by_level:
            return planned_steps(self.levels, config.fewest_steps, config.most_steps)
        return self.n_planned * steps_an_epoch

    def levels_before_the_fall(self, config: Config, steps_an_epoch: int) -> list[float]:
        """Means of L_coh over the spans before the rate fell; empty if it has not fallen yet."""
        n_constant = int(CONSTANT_SHARE * self.n_steps_planned(config, steps_an_epoch))
        return self.levels[: n_constant // SPAN] if self.step >= n_constant else []

    def result(self, config: Config) -> Theta0:
        """Theta0 after the best window; with coherence, or if no window has ended, the last one."""
        return self.current if self.best is None or config.coherence else self.best


def loss_terms(
    network: nn.Module, info: ModuleInfo, X: torch.Tensor, random: StepRandom, config: Config
) -> torch.Tensor:
    """The loss and its terms (n_terms,), as ``config.term_names`` names them.

    X (B, ...) is a mini-batch; with coherence the first inputs of positive pairs, then the second.
    """
    if config.coherence is None:
        return _stacked(paper_terms(config, network, info, X, random))
    H = hidden_activations(network, X, info.last_layer)
    L_coh = coherence(H, info.n_biases, config.coherence.separation)
    weighted = config.coherence.weight * L_coh
    if not config.has_paper_terms:
        return torch.stack((weighted, L_coh))
    # Coherence uses all rows. The paper's terms use the first `batch_size` of the first inputs.
    rows = X[: min(config.batch_size, len(X) // 2)]
    total, *terms = _stacked(paper_terms(config, network, info, rows, random))
    return torch.stack((total + weighted, *terms, L_coh))


def _stacked(terms: Any) -> torch.Tensor:
    return torch.stack([term for term in terms if term is not None])


def training_threads(
    network: nn.Module, info: ModuleInfo, n_rows: int, device: torch.device
) -> AbstractContextManager[None]:
    """A context manager that divides the work among threads; `n_rows` pass the network at once."""
    if info.sampler != "gram":
        return nullcontext()  # PyTorch's own threads, within each operation
    linears = [layer for layer in gram_layers(network) if isinstance(layer, nn.Linear)]
    return team(n_rows * max(layer.weight.numel() for layer in linears), device)


@with_gradients()
@explained_single_row()
def train(
    builder: NetworkBuilder,
    batches: RowBatches | StreamBatches,
    config: Config,
    state: State,
    last_epoch: int | None,
    device: torch.device,
    verbose: Any = 0,
    keep: Callable[[State], None] | None = None,
) -> State:
    """Train until epoch `last_epoch` ends, or if it is None, until L_coh has stopped falling.

    Changes the state in place. Training that stops and goes on equals uninterrupted training, bit
    for bit, even if it stops inside an epoch. `keep` gets a copy of the state at the end of each
    window and epoch. If the loss or the weights are not finite, training stops and goes
    back to the best window, with a ConvergenceWarning; before the first window has ended, a
    ValueError is raised.
    """
    network, info = builder.network_at(state.current, device), builder.info
    optimizer = _adam(network, config, state, device)

    def n_steps_left() -> float:  # as far as is known now
        if last_epoch is None:
            return state.n_steps_planned(config, batches.steps_an_epoch) - state.step
        n_epochs = last_epoch - state.n_ended  # if it is 0, the product may be 0 * inf
        return n_epochs * batches.steps_an_epoch - state.steps_in_epoch if n_epochs else 0

    def step(batch: torch.Tensor, random: StepRandom) -> torch.Tensor:
        terms = loss_terms(network, info, batch, random, config)
        # Gradients keep their memory: the operating system would have to zero new memory.
        optimizer.zero_grad(set_to_none=False)
        terms[0].backward()
        optimizer.step()
        return terms.detach()

    random, recorded = StepRandom(state.seed, device), None
    on_gpu, worth_recording = device.type == "cuda", n_steps_left() >= _WORTH_RECORDING
    if on_gpu and worth_recording and not info.stateful:
        recorded = RecordedStep(step, state.seed, device)

    def save_state() -> None:
        state.current, state.moments = builder.theta0_of(network), _moments(network, optimizer)
        if keep is not None:
            keep(state.copied())

    # Python reads the sums when a window, a span of L_coh, an epoch or the training ends.
    periods = (config.window, SPAN) if config.coherence else (config.window,)
    mini_batches = _mini_batches(batches, state, device)
    threads = training_threads(network, info, config.rows_in_flight, device)
    bar = progress_bar(verbose, total=n_steps_left(), desc="pre-training", unit="step")
    with threads, bar:
        while n_steps_left() > 0 if last_epoch is None else state.n_ended < last_epoch:
            before = state.step
            n_planned = state.n_steps_planned(config, batches.steps_an_epoch)
            sums = torch.zeros(len(config.term_names), dtype=torch.float32, device=device)
            for batch, ends_epoch in mini_batches:
                _set_rate(optimizer, config, state.step / n_planned)
                if recorded is not None:
                    terms = recorded(batch, state.step)
                else:
                    terms = step(batch, random.at(state.step))
                if state.step == 0:
                    state.first_loss = float(terms[0])
                sums += terms
                state.step += 1
                state.steps_in_epoch = 0 if ends_epoch else state.steps_in_epoch + 1
                bar.update()
                ends_training = last_epoch is None and state.step >= n_planned
                if ends_epoch or ends_training or not all(state.step % n for n in periods):
                    break
            n = state.step - before
            totals = sums.cpu().numpy().astype(np.float64)
            # A gradient can be NaN although the loss is finite. One check for n steps is enough.
            if not (np.isfinite(totals[0]) and learned_is_finite(network)):
                return _fall_back(state, config, n)
            state.window_steps += n
            state.window_sum = totals + (0.0 if state.window_sum is None else state.window_sum)
            if config.coherence:
                _add_level(state, totals[-1], n)
            if n_steps_left() < math.inf:
                bar.total = bar.n + n_steps_left()
            ends_window = state.step % config.window == 0
            if ends_window:
                bar.set_postfix(_close_window(state, builder, network, config), refresh=False)
            if state.steps_in_epoch == 0 or (ends_window and keep is not None):
                save_state()
        if state.steps_in_epoch:
            save_state()
    return state


def _mini_batches(
    batches: RowBatches | StreamBatches, state: State, device: torch.device
) -> Iterator[tuple[torch.Tensor, bool]]:
    """Endless mini-batches from the state on, each with whether it is the last of its epoch."""
    while True:
        if state.steps_in_epoch == 0:
            state.n_epochs += 1
        yield from batches.epoch(state.n_epochs - 1, state.steps_in_epoch, state.step, device)


@torch.inference_mode(False)  # Jacobians need gradients
def mean_loss(
    builder: NetworkBuilder,
    batches: RowBatches,
    config: Config,
    theta0: Theta0,
    first_step: int,
    device: torch.device,
) -> float:
    """The mean loss at theta0 over the rows in their order; step numbers begin at `first_step`."""
    network, info = builder.network_at(theta0, device), builder.info
    n_steps, total = batches.steps_an_epoch, 0.0
    order = np.arange(n_steps * batches.size).reshape(n_steps, batches.size)
    random = StepRandom(batches.seed, device)
    with torch.no_grad(), training_threads(network, info, config.rows_in_flight, device):
        for step, batch in enumerate(batches.mini_batches(order, first_step, device), first_step):
            total += float(loss_terms(network, info, batch, random.at(step), config)[0])
    return total / n_steps


def _add_level(state: State, total: float, n: int) -> None:
    """Add L_coh of n steps, and end the span if it is due."""
    state.level_sum, state.level_steps = state.level_sum + float(total), state.level_steps + n
    if state.step % SPAN == 0:
        state.levels.append(state.level_sum / state.level_steps)
        state.level_sum, state.level_steps = 0.0, 0


def _set_rate(optimizer: torch.optim.Optimizer, config: Config, done: float) -> None:
    """Set the learning rate after a share of the planned steps."""
    rate = config.learning_rate_init * (rate_factor(done) if config.coherence else 1.0)
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _close_window(
    state: State, builder: NetworkBuilder, network: nn.Module, config: Config
) -> dict[str, str]:
    """Record the window that ended, keep the parameters if it is the best, and return its means."""
    assert state.window_sum is not None
    means = (state.window_sum / state.window_steps).tolist()
    state.window_sum, state.window_steps = None, 0
    record = dict(zip(config.term_names, means, strict=True))
    state.history.append({"step": state.step, **record})
    if record["loss"] < state.best_loss:
        state.best_loss, state.best = record["loss"], builder.theta0_of(network)
    return {name: f"{value:.4f}" for name, value in record.items()}


def _fall_back(state: State, config: Config, n_steps: int) -> State:
    """Go back to the best window, or raise an error if there is none."""
    message = (
        f"the loss or the weights are not finite between steps {state.step - n_steps} and "
        f"{state.step}, and pre-training stops there; try a smaller learning_rate_init than "
        f"{config.learning_rate_init}, or standardize X"
    )
    if state.best is None:
        raise ValueError(message)
    warn_user(message, ConvergenceWarning)
    state.step, state.steps_in_epoch = state.step - n_steps, 0
    state.current, state.moments, state.moments_since = state.best, {}, state.step
    state.window_sum, state.window_steps = None, 0
    return state


def _adam(
    network: nn.Module, config: Config, state: State, device: torch.device
) -> torch.optim.Adam:
    """Adam over a network, with the moments that the state kept."""
    lr: Any = config.learning_rate_init
    on_gpu = device.type == "cuda"
    if on_gpu:  # a recorded step reads the rate from the GPU
        lr = torch.tensor(lr, dtype=torch.float32, device=device)
    optimizer = torch.optim.Adam(network.parameters(), lr, fused=True, capturable=on_gpu)
    n_steps = float(state.step - state.moments_since)
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            # Adam skips parameters whose gradient is None, and would begin their moments later.
            parameter.grad = torch.zeros_like(parameter)
        if name in state.moments:
            dtype = parameter.dtype
            moments = (torch.tensor(m, device=device, dtype=dtype) for m in state.moments[name])
            optimizer.state[parameter] = {
                "step": torch.tensor(n_steps, dtype=torch.float32, device=parameter.device),
                **dict(zip(_MOMENTS, moments, strict=True)),
            }
    return optimizer


def _moments(network: nn.Module, optimizer: torch.optim.Adam) -> dict[str, list[np.ndarray]]:
    return {
        name: [array_of(optimizer.state[parameter][key]).copy() for key in _MOMENTS]
        for name, parameter in network.named_parameters()
        if parameter in optimizer.state
    }
