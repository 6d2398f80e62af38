"""A stack's step as a CUDA graph: captured once for a composition of the stack and a length of its texts."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from mtlens.errors import DataWarning

if TYPE_CHECKING:
    from mtlens.engine.stack import Stack

WARM_UPS = 2  # steps before the capture, so that libraries have their workspaces


class GraphedTick:
    """``Stack.tick`` without its launches: the device repeats the recorded kernels on the same memory.

    Warm-up steps are real steps, so all that they move is put back. A step that cannot be captured (an operation of a
    user's trunk that waits for the device, say) is run as it is from then on; that is said once.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._graphs: dict[int | None, torch.cuda.CUDAGraph | None] = {}
        self._memory = torch.cuda.graph_pool_handle()  # one for all: they run in turn and leave nothing to each other

    def __call__(self) -> None:
        words = self._stack.words
        if words not in self._graphs:
            self._graphs[words] = self._capture()
        graph = self._graphs[words]
        if graph is None:
            self._stack.tick()
        else:
            graph.replay()

    def _capture(self) -> torch.cuda.CUDAGraph | None:
        moved = self._stack.moving_tensors()
        saved = [tensor.clone() for tensor in moved]
        device = self._stack.store.device
        try:
            here, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            side.wait_stream(here)
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    self._stack.tick()
            here.wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
                self._stack.tick()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            warnings.warn(f"this step cannot be captured in a CUDA graph and runs op by op: {error}", DataWarning)
            graph = None
        for tensor, value in zip(moved, saved, strict=True):
            tensor.copy_(value)
        return graph
