"""A warning, once, where numbers of 16 bits are slower than float32 on this processor.

A CPU without instructions for bfloat16 (AVX-512 BF16, AMX) or float16 multiplies such matrices several times more
slowly than float32 ones, and those of a gradient up to forty times (`experiments/speed`). Which processors have them
is not asked: both products are timed, once on each machine, and the times kept, as for packed layers
(`rewards.measured_products`). With ``RL_QG_PACKED=always`` or ``never`` nothing is timed, and nothing said.
"""

import logging

import torch
from torch import Tensor, nn

from rewards.measured_products import MARGIN, kept_times, measures, milliseconds

logger = logging.getLogger(__name__)

WIDTH, ROWS = 768, 512
"""Inputs and outputs of the layer that is timed, and its rows: those of BERT-base and a batch."""

HALF = (torch.bfloat16, torch.float16)
_warned: set[tuple[torch.dtype, str]] = set()


def warn_if_slower(dtype: torch.dtype, device: torch.device, instead: str, *, trained: bool = False) -> None:
    """Log one warning for each type and setting in a process, if a layer takes longer than in float32 on this CPU.

    Args:
        dtype: what models are run in; types that have more than 16 bits are not timed.
        device: where; nothing is done for others than a CPU.
        instead: the setting that gives float32, for the message.
        trained: time the two products of the layer's gradients too.

    Raises:
        MetricInputError: the environment variable `RL_QG_PACKED` has a value that does not exist.
    """
    if device.type != "cpu" or dtype not in HALF or (dtype, instead) in _warned or not measures():
        return
    what = f"{dtype}|{WIDTH}x{WIDTH}|{ROWS} rows|{'trained, ' if trained else ''}against float32"
    exact, rough = kept_times(what, lambda: _times(dtype, trained))
    if rough > MARGIN * exact:
        _warned.add((dtype, instead))
        logger.warning(
            "%s takes %.1f times as long as float32 on this processor (%s layer of %d x %d): set %s to be faster",
            str(dtype).removeprefix("torch."),
            rough / exact,
            "trained" if trained else "frozen",
            WIDTH,
            WIDTH,
            instead,
        )


class _Products(nn.Module):
    """The products of a layer in one type, with the cast of its input; as in training, those of both gradients too."""

    def __init__(self, dtype: torch.dtype, trained: bool) -> None:
        super().__init__()
        self.layer, self.trained = nn.Linear(WIDTH, WIDTH, dtype=dtype), trained

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.layer.weight.dtype)
        output: Tensor = self.layer(x)
        if self.trained:  # the output stands for its gradient
            _ = output @ self.layer.weight, output.t() @ x
        return output


def _times(dtype: torch.dtype, trained: bool) -> tuple[float, float]:
    """Milliseconds of a layer in float32 and in `dtype`, one thread."""
    return milliseconds(_Products(torch.float32, trained), _Products(dtype, trained), torch.randn(ROWS, WIDTH))
