"""The training of theta0: steps of Adam, and when they end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import losses
from .._base.environment import array_of, learned_is_finite, progress_bar
from .._base.random_streams import StepRandom
from .._base.threads import team, worthwhile_threads
from ..networks.builder import NetworkBuilder
from ..networks.info import ModuleInfo
from ..networks.passes import explained_single_row, hidden_activations, isolated
from ..objective import paper_terms
from .config import COHERENCE_WEIGHT, Config
from .cuda_graph import RecordedStep
from .minibatches import RowBatches
from .schedule import rate_factor
from .state import Moments, State
from .streams import StreamBatches

# What Adam keeps for each parameter, besides the number of steps.
_MOMENTS = ("exp_avg", "exp_avg_sq")
# With at least this many steps, recording them as a CUDA graph saves more time than it takes.
_WORTH_RECORDING = 16
# Weight of the penalty that keeps the variance of the last hidden activations near 1.
SCALE_WEIGHT = 0.4


def loss_terms(
    network: nn.Module, info: ModuleInfo, X: torch.Tensor, random: StepRandom, config: Config
) -> torch.Tensor:
    """The loss and its terms (n_terms,), as ``config.term_names`` names them.

    X (B, ...) is a mini-batch; with coherence the first inputs of positive pairs, then the second.
    """
    terms: list[Any] = []
    if config.has_paper_terms:
        # With coherence only the pass below, of all rows, updates running statistics.
        with nullcontext() if config.coherence is None else isolated(network):
            terms = [*paper_terms(config, network, info, X[: config.batch_size], random)]
    if config.coherence is not None:
        H = hidden_activations(network, X, info.last_layer)
        L_coh = losses.coherence(H, config.coherence.separation)
        weighted = COHERENCE_WEIGHT * L_coh + SCALE_WEIGHT * scale_penalty(H)
        total = weighted + terms[0] if terms else weighted
        terms = [total, *terms[1:], L_coh]
    return torch.stack([term for term in terms if term is not None])


def scale_penalty(H: torch.Tensor) -> torch.Tensor:
    """Zero if the mean variance v of activations H (n, n_units) is 1, else above: v - 1 - log v.

    L_coh does not depend on the scale of activations, but training with labels does.
    """
    # As H.var(dim=0).mean(), which takes four times as long on a CPU; 1e-12 for equal inputs.
    centred = H.float() - H.float().mean(dim=0)
    variance = centred.square().sum() / (centred.numel() - centred.shape[1]) + 1e-12
    return variance - 1.0 - variance.log()


def training_threads(
    network: nn.Module, info: ModuleInfo, config: Config, device: torch.device
) -> AbstractContextManager[None]:
    """A context manager that divides the work of a step among threads."""
    if device.type != "cpu":  # threads of a team would not use the caller's stream
        return nullcontext()
    largest = max(parameter.numel() for parameter in network.parameters())
    n_multiplications = config.rows_in_flight * largest
    if config.has_paper_terms and info.sampler == "gram":
        return team(n_multiplications)
    return worthwhile_threads(n_multiplications)


@explained_single_row()
def train(
    network: nn.Module,
    builder: NetworkBuilder,
    batches: RowBatches | StreamBatches,
    config: Config,
    state: State,
    verbose: Any = 0,
    keep: Callable[[State], None] | None = None,
    callback: Callable[[dict[str, float], nn.Module], Any] | None = None,
    autocast: torch.dtype | None = None,
) -> None:
    """Train a network at ``state.current`` until its schedule is over.

    Changes the network and the state in place. On a CPU, training that stops and goes on equals
    uninterrupted training, bit for bit. `keep` gets a copy of the state at the end of each window
    and of the training, `callback` each record and a copy of the network. `autocast` is the
    precision in which the network computes; None: its own. If the loss or the weights are not
    finite, training ends at the best window, with a ConvergenceWarning, or else a ValueError.
    """
    info, device = builder.info, next(network.parameters()).device
    # Recorded steps read the rate on the device, where Adam takes it in float32.
    dtype = torch.float64 if device.type == "cpu" else torch.float32
    rate = torch.zeros((), dtype=dtype, device=device)
    optimizer = _adam(network, rate, state)
    step = partial(_step, network, info, optimizer, config, autocast)
    state.steps_an_epoch = state.steps_an_epoch or batches.steps_an_epoch
    schedule = config.schedule
    n_steps = schedule.n_steps(state)
    if state.is_stopped or schedule.is_over(state, n_steps):
        return
    is_worth_it = device.type == "cuda" and n_steps - state.step >= _WORTH_RECORDING
    recorded = is_worth_it and not info.stateful and RecordedStep(step, state.seed, device)
    random = StepRandom(state.seed, device)
    sums = torch.zeros(len(config.term_names), dtype=torch.float32, device=device)
    n_summed, in_window = 0, np.zeros(1 + len(sums))
    desc = "pre-training" + f", continued at step {state.step:,}" * (state.step > 0)
    bar = progress_bar(verbose, desc=desc, unit="step", initial=state.step)
    with training_threads(network, info, config, device), bar:
        place = state.n_epochs, state.steps_in_epoch, state.step
        for batch, ends_epoch in batches.from_(*place, device):
            factor = rate_factor(state.step, n_steps) if config.coherence else 1.0
            rate.fill_(factor * config.learning_rate_init)
            terms = recorded(batch, state.step) if recorded else step(batch, random.at(state.step))
            if state.step == 0:
                state.first_loss = float(terms[0])
            sums, n_summed = sums.add_(terms), n_summed + 1
            state.end_step(ends_epoch)
            bar.update()
            if ends_epoch:
                n_steps = schedule.n_steps(state)
            is_over, ends_window = schedule.is_over(state, n_steps), state.step % config.window == 0
            is_short = 0 < max(state.steps_an_epoch, state.steps_in_epoch) < config.window
            ends_record = is_over or (ends_epoch if is_short else ends_window)
            if not (ends_record or ends_window):
                continue  # reading the sums would wait for the GPU
            totals = np.array([n_summed, *sums.tolist()])
            # A gradient can be NaN although the loss is finite. One check is enough for all steps
            # since the check before, because a NaN stays.
            if not (np.isfinite(totals[1]) and learned_is_finite(network)):
                state.fall_back(n_summed, config.learning_rate_init)
                return
            sums, n_summed, in_window = sums.zero_(), 0, in_window + totals
            state.add(totals, config.term_names if ends_record else ())
            if ends_record:
                bar.set_postfix(state.history[-1], refresh=False)
            if ends_record and callback is not None:
                copy = builder.module_at(builder.theta0_of(network)).eval()
                with torch.enable_grad():  # undoes a set_grad_enabled of the callback
                    answer = callback(dict(state.history[-1]), copy)
                is_bool = getattr(answer, "dtype", type(answer)) in (bool, torch.bool)
                state.is_stopped = is_bool and bool(answer)
            if not (ends_window or is_over or state.is_stopped):
                continue
            theta0, moments = builder.theta0_of(network), _moments(network, optimizer)
            state.end_window(in_window, config.window, theta0, moments)
            in_window, n_steps = np.zeros_like(in_window), schedule.n_steps(state)
            bar.total = n_steps
            if keep is not None:
                keep(state.copied())
            if state.is_stopped or is_over:
                return


def mean_loss(
    network: nn.Module, info: ModuleInfo, batches: RowBatches, config: Config, first_step: int
) -> float:
    """The mean loss of a network over the rows in their order; steps begin at `first_step`."""
    n_steps, total = batches.steps_an_epoch, 0.0
    order = np.arange(n_steps * batches.size).reshape(n_steps, batches.size)
    device = next(network.parameters()).device
    random = StepRandom(batches.seed, device)
    with torch.no_grad(), training_threads(network, info, config, device):
        for step, batch in enumerate(batches.mini_batches(order, first_step, device), first_step):
            total += float(loss_terms(network, info, batch, random.at(step), config)[0])
    return total / n_steps


def _step(
    network: nn.Module,
    info: ModuleInfo,
    optimizer: torch.optim.Optimizer,
    config: Config,
    autocast: torch.dtype | None,
    batch: torch.Tensor,
    random: StepRandom,
) -> torch.Tensor:
    """Take a step; returns the loss and its terms (n_terms,) before it."""
    # The cache of autocast is off. In a caller's block it would not be emptied, and all steps would
    # use the weights of the first.
    kind, is_on = batch.device.type, autocast is not None
    with torch.autocast(kind, autocast, enabled=is_on, cache_enabled=False):
        terms = loss_terms(network, info, batch, random, config)
    if not terms.requires_grad:
        raise ValueError(
            "coherence needs a trainable layer before the last one: add or unfreeze one, because "
            "the last layer's inputs depend on no parameter that requires a gradient"
        )
    # Gradients keep their memory: the operating system would have to zero new memory.
    optimizer.zero_grad(set_to_none=False)
    terms[0].backward()
    optimizer.step()
    return terms.detach()


def _adam(network: nn.Module, rate: torch.Tensor, state: State) -> torch.optim.Adam:
    """Adam over a network, with the moments that the state kept; it reads the rate in each step."""
    optimizer = torch.optim.Adam(network.parameters(), rate, fused=True, capturable=rate.is_cuda)
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            # Adam skips parameters whose gradient is None, and would begin their moments later.
            parameter.grad = torch.zeros_like(parameter)
        if name in state.moments:
            like: Any = {"device": parameter.device, "dtype": parameter.dtype}
            moments = (torch.tensor(m, **like) for m in state.moments[name])
            optimizer.state[parameter] = {
                "step": torch.tensor(state.step, dtype=torch.float32, device=parameter.device),
                **dict(zip(_MOMENTS, moments, strict=True)),
            }
    return optimizer


def _moments(network: nn.Module, optimizer: torch.optim.Adam) -> Moments:
    return {
        name: [array_of(optimizer.state[parameter][key]).copy() for key in _MOMENTS]
        for name, parameter in network.named_parameters()
        if parameter in optimizer.state
    }
