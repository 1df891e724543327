"""Why a question fits a text: the words of the text that it shares, those near the answer most.

This needs no model. The question's own words say what it asks about; where they stand near the answer, the text around
the answer is what the question was made from. `rl-qg explain reward=qrelscore` shows the same for a model-based score.
"""

from rl_qg.asking.pairs import AnswerSpan
from rl_qg.serving.messages import WeighedToken
from rl_qg.text.english_words import CLOSED
from rl_qg.text.spans import tokens

METRIC = "shared words"
HALF = 100  # characters from the answer at which a word weighs half


def shared_words(text: str, question: str, answer: AnswerSpan) -> list[WeighedToken]:
    """The words of a text that the question has too, without those of closed classes, in the order of the text.

    The weight of a word d characters away from the answer is 1 / (1 + d / 100).
    """
    asked = {token.text.casefold() for token in tokens(question) if token.text[0].isalnum()} - CLOSED
    weighed = []
    for token in tokens(text):
        if token.text.casefold() in asked and not (token.start < answer.end and answer.start < token.end):
            distance = max(answer.start - token.end, token.start - answer.end, 0)
            weighed.append(WeighedToken(start=token.start, end=token.end, weight=round(1 / (1 + distance / HALF), 4)))
    return weighed
