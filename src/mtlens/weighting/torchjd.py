"""TorchJD's aggregators, weightings and scalarizers by name, for one model at a time.

An *aggregator* turns the Jacobian ``J`` (one row of shared gradients a task) into one update direction; a *scalarizer*
turns the losses into one number. Both come from the ``gradient`` extra. What this file adds: names and settings as
one string, sensible values for settings TorchJD requires, private random streams, and a complete state.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mtlens.errors import InputError, missing_extra, unknown

_ABSTRACT = {"Aggregator", "WeightedAggregator", "GramianWeightedAggregator", "Weighting", "Scalarizer"}
_PREFIXES = ("torchjd.", "torchjd:")
_MODULE_FIELDS = frozenset(vars(nn.Module()))


@dataclass(frozen=True)
class Method:
    """A TorchJD class and where it lives: ``where`` is ``"aggregation"`` or ``"scalarization"``."""

    name: str
    where: str
    settings: Mapping[str, Any]


def torchjd_names() -> tuple[str, ...]:
    """Every name that `TorchJDWeighting` takes; a name of both packages is listed as ``scalarization.X`` too.

    >>> "UPGrad" in torchjd_names(), "scalarization.Mean" in torchjd_names()
    (True, True)
    """
    aggregation, scalarization = _packages()
    first = [name for name in aggregation.__all__ if name not in _ABSTRACT]
    second = [name for name in scalarization.__all__ if name not in _ABSTRACT]
    return (*first, *(f"scalarization.{name}" if name in first else name for name in second))


def parse_method(text: str) -> Method:
    """Read ``"UPGrad"``, ``"cagrad(c=0.4)"``, ``"scalarization.Mean"`` or ``"torchjd:UW"``.

    Case is ignored unless that is ambiguous; settings are Python literals (lists become tensors), never evaluated.

    >>> parse_method("cagrad(c=0.5)")
    Method(name='CAGrad', where='aggregation', settings={'c': 0.5})
    """
    name, settings = _split_settings(text)
    for prefix in _PREFIXES:
        if name.lower().startswith(prefix):
            name = name[len(prefix) :]
    known = {known_name.lower(): known_name for known_name in torchjd_names()}
    plain = name.lower().removeprefix("aggregation.")
    if plain not in known and plain.removeprefix("scalarization.") in known:
        plain = plain.removeprefix("scalarization.")  # "scalarization.uw": the longer name of a name that is unique
    if plain not in known:
        raise unknown("TorchJD method", name, known.values())
    found = known[plain]
    scalarizers = set(_packages()[1].__all__)
    aggregators = set(_packages()[0].__all__)
    is_scalarizer = found.startswith("scalarization.") or (found in scalarizers and found not in aggregators)
    where = "scalarization" if is_scalarizer else "aggregation"
    return Method(found.removeprefix("scalarization."), where, settings)


class TorchJDWeighting:
    """One training's TorchJD method: fills ``.grad`` from the tasks' losses, and can save all it remembers.

    With losses ``L_1 ... L_k``, shared parameters ``B`` and own parameters (heads, alignments) ``A_i``:

    * aggregator: ``B.grad = aggregator(J)`` with ``J_i = dL_i/dB``, ``A_i.grad = dL_i/dA_i``;
    * weighting (``UPGradWeighting`` ...): the same with ``B.grad = w(J J^T) J``;
    * scalarizer: every gradient is that of ``scalarizer(L_1 ... L_k)``, so it scales heads too.

    ``MoDoWeighting`` and ``SDMGradWeighting`` expect a Gramian from two *independent* batches; here both factors come
    from one batch, so their estimate is biased as a plain stochastic MGDA's is. Required settings get the values of
    ``default_settings``. Aggregators need every task's loss at every step (joint steps). The cost is one backward
    pass a task, and a sparse embedding gradient is made dense.

    Random methods (``PCGrad``, ``GradDrop``, ``Random`` ...) draw from a stream of this object seeded with ``seed``;
    the global generator is left as it was.

    Args:
        text: a name of `torchjd_names`, with settings in brackets if any.
        num_tasks: k.
        seed: seed of the private stream.
    """

    def __init__(self, text: str, num_tasks: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self.text = text
        self.num_tasks = num_tasks
        self.method = parse_method(text)
        self.module = _build(self.method, num_tasks, dtype)
        self.is_scalarizer = self.method.where == "scalarization"
        generator = torch.Generator().manual_seed(seed % 2**63)
        self._random_state: Tensor = generator.get_state()

    @property
    def needs_losses_after_step(self) -> bool:
        """Whether `after_step` wants the losses of the same batch again (FAMO)."""
        return hasattr(self.module, "update")

    def to(self, device: torch.device | str) -> TorchJDWeighting:
        """Move what is learned to a device."""
        self.module.to(device)
        return self

    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer must step along with the model (``UW``'s log-variances, ``IMTLL``'s scales)."""
        return [] if self.needs_losses_after_step else list(self.module.parameters())

    def backward(self, losses: Tensor, shared: Sequence[Tensor], own: Sequence[Tensor]) -> None:
        """Set ``.grad`` of every parameter from ``losses`` ``(k,)``; earlier gradients are replaced."""
        if losses.shape != (self.num_tasks,):
            raise InputError(
                f"{self.text} was built for {self.num_tasks} tasks, but the step has losses of shape "
                f"{tuple(losses.shape)}. It needs one loss of every task at every step: use steps='joint'."
            )

        if self.is_scalarizer:
            learned = [*shared, *own, *self.parameters()]
            with self._own_stream():
                total = self._call(losses)
            for parameter, gradient in zip(learned, _gradients(total, learned, keep_graph=False), strict=True):
                parameter.grad = gradient
        else:
            self._aggregate(losses, shared, own)

    def _aggregate(self, losses: Tensor, shared: Sequence[Tensor], own: Sequence[Tensor]) -> None:
        rows: list[Tensor] = []
        for parameter in own:
            parameter.grad = torch.zeros_like(parameter)
        for i, loss in enumerate(losses.unbind()):
            gradients = _gradients(loss, [*shared, *own], keep_graph=i + 1 < len(losses))
            rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients[: len(shared)]]))
            for parameter, gradient in zip(own, gradients[len(shared) :], strict=True):
                assert parameter.grad is not None
                parameter.grad += gradient
        with self._own_stream():
            direction = self._call(torch.stack(rows)).detach()  # (n,)
        sizes = [parameter.numel() for parameter in shared]
        for parameter, part in zip(shared, torch.split(direction, sizes), strict=True):
            parameter.grad = part.reshape(parameter.shape).clone()

    def _call(self, values: Tensor) -> Tensor:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*not DPP")  # NashMTL's own problem: slow, not wrong
                result: Tensor = self.module(values)
        except ValueError as error:
            raise InputError(f"{self.text} with {self.num_tasks} tasks: {error}") from error
        return result

    def after_step(self, losses: Callable[[], Tensor]) -> None:
        """Give methods that look back (FAMO) the losses of the same batch after the model's step."""
        if self.needs_losses_after_step:
            with torch.no_grad():
                values = losses()
            self.module.update(values)  # type: ignore[operator]

    def end_epoch(self) -> None:
        """Give methods that count epochs (DWA) the end of one."""
        step = getattr(self.module, "step", None)
        if callable(step):
            step()

    def state(self) -> dict[str, Any]:
        """All it remembers, also what TorchJD keeps out of ``state_dict``: a tree of tensors and plain values."""
        parts = {path: _module_state(part) for path, part in self.module.named_modules()}
        return {"method": self.text, "random": self._random_state, "modules": parts}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        if state["method"] != self.text:
            raise InputError(
                f"the saved weighting is {state['method']!r}, but this training uses {self.text!r}. "
                "Resume with the settings that were saved."
            )
        parts = dict(self.module.named_modules())
        if set(parts) != set(state["modules"]):
            raise InputError(
                f"the saved state of {self.text!r} has parts {sorted(state['modules'])}, not {sorted(parts)}."
            )
        for path, part in parts.items():
            _restore_module(part, state["modules"][path])
        self._random_state = state["random"]

    def _own_stream(self) -> _Stream:
        return _Stream(self)


