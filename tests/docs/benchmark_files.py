"""Small SQuAD files of two languages and two domains, for the page about benchmarks."""

import random

from rl_qg.data.examples import Answer, QAExample, write_squad

NAMES = "Arlen Bruck Corin Dorath Elmau Fenwick Gorsen Halden Irsee Jorun Kelten Lomar Merin Norden".split()
# Of each file the sentences of a passage, and a question about the name and about the year in it.
TEMPLATES = {
    "places": (
        "The town of {a} lies on the river {b}. Its mill was built in {year} and burned down in a dry summer.",
        (("Which river does {a} lie on?", "{b}"), ("When was the mill of {a} built?", "{year}")),
    ),
    "ships": (
        "The ship {a} was launched in {year}. Captain {b} sailed her to the south and never came back.",
        (("Who sailed the {a} to the south?", "{b}"), ("When was the {a} launched?", "{year}")),
    ),
    "orte": (
        "Die Stadt {a} liegt am Fluss {b}. Ihre Mühle wurde {year} gebaut und brannte in einem trockenen Sommer ab.",
        (("An welchem Fluss liegt {a}?", "{b}"), ("Wann wurde die Mühle von {a} gebaut?", "{year}")),
    ),
}


def write_benchmark_files(passages: int = 30) -> None:
    """Write `places.json`, `ships.json` (English) and `orte.json` (German) into this folder."""
    for name, (text, questions) in TEMPLATES.items():
        rng, examples = random.Random(name), []
        for number in range(passages):
            a, b = rng.sample(NAMES, 2)
            words = {"a": a, "b": b, "year": str(1200 + 17 * number)}
            context = text.format(**words)
            for question, answer in questions:
                span = Answer(answer.format(**words), context.index(answer.format(**words)))
                key = f"{name}-{len(examples)}"
                examples.append(QAExample(key, f"{name} {number}", context, question.format(**words), (span,)))
        write_squad(f"{name}.json", examples)
