"""rl-qg: train question generators by reinforcement, with evaluation metrics as rewards."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_qg.training.trainer import SelfCriticalConfig, SelfCriticalTrainer

__version__ = "0.1.0"
__all__ = ["SelfCriticalConfig", "SelfCriticalTrainer", "__version__"]


def __getattr__(name: str) -> Any:
    """Load the trainer at its first use: `rl-qg --help` does not wait for torch."""
    if name in ("SelfCriticalConfig", "SelfCriticalTrainer"):
        from rl_qg.training import trainer

        return getattr(trainer, name)
    raise AttributeError(f"module 'rl_qg' has no attribute {name!r}")