class _Stream:
    """While open, the global CPU generator continues the weighting's own stream."""

    def __init__(self, owner: TorchJDWeighting) -> None:
        self.owner = owner

    def __enter__(self) -> None:
        self.outside = torch.get_rng_state()
        torch.set_rng_state(self.owner._random_state)

    def __exit__(self, *_: object) -> None:
        self.owner._random_state = torch.get_rng_state()
        torch.set_rng_state(self.outside)


def default_settings(name: str, num_tasks: int) -> dict[str, Any]:
    """Values for settings TorchJD requires: counts from the tasks, constants from the methods' papers.

    >>> default_settings("CAGrad", 3), default_settings("UPGrad", 3)
    ({'c': 0.4}, {})
    """
    base = name.removesuffix("Weighting")
    equal = torch.ones(num_tasks)
    table: dict[str, dict[str, Any]] = {
        "CAGrad": {"c": 0.4},
        "FairGrad": {"alpha": 1.0},
        "Constant": {"weights": equal},
        "COSMOS": {"lambda_": 1.0, "weights": equal / num_tasks},
        "PBI": {"theta": 5.0, "weights": equal / num_tasks},
        "STCH": {"mu": 0.1},
        "Krum": {"n_byzantine": max(0, min(1, num_tasks - 3))},
        "TrimmedMean": {"trim_number": 1 if num_tasks > 2 else 0},
        "NashMTL": {"n_tasks": num_tasks},
        "UW": {"shape": num_tasks},
        "IMTLL": {"shape": num_tasks},
        "FAMO": {"shape": num_tasks},
    }
    return table.get(base, {})


