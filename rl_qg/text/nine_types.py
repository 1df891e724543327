"""The nine types of questions of Ray Chowdhury et al. 2022, "On the Evaluation of Answer-Agnostic Paragraph-level
Multi-Question Generation" (section 6.2).

They are those of that paper, for its models and its tables. `rl_qg.text.question_types` has the types that the rest of
the project reports.
"""

import re

NINE_TYPES = ("who", "when", "where", "what", "quantity", "how", "why", "which", "other")

# What is looked for, in the order in which the authors' released code looks: the first that occurs decides.
_CUES = (
    (r"\b(?:who|whom|whose)\b", "who"),
    (r"\bwhen\b", "when"),
    (r"\bwhere\b", "where"),
    (r"\bwhat\b", "what"),
    (r"how many|how much", "quantity"),
    (r"\bhow\b", "how"),
    (r"\bwhy\b", "why"),
    (r"\bwhich\b", "which"),
)


def nine_type(question: str, answer: str = "") -> str:
    """The type of a question, one of `NINE_TYPES`, by the paper's rule.

    A question that is answered by yes or no is `other`. Else the first word of the list counts that stands anywhere in
    the question, whatever its place there: `In which city, and when?` is `when`. Without any of them it is `other`.

    >>> nine_type("By whom was it built?"), nine_type("In what year, and how many?"), nine_type("Is it?", "Yes")
    ('who', 'what', 'other')
    """
    if answer.strip().casefold() in ("yes", "no"):
        return "other"
    text = " ".join(question.casefold().split())
    return next((kind for cue, kind in _CUES if re.search(cue, text)), "other")
