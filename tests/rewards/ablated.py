"""QRelScore with other formulas than the two variants, as experiments/qrelscore-ablation has it."""

from importlib import import_module

ablated = import_module("experiments.qrelscore-ablation.ablated")
AblatedQRelScore = ablated.AblatedQRelScore
