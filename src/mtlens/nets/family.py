"""What a family of trunks says, once: how it is built, drawn from a seed, and stepped as a stack."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from mtlens.errors import InputError, unknown

Capacity: TypeAlias = "int | tuple[int, ...]"
InputKind: TypeAlias = Literal["numbers", "tokens"]
Align: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class RowSpec:
    """What one encoded row of input looks like.

    ``shape`` is ``(d,)`` for numbers, ``(length,)`` for token ids, or the shape of an image. For tokens ``vocabulary``
    counts the ids (0 is padding) and ``vectors`` are their ``(vocabulary, width)`` starting embeddings, if any.
    """

    shape: tuple[int, ...]
    vocabulary: int = 0
    vectors: np.ndarray[Any, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def width(self) -> int:
        """Number of inputs once a row is laid flat."""
        return int(np.prod(self.shape))


class StackedTrunk(ABC):
    """``S`` trunks of one family computed together; member ``s`` owns row ``s`` of ``parameters (S, num_parameters)``.

    Smaller members are padded: ``pack`` puts zeros where they have no unit, and zero units receive zero gradient, so
    they stay zero. One object serves one stack (it keeps buffers and the activations of its last ``forward``).
    """

    num_parameters: int
    out_features: int

    @abstractmethod
    def pack(self, values: Mapping[str, Tensor], capacity: Capacity) -> Tensor:
        """One member's named parameters -> its padded row ``(num_parameters,)``."""

    @abstractmethod
    def unpack(self, row: Tensor, capacity: Capacity) -> dict[str, Tensor]:
        """The inverse of :meth:`pack`."""

    @abstractmethod
    def forward(self, parameters: Tensor, X: Tensor, align: Align | None = None) -> Tensor:
        """Features ``(S, R, out_features)`` of ``X (S, R, d)``; keeps what ``backward`` needs.

        Columns of token ids beyond the longest text of ``X`` may be missing. ``align`` maps the vectors that alignments
        stand before, ``(S, n, w) -> (S, n, w)``, ``n`` a multiple of ``R`` and row after row: ``X`` itself, or the word
        vectors of token ids. The result may be a buffer that the next call overwrites.
        """

    @abstractmethod
    def backward(
        self, parameters: Tensor, grad_features: Tensor, grad: Tensor | None, *, grad_input: bool
    ) -> Tensor | None:
        """Write the gradient of the parameters into ``grad (S, num_parameters)`` (None: not wanted); return that of
        what ``align`` gave (of ``X`` where there was none) if asked.

        ``grad_features`` may be overwritten.
        """

    def numbers_a_row(self, width: int) -> int:
        """About how many numbers ``forward`` keeps for a row of ``width`` inputs: it bounds the rows of one pass."""
        return width + self.out_features


