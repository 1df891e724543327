"""The questions of a published split in natural case: parallel text files of Du et al. or Zhou et al., which name no
SQuAD ids, are aligned with SQuAD's own JSON.

    python experiments/splits/align.py src-test.txt tgt-test.txt --squad train-v1.1.json --output test.json

Line N of the first file is a sentence, line N of the second its question, both tokenised and often lower-cased. A
question belongs to the SQuAD question of the same letters and digits; of several the one whose passage has the
sentence, and each only once. What is found is written as SQuAD JSON; counts and lines that are not found are printed.
"""

import argparse
import gzip
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from rl_qg.data.examples import QAExample, write_squad
from rl_qg.data.reading import read_examples

MARKS = re.compile(r"-(?:l|r)(?:r|s|c)b-")  # brackets as tokenisers write them


def letters(text: str) -> str:
    """What tokenising, case and quotes leave of a text: its letters and digits."""
    folded = unicodedata.normalize("NFKD", MARKS.sub("", text.lower()))
    return "".join(character for character in folded if character.isalnum())


def align(
    lines: Sequence[tuple[str, str]], examples: Sequence[QAExample]
) -> tuple[list[QAExample | None], Counter[str]]:
    """For each line, a sentence and its question, the example or None; and how many were found in which way."""
    found = defaultdict[str, list[QAExample]](list)
    for example in examples:
        found[letters(example.question)].append(example)
    contexts = {example.context: letters(example.context) for example in examples}
    aligned, counts, used = list[QAExample | None](), Counter[str](), set[str]()
    for sentence, question in lines:
        candidates = [one for one in found[letters(question)] if one.id not in used]
        inside = [one for one in candidates if letters(sentence) in contexts[one.context]]
        best = next(iter(inside or candidates), None)
        counts["aligned" if inside else "aligned by the question alone" if best else "not found"] += 1
        if best:
            used.add(best.id)
        aligned.append(best)
    return aligned, counts


def read_lines(path: Path) -> Iterator[str]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as stream:
        yield from (line.rstrip("\n") for line in stream)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="sentences")
    parser.add_argument("target", type=Path, help="questions")
    parser.add_argument("--squad", nargs="+", required=True, help="SQuAD JSON")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--counts", type=Path, help="JSON with how many lines were found in which way")
    args = parser.parse_args()
    lines = [*zip(read_lines(args.source), read_lines(args.target), strict=True)]
    aligned, counts = align(lines, read_examples(args.squad, role="train").examples)
    write_squad(args.output, [one for one in aligned if one])
    if args.counts:
        args.counts.write_text(json.dumps({"lines": len(lines), **counts}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(lines):,} lines: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    for (_, question), one in zip(lines, aligned, strict=True):
        if one is None:
            print(f"  not found: {question}")


if __name__ == "__main__":
    main()
