"""Rows of QG-Bench's schema: a question, its answer, and the texts that a generator may be given, with `<hl>` on both
sides of what the question is about.

Source: Ushio et al., "Generative Language Models for Paragraph-Level Question Generation" (EMNLP 2022), Table 1 and
lmqg 0.1.2 (`language_model.py`). Their code marks the first place at which the answer's text occurs, which is another
than the annotator's in 0.6 to 10.8 % of the rows of a data set. Here the mark is where the answer is.
"""

from rl_qg.data.answer_sentence import sentence_of
from rl_qg.data.examples import QAExample

HIGHLIGHT = "<hl>"
COLUMNS = (
    *("paragraph", "sentence", "question", "answer"),
    *("paragraph_answer", "sentence_answer", "paragraph_sentence", "paragraph_question"),
)


def unified_row(example: QAExample) -> dict[str, str | int]:
    """The row of an example's first answer: `COLUMNS`, and `id`, `title`, `answer_start` (characters into the
    paragraph) and `language` if it is known, with which `rl_qg.data.sources` reads it back as it was.

    Raises:
        ValueError: the answer is empty or not at its offset.
    """
    paragraph, answer = example.context, example.answers[0]
    start, end = answer.start, answer.start + len(answer.text)
    if not paragraph.startswith(answer.text, start):
        raise ValueError(f"{example.id}: the answer {answer.text!r} is not at character {start} of its paragraph")
    first, last = sentence_of(paragraph, start, end)
    sentence = paragraph[first:last]
    return {
        "id": example.id,
        "title": example.title,
        "paragraph": paragraph,
        "sentence": sentence,
        "question": example.question,
        "answer": answer.text,
        "answer_start": start,
        "paragraph_answer": marked(paragraph, start, end),
        "sentence_answer": marked(sentence, start - first, end - first),
        "paragraph_sentence": marked(paragraph, first, last),
        "paragraph_question": f"question: {example.question}, context: {paragraph}",
        **({"language": example.language} if example.language else {}),
    }


def marked(text: str, start: int, end: int) -> str:
    """The text with `<hl>` on both sides of the characters `start` to `end` (one past the last)."""
    return f"{text[:start]}{HIGHLIGHT} {text[start:end]} {HIGHLIGHT}{text[end:]}"
