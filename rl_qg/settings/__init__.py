"""Typed settings: every key is declared once, in the dataclass of its section, with its default and its comment.

Hydra composes these dataclasses with the files of `configs/` (`rl_qg.commands.compose`), and every part receives plain
typed values. The defaults are those of the research preset.
"""

from rl_qg.settings.asking import AskModelSettings, AskSettings
from rl_qg.settings.augmentation import AugmentSettings
from rl_qg.settings.bench import BenchSettings
from rl_qg.settings.data import DataSettings, WorldSettings
from rl_qg.settings.evaluation import (
    BaselinesSettings,
    ClassifierSettings,
    CorrelateSettings,
    EvaluateSettings,
    EvaluationSettings,
    ExplainSettings,
    RobustnessSettings,
    ScoreColumns,
    ScoreSettings,
    SeparateModelSettings,
    SeparateSettings,
)
from rl_qg.settings.generation import AnswersSettings, GenerateSettings
from rl_qg.settings.models import MiniatureSettings, ModelSettings, PeftSettings, QAModelSettings, TrimSettings
from rl_qg.settings.qa_evaluation import QAEvaluateSettings, ReaderTrials
from rl_qg.settings.rating import (
    RateAnalyseSettings,
    RateDemoSettings,
    RateExportSettings,
    RateForgetSettings,
    RatePlanSettings,
    RateServeSettings,
    RateStatusSettings,
)
from rl_qg.settings.readers import QASettings, TrainAnswersSettings, TrainKPQASettings, TrainSentencesSettings
from rl_qg.settings.reference import all_keys, describe
from rl_qg.settings.root import Settings
from rl_qg.settings.serving import ServeSettings
from rl_qg.settings.training import CESettings, SCSTSettings, SelfCriticalOptions, TrainingSettings

__all__ = [
    "AnswersSettings",
    "AskModelSettings",
    "AskSettings",
    "AugmentSettings",
    "BaselinesSettings",
    "BenchSettings",
    "CESettings",
    "ClassifierSettings",
    "CorrelateSettings",
    "DataSettings",
    "EvaluateSettings",
    "EvaluationSettings",
    "ExplainSettings",
    "GenerateSettings",
    "MiniatureSettings",
    "ModelSettings",
    "PeftSettings",
    "QAEvaluateSettings",
    "QAModelSettings",
    "QASettings",
    "RateAnalyseSettings",
    "RateDemoSettings",
    "RateExportSettings",
    "RateForgetSettings",
    "RatePlanSettings",
    "RateServeSettings",
    "RateStatusSettings",
    "ReaderTrials",
    "RobustnessSettings",
    "SCSTSettings",
    "ScoreColumns",
    "ScoreSettings",
    "SelfCriticalOptions",
    "SeparateModelSettings",
    "SeparateSettings",
    "ServeSettings",
    "Settings",
    "TrainAnswersSettings",
    "TrainKPQASettings",
    "TrainSentencesSettings",
    "TrainingSettings",
    "TrimSettings",
    "WorldSettings",
    "all_keys",
    "describe",
]
