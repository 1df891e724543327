"""rl-qg: train question generators by reinforcement, with evaluation metrics as rewards."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_qg.asking.pairs import AnswerSpan as AnswerSpan, QAPair as QAPair, QAPairs as QAPairs
    from rl_qg.asking.question_generator import QuestionGenerator as QuestionGenerator
    from rl_qg.training.trainer import (
        SelfCriticalConfig as SelfCriticalConfig,
        SelfCriticalTrainer as SelfCriticalTrainer,
    )

__version__ = "0.1.0"
_FOUND_IN = {
    "AnswerSpan": "rl_qg.asking.pairs",
    "QAPair": "rl_qg.asking.pairs",
    "QAPairs": "rl_qg.asking.pairs",
    "QuestionGenerator": "rl_qg.asking.question_generator",
    "SelfCriticalConfig": "rl_qg.training.trainer",
    "SelfCriticalTrainer": "rl_qg.training.trainer",
}
__all__ = [*_FOUND_IN, "__version__"]


def __getattr__(name: str) -> Any:
    """Load what is asked for at its first use: `rl-qg --help` does not wait for torch."""
    if name in _FOUND_IN:
        return getattr(import_module(_FOUND_IN[name]), name)
    raise AttributeError(f"module 'rl_qg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
