"""What two faults of the released code of the multi-question paper do to the rows of the type level.

    python experiments/sets/type_rows.py train.json

The paper trains on (sentence, type) with the questions of that type (section 4.1). Its code

- in `one2many` keeps the last question of each (sentence, type) alone, because it looks for the type in the wrong
  dictionary, and
- in `one2one` makes a row of every question of a sentence with every type that the sentence has.

Both are applied here to the units of this project, so that nothing but the faults differs.
"""

import sys
from collections import Counter, defaultdict

from rl_qg.data.reading import read_examples
from rl_qg.generation.sets import set_rows
from rl_qg.generation.tasks import TaskRow
from rl_qg.text.question_types import NINE_TYPES


def counts(rows: list[TaskRow]) -> dict[str, object]:
    """Numbers of rows and questions with and without the faults; `rows` are those of `type`, `one2many`."""
    sentences: dict[tuple[str, int], list[TaskRow]] = defaultdict(list)
    lost: Counter[str] = Counter()
    for row in rows:
        assert row.unit is not None and row.unit.type is not None
        sentences[row.context, row.unit.start].append(row)
        lost[row.unit.type] += len(row.sources) - 1
    questions = sum(len(row.sources) for row in rows)
    crossed = sum(len(of) * sum(len(row.sources) for row in of) for of in sentences.values())
    repeated = sum(of[0].context.count(_sentence(of[0])) > 1 for of in sentences.values())
    return {
        "questions": questions,
        "sentences with questions": len(sentences),
        "of several types": sum(len(of) > 1 for of in sentences.values()),
        "whose text stands more than once in its passage (the released code marks each)": repeated,
        "one2one: rows": questions,
        "one2one: rows of the released code": crossed,
        "one2one: of these with the wrong type": f"{crossed - questions} ({1 - questions / crossed:.1%})",
        "one2many: rows, with and without the fault": len(rows),
        "one2many: questions that the released code loses": f"{questions - len(rows)} "
        f"({1 - len(rows) / questions:.1%})",
        "one2many: rows that lose a question": sum(len(row.sources) > 1 for row in rows),
        "lost by type": ", ".join(f"{kind} {lost[kind]}" for kind in NINE_TYPES),
    }


def _sentence(row: TaskRow) -> str:
    assert row.unit is not None
    return row.context[row.unit.start : row.unit.end]


def main() -> None:
    for path in sys.argv[1:]:
        examples = read_examples(path, role="train").examples
        print(path)
        for name, value in counts(set_rows("type", "one2many", examples)).items():
            print(f"  {name}: {value}")


if __name__ == "__main__":
    main()
