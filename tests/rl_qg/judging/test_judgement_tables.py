"""The tables of metrics judged by people's ratings."""

from itertools import product

from rl_qg.judging.tables import _of, _worse


def test_better_than_counts_differences_of_one_criterion_at_question_level() -> None:
    ranked = ("fluency", "question", "kendall")
    others = set(product(("fluency", "other"), ("question", "system"), ("kendall", "pearson"))) - {ranked}
    found = [(*ranked, "a", "b", 0.1, 0.01), (*ranked, "a", "c", -0.1, 0.01), (*ranked, "b", "c", -0.1, 0.2)]
    found += [(*other, "d", "a", 0.1, 0.01) for other in sorted(others)]
    names = ("criterion", "level", "coefficient", "metric", "against", "value", "p_holm")
    rows = [dict(zip(names, row, strict=True)) for row in found]
    assert _worse(_of(rows, criterion="fluency")) == {"a": 1, "b": 0, "c": 1}