def _packages() -> tuple[Any, Any]:
    try:
        from torchjd import aggregation, scalarization
    except ImportError as error:
        raise missing_extra("a TorchJD weighting", "gradient") from error
    return aggregation, scalarization


def _build(method: Method, num_tasks: int, dtype: torch.dtype) -> nn.Module:
    aggregation, scalarization = _packages()
    package = scalarization if method.where == "scalarization" else aggregation
    given = {key: torch.tensor(v) if isinstance(v, list) else v for key, v in method.settings.items()}
    settings = {**default_settings(method.name, num_tasks), **given}
    settings = {key: v.to(dtype) if isinstance(v, Tensor) else v for key, v in settings.items()}
    if method.name == "CRMOGMWeighting":  # it smooths another weighting; UPGrad unless the method is built by hand
        settings["weighting"] = aggregation.UPGradWeighting()
    try:
        module = getattr(package, method.name)(**settings)
    except ImportError as error:
        raise missing_extra(f"TorchJD's {method.name} ({error})", "gradient") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"TorchJD's {method.name} does not take the settings {method.settings}: {error}") from error
    if isinstance(module, aggregation.Weighting):
        wants_jacobian = method.name == "ExcessMTLWeighting"
        wrap = aggregation.WeightedAggregator if wants_jacobian else aggregation.GramianWeightedAggregator
        module = wrap(module)
    built: nn.Module = module.to(dtype)
    return built


def _split_settings(text: str) -> tuple[str, dict[str, Any]]:
    """``"name(key=literal, ...)"`` to its two parts."""
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return name, {}
    try:
        call = ast.parse(f"_({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
            raise ValueError("only key=value settings are read")
        return name, {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise InputError(f"weighting {text!r} cannot be read ({error}). Write it as in 'CAGrad(c=0.4)'.") from error


def _gradients(value: Tensor, parameters: Sequence[Tensor], *, keep_graph: bool) -> list[Tensor]:
    """Dense gradients; zeros where the value does not depend on a parameter."""
    found = torch.autograd.grad(value, list(parameters), retain_graph=keep_graph, allow_unused=True)
    return [
        torch.zeros_like(parameter) if gradient is None else gradient.to_dense() if gradient.is_sparse else gradient
        for parameter, gradient in zip(parameters, found, strict=True)
    ]


def _module_state(module: nn.Module) -> dict[str, Any]:
    """Parameters, buffers (also empty ones) and every plain attribute of one module, without its children."""
    plain = {name: encoded for name, encoded in _encoded_items(vars(module)) if name not in _MODULE_FIELDS}
    buffers = {name: None if b is None else b.detach().clone() for name, b in module._buffers.items()}
    learned = {name: None if p is None else p.detach().clone() for name, p in module._parameters.items()}
    return {"plain": plain, "buffers": buffers, "parameters": learned}


def _restore_module(module: nn.Module, state: Mapping[str, Any]) -> None:
    for name, value in state["parameters"].items():
        if value is not None:
            with torch.no_grad():
                getattr(module, name).copy_(value)
    for name, value in state["buffers"].items():
        module._buffers[name] = value
    for name, value in state["plain"].items():
        object.__setattr__(module, name, _decoded(value, module))
    build_solver = getattr(module, "_init_optim_problem", None)
    if build_solver is not None and state["plain"]["step"] > 0:  # NashMTL builds its solver at step 0 only
        build_solver()


def _encoded_items(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        try:
            yield name, _encoded(value)
        except TypeError:
            continue  # functions, solvers and other settings that the constructor makes again


def _encoded(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, (np.ndarray, np.generic)):
        return {"numpy": torch.from_numpy(np.array(value))}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"dtype" if isinstance(value, torch.dtype) else "device": str(value).removeprefix("torch.")}
    if isinstance(value, torch.optim.Adam):
        return {"adam": value.state_dict()}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_encoded(item) for item in value]}
    raise TypeError(type(value).__name__)


def _decoded(value: Any, module: nn.Module) -> Any:
    if not isinstance(value, Mapping):
        return value
    (kind, content), *_ = value.items()
    if kind == "numpy":
        return content.numpy().copy()
    if kind == "dtype":
        return getattr(torch, content)
    if kind == "device":
        return torch.device(content)
    if kind == "adam":
        group = content["param_groups"][0]
        optimizer = torch.optim.Adam(module.parameters(), lr=group["lr"], weight_decay=group["weight_decay"])
        optimizer.load_state_dict(content)
        return optimizer
    items = [_decoded(item, module) for item in content]
    return items if kind == "list" else tuple(items)
