"""A warning, once, where numbers of 16 bits are slower than float32 on this processor.

A CPU without instructions for bfloat16 (AVX-512 BF16, AMX) or float16 multiplies such matrices several times more
slowly than float32 ones (`experiments/speed`). Which processors have them is not asked: both products are timed, once
on each machine, and the times kept, as for packed layers (`rewards.measured_products`). With ``RL_QG_PACKED=always``
or ``never`` nothing is timed, and nothing said.
"""

import logging

import torch
from torch import Tensor, nn

from rewards.measured_products import MARGIN, kept_times, measures, milliseconds

logger = logging.getLogger(__name__)

WIDTH, ROWS = 768, 512
"""Inputs and outputs of the layer that is timed, and its rows: those of BERT-base and a batch."""

HALF = (torch.bfloat16, torch.float16)
_warned: set[torch.dtype] = set()


def warn_if_slower(dtype: torch.dtype, device: torch.device, instead: str) -> None:
    """Log one warning for each type in a process, if products in it take longer than in float32 on this CPU.

    Args:
        dtype: what models are run in; types that have more than 16 bits are not timed.
        device: where; nothing is done for others than a CPU.
        instead: the setting that gives float32, for the message.

    Raises:
        MetricInputError: the environment variable `RL_QG_PACKED` has a value that does not exist.
    """
    if device.type != "cpu" or dtype not in HALF or dtype in _warned or not measures():
        return
    exact, rough = kept_times(f"{dtype}|{WIDTH}x{WIDTH}|{ROWS} rows|against float32", lambda: _times(dtype))
    if rough > MARGIN * exact:
        _warned.add(dtype)
        logger.warning(
            "%s is slower than float32 on this processor (%.1f times, %d rows by %d x %d): set %s to be faster",
            str(dtype).removeprefix("torch."),
            rough / exact,
            ROWS,
            WIDTH,
            WIDTH,
            instead,
        )


class _Cast(nn.Module):
    """A layer in another type, with the cast of its input."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer, self.dtype = layer.to(dtype), dtype

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x.to(self.dtype))
        return output


def _times(dtype: torch.dtype) -> tuple[float, float]:
    """Milliseconds of a layer in float32 and in `dtype`, one thread."""
    exact, rough = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    return milliseconds(exact, _Cast(rough, dtype), torch.randn(ROWS, WIDTH))
