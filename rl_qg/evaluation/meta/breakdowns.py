"""Agreement with people in parts of the data, and of criteria and metrics with each other.

Sources: KPQA (NAACL 2021), table 9 (by system) and table 6 (answers of several sentences); QG-Bench (EMNLP 2022),
figures 5 and 6 (criterion by criterion, metric by metric).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.confidence_intervals import Floats
from rl_qg.evaluation.meta.correlation import COEFFICIENTS, is_constant
from rl_qg.evaluation.meta.judgement_analysis import RatedQuestions, breakdown, why_undefined
from rl_qg.evaluation.meta.judgements import Judgement
from rl_qg.evaluation.meta.significance import coefficient_p
from rl_qg.runtime.bars import ProgressBar
from rl_qg.text.spans import sentence_texts

Rows = list[dict[str, Any]]
JUDGED, REFERENCES = "question", "references"
SENTENCES_OF = ("none", JUDGED, REFERENCES)
ONE, SEVERAL = "one sentence", "several sentences"


def breakdown_tables(rated: RatedQuestions, criteria: Sequence[str], sentences_of: str) -> dict[str, Rows]:
    """`by_system`, where there are two or more, and `by_subset`."""
    systems, member = rated.systems
    groups = {
        "by_system": {name: member[:, at] > 0 for at, name in enumerate(systems)} if len(systems) > 1 else {},
        "by_subset": subsets_of(rated.judgements, sentences_of),
    }
    tables: dict[str, Rows] = {}
    for table, masks in groups.items():
        column = table.removeprefix("by_")
        tables[table] = [
            {"criterion": criterion, **row}
            for criterion in (ProgressBar(criteria, desc=column, unit="criterion", leave=False) if masks else ())
            for row in breakdown(rated, rated.ratings(criterion), column, masks)
        ]
    return tables


def subsets_of(judgements: Sequence[Judgement], sentences_of: str = "none") -> Mapping[str, NDArray[np.bool_]]:
    """The questions (questions,) of every label in the file's field `subset`, and, where `sentences_of` names the
    judged text or its references, of those with one sentence and with several (in all references, for these).
    """
    names = dict.fromkeys(label for judgement in judgements for label in judgement.subsets)
    masks = {name: np.array([name in judgement.subsets for judgement in judgements]) for name in names}
    if sentences_of not in (JUDGED, REFERENCES):
        return masks
    texts = [
        (judgement.row.question,) if sentences_of == JUDGED else judgement.row.references or ()
        for judgement in judgements
    ]
    counts = np.array([min((len(sentence_texts(text)) for text in some), default=0) for some in texts])
    return {**masks, ONE: counts == 1, SEVERAL: counts > 1}


def pair_tables(rated: RatedQuestions, criteria: Sequence[str]) -> dict[str, Rows]:
    """`criterion_pairs` and `metric_pairs`: the coefficients of every two, on the questions that have both."""
    ratings = {name: rated.ratings(name) for name in criteria}
    return {
        "criterion_pairs": [*_pairs(ratings, "criterion")],
        "metric_pairs": [*_pairs(rated.scores, "metric")],
    }


def _pairs(columns: Mapping[str, Floats], kind: str) -> Iterator[dict[str, Any]]:
    from scipy.stats import kendalltau, pearsonr, spearmanr

    compute = dict(zip(COEFFICIENTS, (pearsonr, spearmanr, kendalltau), strict=True))
    for name, against in combinations(columns, 2):
        both = np.isfinite(columns[name]) & np.isfinite(columns[against])
        x, y = columns[name][both], columns[against][both]
        defined = len(x) > 1 and not is_constant(x) and not is_constant(y)
        for coefficient in COEFFICIENTS:
            row = {kind: name, "against": against, "coefficient": coefficient, "n": len(x)}
            value = float(compute[coefficient](x, y).statistic) if defined else None
            if value is None:
                yield {**row, "value": None, "why": why_undefined(x, y).replace("ratings", f"values of {against}")}
            else:
                yield {**row, "value": value, "p": coefficient_p(coefficient, value, x, y)}