class Family(ABC):
    """A kind of trunk: how it is built, how it starts, and (if it can) how many of them step together."""

    name: str
    inputs: ClassVar[InputKind] = "numbers"
    pads: ClassVar[bool] = True  # whether a stack may hold members of several capacities
    align_at: ClassVar[str | None] = None  # part of the trunk an alignment stands before, unless a training names one

    @abstractmethod
    def trunk(self, rows: RowSpec, capacity: Capacity) -> nn.Module:
        """The trunk as a module with an ``out_features`` attribute; its starting values do not matter."""

    def draw(self, rows: RowSpec, capacity: Capacity, seed: int) -> dict[str, Tensor]:
        """Starting values by ``state_dict`` name, in float64 where they are floats, from ``seed`` alone.

        By default whatever the module draws itself, under a torch generator seeded with ``seed``.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.trunk(rows, capacity)
        return {name: value.detach().clone() for name, value in module.state_dict().items()}

    def out_features(self, rows: RowSpec, capacity: Capacity) -> int:
        """Width of the trunk's output; by default the module's own word."""
        with torch.random.fork_rng(devices=[]):  # only its shapes are read: leave the user's stream alone
            return int(self.trunk(rows, capacity).out_features)  # type: ignore[arg-type]

    def stacked(self, rows: RowSpec, capacities: Sequence[Capacity]) -> StackedTrunk | None:
        """A stack of this family, or None when its members are faster (or only possible) one by one."""
        del rows, capacities
        return None

    def stacks_on(self, device_type: str) -> bool:
        """Whether stacks of this family are worth making on a kind of device ("cpu", "cuda")."""
        del device_type
        return True

    @property
    def learns_tables(self) -> bool:
        """Whether it trains a table of embeddings, which has optimizers of its own."""
        return False

    def averages(self, rows: RowSpec) -> bool:
        """Whether token rows may be replaced by their mean vectors, once, before anything is trained."""
        del rows
        return False

    def check(self, capacity: Capacity) -> None:
        """Refuse a capacity the family cannot have."""
        sizes = capacity if isinstance(capacity, tuple) else (capacity,)
        if not sizes or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in sizes):
            raise InputError(
                f"trunk {self.name!r}: capacity={capacity!r}. It takes a whole number of at least 1, "
                "or (for 'mlp') a tuple of them, one a layer."
            )

    def settings(self) -> dict[str, Any]:
        """What (with the capacity) determines the family, as JSON; it enters ``Training.identity``."""
        return {"name": self.name}

    def restored(self, settings: Mapping[str, Any]) -> Family:
        """A family of this kind with saved ``settings``."""
        del settings
        return self


FAMILIES: dict[str, Family] = {}


def register(family: Family) -> Family:
    """Make a family available by name."""
    FAMILIES[family.name] = family
    return family


class ModuleFamily(Family):
    """A user's own trunk: any factory that takes a capacity and returns an ``nn.Module``.

    ``out_features`` is found by running two rows of zeros through the module, which must agree if it names one itself.
    """

    name = "module"
    pads = False

    def __init__(self, factory: Callable[[Any], nn.Module]) -> None:
        self.factory = factory
        self._reasons: dict[Any, str | None] = {}

    def check(self, capacity: Capacity) -> None:
        """Refuse a factory that cannot be called with one capacity."""
        try:
            inspect.signature(self.factory).bind(capacity)
        except TypeError as error:
            raise InputError(
                f"trunk: the factory {_name(self.factory)} cannot be called with the capacity alone ({error}). "
                "Give one that can, for example lambda capacity: MyTrunk(inputs, capacity)."
            ) from error
        except ValueError:  # a built-in that does not tell its signature
            pass
        super().check(capacity)

    def trunk(self, rows: RowSpec, capacity: Capacity) -> nn.Module:
        module = self.factory(capacity)
        if not isinstance(module, nn.Module):
            raise InputError(
                f"trunk: the factory {self._label()} returned a {type(module).__name__} for capacity={capacity}. "
                "It needs to return a torch.nn.Module."
            )
        width, told = self._found_width(module, rows), getattr(module, "out_features", None)
        if not isinstance(told, int):
            module.out_features = width  # type: ignore[assignment]
        elif told != width:
            raise InputError(
                f"trunk: the module made by {_name(self.factory)} has out_features={told}, but it returned {width} "
                "features a row. Set out_features to what forward returns, or leave it out."
            )
        return module

    def _found_width(self, module: nn.Module, rows: RowSpec) -> int:
        """Features a row, found by running two rows of zeros, which also starts lazy layers."""
        try:
            out = _outputs_of_zeros(module, rows)
        except Exception as error:  # whatever a user's forward does
            why = (str(error).strip() or repr(error)).splitlines()[0]
            raise InputError(
                f"trunk: the module made by {_name(self.factory)} cannot read the tasks' rows, of shape {rows.shape} "
                f"({type(error).__name__}: {why}). Make it for (rows, {', '.join(map(str, rows.shape))})."
            ) from error
        if not isinstance(out, Tensor) or out.ndim != 2:
            found = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise InputError(f"trunk: the module returned {found} for 2 rows. It needs to return (rows, features).")
        return int(out.shape[1])

    def stacked(self, rows: RowSpec, capacities: Sequence[Capacity]) -> StackedTrunk | None:
        if len(set(capacities)) > 1 or self.why_solo(rows, capacities[0]) is not None:
            return None
        from mtlens.nets.stacked_module import StackedModule

        return StackedModule(self.trunk(rows, capacities[0]), rows)

    def why_solo(self, rows: RowSpec, capacity: Capacity) -> str | None:
        """Why trunks of this factory train one by one; None when ``torch.func`` stacks them. Tried once a capacity."""
        key = (rows.shape, capacity)
        if key not in self._reasons:
            from mtlens.nets.stacked_module import why_not_stacked

            self._reasons[key] = why_not_stacked(lambda: self.trunk(rows, capacity), rows)
        return self._reasons[key]

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "factory": self._label()}

    def _label(self) -> str:
        """Its full name and a hash of what it does: two lambdas of one name, or a class edited since, are others."""
        told = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(_told(self.factory, set())))  # addresses differ between runs
        return f"{_name(self.factory)}#{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def _name(factory: Any) -> str:
    if isinstance(factory, functools.partial):
        return _name(factory.func)
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}.{named.__qualname__}"


def _told(part: Any, seen: set[int]) -> Any:
    """What a factory does, as plain values: its code and that of the classes and functions of its module it names."""
    if isinstance(part, functools.partial):
        return _told(part.func, seen), *(_told(value, seen) for value in (*part.args, *sorted(part.keywords.items())))
    part = getattr(part, "__func__", None) or getattr(part, "fget", None) or part  # static methods, properties
    if not isinstance(part, (type, FunctionType)):
        return repr(part)
    if id(part) in seen or part.__module__.partition(".")[0] in ("torch", "builtins"):
        return _name(part)
    seen.add(id(part))
    if isinstance(part, type):
        bases = [_told(base, seen) for base in part.__bases__]
        own = sorted(
            (name, value) for name, value in vars(part).items() if not name.startswith("__") or callable(value)
        )
        return bases, [(name, _told(value, seen)) for name, value in own]
    cells = [_told(cell.cell_contents, seen) for cell in part.__closure__ or ()]
    named = [part.__globals__.get(name) for name in _names(part.__code__)]
    near = [_told(one, seen) for one in named if getattr(one, "__module__", None) == part.__module__]
    return *_instructions(part.__code__), repr(part.__defaults__), repr(part.__kwdefaults__), cells, near


def _instructions(code: CodeType) -> tuple[Any, ...]:
    """What a function does: its bytecode, names and constants (functions inside it likewise)."""
    constants = [_instructions(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code, code.co_names, constants


def _names(code: CodeType) -> list[str]:
    inner = [name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c)]
    return [*code.co_names, *inner]


def _outputs_of_zeros(module: nn.Module, rows: RowSpec) -> Any:
    parameter = next(module.parameters(), torch.empty(0))
    dtype = torch.get_default_dtype() if isinstance(parameter, UninitializedParameter) else parameter.dtype
    was_training = module.training
    module.eval()
    with torch.no_grad():
        out = module(torch.zeros(2, *rows.shape, dtype=dtype))
    module.train(was_training)
    return out


@functools.lru_cache(maxsize=64)  # whether a trunk can be stacked is tried once for all its trainings
def _module_family(factory: Callable[[Any], nn.Module]) -> ModuleFamily:
    return ModuleFamily(factory)


def family_of(trunk: str | Family | Callable[[Any], nn.Module]) -> Family:
    """The family meant by a name, a Family, or a factory of modules."""
    if isinstance(trunk, str):
        import mtlens.nets  # noqa: F401  (fills the registry)

        if trunk not in FAMILIES:
            raise unknown("trunk", trunk, FAMILIES, "mtlens.nets")
        return FAMILIES[trunk]
    if isinstance(trunk, Family):
        return trunk
    if isinstance(trunk, nn.Module):
        raise InputError(
            "trunk: found an nn.Module. Every training starts from its own seed, so give a factory taking a capacity, "
            "for example lambda capacity: MyTrunk(capacity)."
        )
    if callable(trunk):
        try:
            return _module_family(trunk)
        except TypeError:  # a factory that cannot be hashed
            return ModuleFamily(trunk)
    raise InputError(f"trunk={trunk!r}: give a name ({', '.join(FAMILIES)}) or a factory taking a capacity.")
