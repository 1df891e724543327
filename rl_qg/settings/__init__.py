"""Typed settings: every key is declared once, in the dataclass of its section, with its default and its comment.

Hydra composes these dataclasses with the files of `configs/` (`rl_qg.commands.compose`), and every part receives plain
typed values. The defaults are those of the research preset.
"""

from rl_qg.settings.evaluation import (
    BaselinesSettings,
    BenchSettings,
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
from rl_qg.settings.generation import AnswersSettings, AskModelSettings, AskSettings, AugmentSettings, GenerateSettings
from rl_qg.settings.readers import (
    QAEvaluateSettings,
    QASettings,
    ReaderTrials,
    TrainAnswersSettings,
    TrainKPQASettings,
    TrainSentencesSettings,
)
from rl_qg.settings.root import Settings, all_keys, describe
from rl_qg.settings.training import (
    CESettings,
    DataSettings,
    MiniatureSettings,
    ModelSettings,
    PeftSettings,
    QAModelSettings,
    SCSTSettings,
    SelfCriticalOptions,
    TrainingSettings,
    TrimSettings,
    WorldSettings,
)
from rl_qg.settings.web import (
    RateAnalyseSettings,
    RateDemoSettings,
    RateExportSettings,
    RateForgetSettings,
    RatePlanSettings,
    RateServeSettings,
    RateStatusSettings,
    ServeSettings,
)
