"""Adam for stacks on a CUDA device in one kernel: every number is read and written once.

As separate operations a step of Adam passes some twenty times over tensors as large as the parameters, which is most
of what a stack of small models does. float32 only: the kernel's constants are single precision. Triton comes with
PyTorch's CUDA builds; without it, or where the kernel cannot be compiled, ``updates.PlainUpdate`` steps by itself.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from mtlens.errors import DataWarning

BLOCK = 1024
adam_kernel: Any = None

try:
    import triton
    import triton.language as tl
except ImportError:
    pass
else:

    @triton.jit  # type: ignore[untyped-decorator]
    def move(  # type: ignore[no-untyped-def]
        value, first, second, at, mask, grad, rate, root, shrink, coupled,
        KEEP1: tl.constexpr, KEEP2: tl.constexpr, EPS: tl.constexpr,
    ):  # fmt: skip
        """Adam on the entries ``at`` of values and moments; ``rate`` is divided by the first bias correction, ``root``
        is the root of the second. Decay shrinks the value (decoupled) or joins the gradient (coupled)."""
        p = tl.load(value + at, mask=mask, other=0.0) * shrink
        m = tl.load(first + at, mask=mask, other=0.0)
        v = tl.load(second + at, mask=mask, other=0.0)
        g = grad + coupled * p
        m = m + KEEP1 * (g - m)
        v = v + KEEP2 * (g * g - v)
        tl.store(value + at, p - rate * m / (tl.sqrt(v) / root + EPS), mask=mask)
        tl.store(first + at, m, mask=mask)
        tl.store(second + at, v, mask=mask)

    @triton.jit  # type: ignore[untyped-decorator]
    def adam_kernel(  # type: ignore[no-untyped-def]
        value, grad, first, second, rate, root, shrink, coupled, n,
        KEEP1: tl.constexpr, KEEP2: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0)
        step = tl.load(rate + row)
        if step != 0:  # 0: this segment does not move
            at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            inside = at < n
            place = row.to(tl.int64) * n + at
            g = tl.load(grad + place, mask=inside, other=0.0)
            move(
                value, first, second, place, inside, g, step, tl.load(root + row), tl.load(shrink + row),
                tl.load(coupled + row), KEEP1, KEEP2, EPS,
            )  # fmt: skip


class DeviceAdam:
    """Runs the kernel on the segments of a stack; ``works`` is False where there is none."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.works = device.type == "cuda" and dtype == torch.float32 and adam_kernel is not None

    def step(self, tensors: tuple[Tensor, ...], rows: tuple[Tensor, ...], constants: tuple[float, ...]) -> bool:
        """Update value, first and second of ``tensors`` in place; False when it could not.

        Args:
            tensors: value, gradient, first and second moment, contiguous, each ``(rows, n)``.
            rows: ``(rows,)`` each: learning rate over the first bias correction (0 for rows that rest), root of the
                second correction, factor of decoupled decay, factor of coupled decay.
            constants: ``1 - beta1``, ``1 - beta2``, ``eps``.
        """
        if not self.works:
            return False
        count, n = tensors[0].shape
        try:
            adam_kernel[(count, -(-n // BLOCK))](*tensors, *rows, n, *constants, BLOCK)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever the compiler raises: the plain operations do the same
            warnings.warn(f"the device's Adam kernel cannot run here; stepping without it: {error}", DataWarning)
            self.works = False
        return self.works
