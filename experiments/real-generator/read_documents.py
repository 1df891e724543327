"""Ask about the ten documents of the tests, and write the pairs as a table for a reader, who fills the last column.

    python experiments/real-generator/read_documents.py --model packaged:english --output reading.md

`rl-qg ask number=10` runs on each document; its pairs, in their order, are in the table.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCUMENTS = Path(__file__).resolve().parents[2] / "tests" / "documents"
COLUMNS = ("document", "number", "question", "answer", "score", "usable")


def pairs_of(document: Path, model: str, number: int) -> list[dict[str, Any]]:
    """The pairs that the command writes about a document."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "pairs.jsonl")
        command = ["-m", "rl_qg", "ask", str(document), f"output={output}", f"model.path={model}", f"number={number}"]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr or done.stdout)
        return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--number", type=int, default=10, help="pairs of each document")
    given = parser.parse_args()
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for document in sorted(DOCUMENTS.iterdir()):
        for place, pair in enumerate(pairs_of(document, given.model, given.number), 1):
            score = f"{pair['score']:.3f}"
            rows.append((document.name, str(place), cell(pair["question"]), cell(pair["answer"]), score, ""))
    given.output.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows), encoding="utf-8")
    print(f"{given.output}: {len(rows) - 2} questions")


if __name__ == "__main__":
    main()
