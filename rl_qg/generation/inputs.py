"""What a generator reads of an example: its passage or the sentence of its answer, and what is marked in it.

| input | text | marked |
| --- | --- | --- |
| `paragraph_answer` | the passage | the answer |
| `sentence_answer` | the sentence of the answer | the answer |
| `paragraph_sentence` | the passage | the sentence of the answer; the question may be about anything in it |
| `paragraph` | the passage | nothing |

The first three are columns of QG-Bench (Ushio et al. 2022, section 3), there with the first occurrence of the answer,
here with its true place. Only the generator's input is changed: rewards and measures see the passage and the answer.
"""

from dataclasses import replace

from rl_qg.data.answer_sentence import sentence_of
from rl_qg.data.examples import Answer, QAExample, answer_place

WHOLE = "paragraph_answer"
INPUTS = (WHOLE, "sentence_answer", "paragraph_sentence", "paragraph")
ABOUT_ANSWERS = (WHOLE, "sentence_answer")  # models with these inputs ask about a given answer


def as_input(example: QAExample, form: str) -> QAExample:
    """The example with the context that the generator reads, and with what is marked in it as its answer.

    Without an answer it stays as it is.

    Raises:
        InputError: the answer is not at its offset.
    """
    if form == WHOLE or not example.answers:
        return example
    if form == "paragraph":
        return replace(example, answers=())
    context = example.context
    start, end = answer_place(example)
    first, last = sentence_of(context, start, end)
    if form == "paragraph_sentence":
        return replace(example, answers=(Answer(context[first:last], first),))
    return replace(example, context=context[first:last], answers=(Answer(context[start:end], start - first),))
