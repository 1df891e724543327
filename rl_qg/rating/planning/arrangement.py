"""The order of the items of a task: drawn at random, with a least distance between the forms of one question.

A question has one form (it is asked once) or more (again, or degraded). An order is a list of numbers of questions,
each of them as often as it has forms.
"""

import random
from collections.abc import Sequence

SHUFFLES = 200  # tried before an order is made otherwise
SWAPS = 20  # for each item of such an order


def longest_distance(forms: Sequence[int]) -> int:
    """The greatest distance that the forms of every question can have; no limit (their number) where each has one.

    Args:
        forms: of each question.
    """
    return nearest(_spread(forms, [*range(len(forms))]))


def arranged(forms: Sequence[int], distance: int, rng: random.Random) -> list[int]:
    """The number of the question at each place, in a random order.

    Args:
        forms: of each question.
        distance: between two forms of a question: 1 is that of neighbours. At most `longest_distance(forms)`.
        rng: draws the order.

    Returns:
        A uniform draw from all orders that keep the distance where one is found among `SHUFFLES`; else one that was
        made from an order that keeps it by random exchanges.
    """
    order = [number for number, count in enumerate(forms) for _ in range(count)]
    for _ in range(SHUFFLES):
        rng.shuffle(order)
        if nearest(order) >= distance:
            return order
    numbers = [*range(len(forms))]
    rng.shuffle(numbers)
    order = _spread(forms, numbers)
    for _ in range(SWAPS * len(order)):
        one, other = rng.randrange(len(order)), rng.randrange(len(order))
        order[one], order[other] = order[other], order[one]
        if nearest(order) < distance:
            order[one], order[other] = order[other], order[one]
    assert nearest(order) >= distance, "see longest_distance"
    return order


def nearest(order: Sequence[int]) -> int:
    """How many places equal numbers are at least apart; the length of the order where none occurs twice."""
    last: dict[int, int] = {}
    found = len(order)
    for place, number in enumerate(order):
        found = min(found, place - last.get(number, -found))
        last[number] = place
    return found


def _spread(forms: Sequence[int], numbers: Sequence[int]) -> list[int]:
    """The order with the greatest distance: first forms, second forms and so on, always in the same order, with the
    questions that have one form divided among the gaps between them.
    """
    several = sorted((number for number in numbers if forms[number] > 1), key=lambda number: -forms[number])
    single = [number for number in numbers if forms[number] == 1]
    gaps = max(1, max(forms) - 1)
    order: list[int] = []
    for gap in range(gaps + 1):
        order += [number for number in several if forms[number] > gap]
        order += single[gap * len(single) // gaps : (gap + 1) * len(single) // gaps]
    return order
