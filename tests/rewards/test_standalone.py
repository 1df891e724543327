"""Questions that stand alone: each rule on questions that it refuses and that it must not, and its use as a filter."""

import pytest

from rewards import MetricInputError, Standalone, load
from rewards.standalone import known_languages

REFUSED = {
    "no_text": [
        "What does the author say about the whistle?",
        "According to the passage, what can scratches cause?",
        "Who is being quoted in this paragraph?",
        "Why did the reviewer purchase it?",
        "What is the OP looking for?",
        "What is mentioned above?",
        "What does this user want?",
    ],
    "no_this": ["Where did this earthquake occur?", "What are these?", "This pillow doesn't put what to sleep?"],
    "no_pronoun": [
        "Where did he die?",
        "In what year did she move to Rome?",
        "How many nights did they stay?",
        "Why wasn't she there?",
        "Is he a king?",
        "What is his name?",
        "What was the name of her father?",
        "Where did he meet Caesar?",
    ],
    "no_speaker": ["What did I buy?", "Where will my friend be driving from?", "What do I like?"],
}
ALLOWED = [
    "",
    "?",
    "Who wrote Faust?",
    "Who is the author of Croatia: a Nation Forged in War?",
    "What did the writer who won the prize say?",
    "What did the author Mary Shelley write?",
    'Who wrote the article "Decentralization"?',
    "What are the article and section on admission?",
    "How wide were the goal posts?",
    "What is the text of the treaty about?",
    "Are Tibetan kings venerated to this day?",
    "If S2 is negative, what does this indicate?",
    "Who sang “This Is It”?",
    'Who said "I am your wife, this is the passage"?',
    "What did the boy do when he came home?",
    "When was Napoleon crowned, and where did he die?",
    "Which player scored most in his career?",
    "In his book, what did Newton show?",
    "Where did his father send Mozart?",
    "What gift did Tsar Alexander I give?",
    "Why did US troops go there in World War I?",
    "Where did Jack my Hedgehog go first?",
    "Who was the Op. 10 dedicated to?",
]


@pytest.mark.parametrize(("rule", "question"), [(rule, one) for rule, all_ in REFUSED.items() for one in all_])
def test_a_question_that_needs_its_passage(rule: str, question: str) -> None:
    result = Standalone().score([question])
    assert result.scores == [0.0]
    assert result.parts[rule] == [0.0]


@pytest.mark.parametrize("question", ALLOWED)
def test_a_question_that_stands_alone(question: str) -> None:
    assert Standalone().score([question]).scores == [1.0]


@pytest.mark.parametrize(
    ("language", "refused", "allowed"),
    [
        ("de", "Was wird im Text genannt?", "Was steht im Text der Verfassung?"),
        ("de", "Wann starb er?", "Wann starb Goethe, und wie alt war er?"),
        ("fr", "Que dit l'auteur ?", "Qui est l'auteur de Candide ?"),
        ("fr", "Où est-elle née ?", "Où Marie Curie est-elle née ?"),
        ("es", "Según el texto, ¿quién ganó?", "¿Qué dice el texto de la ley?"),
    ],
)
def test_other_languages(language: str, refused: str, allowed: str) -> None:
    assert Standalone(language).score([refused, allowed]).scores == [0.0, 1.0]


def test_parts_are_the_rules_that_are_known() -> None:
    assert set(known_languages()) == {"de", "en", "es", "fr"}
    assert set(Standalone("en").part_names) == set(REFUSED)
    assert load("standalone", language="es").part_names == ("no_text",)


def test_a_language_without_rules_is_named() -> None:
    with pytest.raises(MetricInputError, match="no rules are known for language 'pl'; they are for de, en, es, fr"):
        Standalone("pl")
