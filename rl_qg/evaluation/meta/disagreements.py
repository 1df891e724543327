"""The questions on which a metric and people differ most: by the difference of their ranks.

Sources: KPQA (NAACL 2021), section 5.4 (the 100 cases with the largest difference of ranks, by type of question);
QRelScore (EMNLP 2022), appendix E (cases read one by one; the text does not say how they were found).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_qg.evaluation.meta.judgement_analysis import RatedQuestions
from rl_qg.evaluation.meta.judgements import AUTHORS
from rl_qg.evaluation.result_pages import NONE, Page, Table

Rows = list[dict[str, Any]]
SHOWN = 10  # cases of a table of the page
MOST_TABLES = 24
LONGEST_PASSAGE = 300  # characters of the page


def disagreements(rated: RatedQuestions, criteria: Sequence[str], most: int) -> tuple[Rows, Rows]:
    """For every criterion and metric the `most` questions with the largest difference of ranks, largest first; and how
    many of these cases are of each type of question, with the number of rated questions of that type.

    Ranks count from 1, the best; equal values share their mean rank. A positive `difference` says that the metric
    places the question higher than people do.
    """
    from scipy.stats import rankdata

    cases: Rows = []
    types: Rows = []
    for criterion in criteria if most else ():
        ratings = rated.ratings(criterion)
        for name, scores in rated.scores.items():
            rows = rated.rows(name, ratings)
            people, metric = rankdata(-ratings[rows]), rankdata(-scores[rows])
            order = np.argsort(-np.abs(people - metric), kind="stable")[:most]
            order = order[people[order] != metric[order]]
            key = {"criterion": criterion, "metric": name}
            for place, at in enumerate(order, 1):
                cases.append({**key, "place": place, **_ranks(people[at], metric[at]), **_case(rated, rows[at])})
                cases[-1] |= {"rating": float(ratings[rows[at]]), "score": float(scores[rows[at]])}
            every = Counter(rated.types[rows].tolist())
            found = Counter(rated.types[rows[order]].tolist())
            types += [
                {**key, "type": kind, "cases": found[kind], "of": len(order), "questions": count, "rated": len(rows)}
                for kind, count in every.most_common()
            ]
    return cases, types


def _ranks(people: float, metric: float) -> dict[str, float]:
    return {"rank_people": float(people), "rank_metric": float(metric), "difference": float(people - metric)}


def _case(rated: RatedQuestions, number: int) -> dict[str, Any]:
    judgement = rated.judgements[number]
    texts = {"question": judgement.row.question, "answer": judgement.row.answer, "context": judgement.row.context}
    about = {"type": str(rated.types[number]), "system": ", ".join(judgement.systems), "where": judgement.row.where}
    return about | texts


def disagreement_page(title: str, cases: Rows, types: Rows, signatures: Mapping[str, str]) -> Page:
    """The first cases of every criterion and metric, of the metrics computed here before those of the data's authors,
    with the types of all cases.
    """
    parts = list(dict.fromkeys((row["criterion"], row["metric"]) for row in cases))
    parts.sort(key=lambda part: part[1].startswith(AUTHORS))
    tables = [_types_table(types)] if types else []
    for criterion, metric in parts[:MOST_TABLES]:
        chosen = [row for row in cases if (row["criterion"], row["metric"]) == (criterion, metric)]
        tables.append(Table(f"{criterion}, {metric}", [*map(_line, chosen[:SHOWN])], _note(chosen)))
    facts = [
        "Ranks: 1 is the best; people rank by their mean rating, the metric by its score, over all rated questions."
    ]
    if len(parts) > MOST_TABLES:
        facts.append(f"{MOST_TABLES} of {len(parts)} tables are here; tables/disagreements.csv has all.")
    return Page("correlate", f"{title}: where metrics and people differ", facts, tables, signatures)


def _note(rows: Rows) -> str:
    return f"The {min(SHOWN, len(rows))} of {len(rows)} cases with the largest difference of ranks."


def _line(row: Mapping[str, Any]) -> dict[str, str]:
    passage = row["context"] or NONE
    if len(passage) > LONGEST_PASSAGE:
        passage = passage[: LONGEST_PASSAGE - 1].rstrip() + "…"
    return {
        "question": row["question"],
        "answer": row["answer"] or NONE,
        "passage": passage,
        "type": row["type"],
        "system": row["system"] or NONE,
        "rating": f"{row['rating']:.3g}",
        "score": f"{row['score']:.4g}",
        "rank by people": f"{row['rank_people']:,g}",
        "rank by metric": f"{row['rank_metric']:,g}",
    }


def _types_table(types: Rows) -> Table:
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in types:
        line = lines.setdefault(
            (row["criterion"], row["metric"]), {"criterion": row["criterion"], "metric": row["metric"]}
        )
        line["cases"] = str(row["of"])
        line[row["type"]] = f"{row['cases']} of {row['questions']:,}"
    return Table(
        "Types of the cases", [*lines.values()], "Cases of each type of question, of all rated questions of it."
    )
