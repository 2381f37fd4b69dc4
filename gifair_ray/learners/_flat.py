"""A torch module as one flat vector.

Its tensors are views into the vector, so that loading a model is one copy. The vector holds, in
this order and under the module's own names:

1. the parameters that are trained, each once, under whichever name comes first if it is tied;
2. parameters with `requires_grad = False`;
3. persistent floating-point buffers, such as the running statistics of BatchNorm.

2 and 3 travel with the model and come back as the client left them: no gradient, pull or
multiplier touches them. All other buffers (integers, booleans, `persistent=False`) are local: they
have the values that the factory gave them when a job starts, and are never sent. State that a
module keeps elsewhere is not known here and must not outlive a forward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gifair_ray.errors import BadInput
from gifair_ray.learners._device import CPU
from gifair_ray.protocol import Layout
from gifair_ray.replies import Params


class Flat:
    """A module with its tensors laid out in the flat vector `y`; `trained` are its parameters."""

    def __init__(self, module: nn.Module, dtype: str, called: str) -> None:
        tensors = [*module.parameters(), *module.buffers()]
        if any(nn.parameter.is_lazy(t) for t in tensors):
            raise BadInput(f"{called} has lazy layers: give their sizes, or run them once")
        if any(t.is_complex() for t in tensors):
            raise BadInput(f"{called} has complex tensors; parameters must be real")
        module.to("cpu", getattr(torch, dtype))
        parameters = list(module.named_parameters())
        trained = {name: p for name, p in parameters if p.requires_grad}
        if not trained:
            raise BadInput(f"{called} has no parameters to train")
        carried: dict[str, Tensor] = {name: p for name, p in parameters if not p.requires_grad}
        self._bindings: list[tuple[dict[str, Tensor | None], str, Tensor | None]] = []
        self._locals: list[tuple[Tensor, Tensor]] = []
        buffers: dict[int, Tensor] = {}
        for prefix, owner in module.named_modules():
            for name, buffer in owner._buffers.items():
                self._bindings.append((owner._buffers, name, buffer))
                if buffer is None or id(buffer) in buffers:
                    continue
                if buffer.is_floating_point() and name not in owner._non_persistent_buffers_set:
                    buffers[id(buffer)] = buffer
                    carried[f"{prefix}.{name}" if prefix else name] = buffer
                else:
                    self._locals.append((buffer, buffer.clone()))
        self._buffers = buffers
        named = trained | carried
        self.layout = Layout(
            tuple(named),
            tuple(tuple(t.shape) for t in named.values()),
            sum(p.numel() for p in trained.values()),
            dtype,
        )
        self._named, self.trained = list(named.values()), list(trained.values())
        self._lay_out(CPU)
        self._host = self.y

    def _lay_out(self, device: torch.device) -> None:
        """The module's tensors become views into one vector on this device."""
        dtype = getattr(torch, self.layout.dtype)
        self.y = torch.empty(self.layout.size, dtype=dtype, device=device)
        at = 0
        for tensor in self._named:
            here = slice(at, at + tensor.numel())
            self.y[here] = tensor.detach().reshape(-1)
            # Through .data the tensor stays the same object, whoever else in the module holds it.
            tensor.data = self.y[here].view(tensor.shape)
            at = here.stop
        self.views = tuple(tensor.data for tensor in self.trained)

    def move(self, device: torch.device) -> None:
        """To a device on which the module computes; models come and go by way of the CPU."""
        self._lay_out(device)
        for buffer, _ in self._locals:
            buffer.data = buffer.data.to(device)

    def load(self, vector: Params) -> None:
        """The module becomes this model, with the factory's values in its local buffers."""
        # By way of numpy: torch warns of arrays that are read-only, as those of a store are.
        self._host.numpy()[:] = vector
        if self.y is not self._host:
            self.y.copy_(self._host)
        for buffers, name, original in self._bindings:
            buffers[name] = original
        for buffer, start in self._locals:
            buffer.copy_(start)

    def collect(self) -> Params:
        """The module's model now (a view, good until the next load)."""
        for buffers, name, original in self._bindings:
            now = buffers[name]
            # Some layers replace a buffer by a new tensor instead of changing it in place.
            if original is not None and now is not original and id(original) in self._buffers:
                if now is None or now.shape != original.shape:
                    raise BadInput(f"the buffer {name!r} changed its shape in training")
                original.copy_(now.detach())
        if self.y is not self._host:
            self._host.copy_(self.y)
        return self._host.numpy()
