"""Tasks for raters (HITs) from the questions of several systems, by the recipe of a protocol (`TaskRecipe`).

With the eleven systems of the QAScore paper a task of `one_passage` has 11 ordinary questions, 3 repeats and 6
degraded ones: the human question again and degraded, of the ten other systems two again, five others degraded and
three neither. Which systems these are changes from task to task, so that each is as often as any other, give or take
two. All draws depend on the seed and the questions alone, not on the order of the rows of a system's file.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rl_qg.data.examples import by_key, report_limit, seeded_rank
from rl_qg.rating import protocol
from rl_qg.rating.plan_files import Hit, Item
from rl_qg.rating.planning.questions import HUMAN, Degrader, StudyQuestions, Subject
from rl_qg.runtime.errors import InputError

# The order of the items of a task is drawn at random, with a least distance between the forms of one question: it has
# one (it is asked once) or more (again, or degraded). An order is a list of numbers of questions.

SHUFFLES = 200  # tried before an order is made otherwise
SWAPS = 20  # for each item of such an order
NOT_DRAWN = "passages with their answer that were not drawn"
INCOMPLETE = "passages with their answer that lack a question of a system"
NOT_FULL = "questions too few for one more task"
NOT_MADE = {
    protocol.DEGRADED: "degraded questions that could not be made",
    protocol.REFERENCE: "human questions that a task lacks",
}


def longest_distance(forms: Sequence[int]) -> int:
    """The greatest distance that the forms of every question can have; no limit (their number) where each has one."""
    return nearest(_spread(forms, [*range(len(forms))]))


def arranged(forms: Sequence[int], distance: int, rng: random.Random) -> list[int]:
    """The number of the question at each place, in a random order with at least this distance between two forms of a
    question (1: neighbours; at most `longest_distance(forms)`).

    It is a uniform draw from all orders that keep the distance where one is found among `SHUFFLES`; else one that was
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
    """The order with the greatest distance: first forms, second forms and so on; between them those with one form."""
    several = sorted((number for number in numbers if forms[number] > 1), key=lambda number: -forms[number])
    single = [number for number in numbers if forms[number] == 1]
    gaps = max(1, max(forms) - 1)
    order: list[int] = []
    for gap in range(gaps + 1):
        order += [number for number in several if forms[number] > gap]
        order += single[gap * len(single) // gaps : (gap + 1) * len(single) // gaps]
    return order


class Asked(NamedTuple):
    """One question about a subject, and who asked it."""

    subject: Subject
    question: str
    systems: tuple[str, ...]


class ItemDraft(NamedTuple):
    """An item before it has a place; `of` numbers the question of the task that it is a form of."""

    kind: str
    of: int
    asked: Asked


@dataclass
class Tasks:
    """Tasks, what was left out by reason, and numbers of tasks whose forms are nearer than the recipe's distance."""

    hits: list[Hit]
    left_out: Counter[str] = field(default_factory=Counter)
    nearer: Counter[int] = field(default_factory=Counter)


def make_tasks(
    study: StudyQuestions, recipe: protocol.TaskRecipe, *, language: str, seed: int, items: int | None = None
) -> Tasks:
    """The tasks of a study. `items`: so many passages with their answer are drawn; None: all."""
    check_distance(recipe)
    maker = _Maker(study, recipe, language, seed)
    subjects = sorted(study.subjects, key=lambda subject: seeded_rank(seed, subject.item))
    if recipe.kind == protocol.ONE_PASSAGE:
        subjects = maker.complete(subjects)
    every, subjects = len(subjects), subjects[:items]
    maker.tasks.left_out[NOT_DRAWN] += every - len(subjects)
    report_limit("rate_plan.items", items, len(subjects), every, "passages with their answer are drawn")
    make = {protocol.ONE_PASSAGE: maker.one_passage, protocol.BLOCKS: maker.blocks, protocol.ITEMS: maker.items}
    make[recipe.kind](subjects)
    return maker.tasks


def check_distance(recipe: protocol.TaskRecipe) -> None:
    """Raise `InputError` where full tasks cannot keep the least distance; of fewer systems they keep what they can."""
    others = recipe.repeats + recipe.degraded + recipe.references
    ordinary = recipe.items - others
    if recipe.kind == protocol.ONE_PASSAGE:
        forms = [1 + len(of_system) for of_system in roles(ordinary, recipe)]
    else:
        forms = [1 + (place + others) // ordinary for place in range(ordinary)]
    if recipe.kind != protocol.BLOCKS and (most := longest_distance(forms)) < recipe.distance:
        raise InputError(
            f"protocol: recipe.distance={recipe.distance} cannot be kept with items={recipe.items}, "
            f"repeats={recipe.repeats} and degraded={recipe.degraded}; give {most} or less"
        )


def repeats_and_degraded(systems: int, recipe: protocol.TaskRecipe) -> tuple[int, int]:
    """How many systems of a task of `one_passage` are repeated and degraded: in all as large a share as in the recipe,
    divided by the largest remainder.

    >>> [repeats_and_degraded(number, protocol.TaskRecipe()) for number in (1, 2, 3, 5, 11, 22)]
    [(0, 1), (1, 1), (1, 1), (1, 3), (3, 6), (6, 12)]
    """
    ordinary = max(1, recipe.items - recipe.repeats - recipe.degraded)
    wanted = [recipe.repeats * systems, recipe.degraded * systems]  # times `ordinary`
    total = (2 * sum(wanted) + ordinary) // (2 * ordinary)
    counts = [value // ordinary for value in wanted]
    for place in sorted((0, 1), key=lambda place: -(wanted[place] % ordinary))[: total - sum(counts)]:
        counts[place] += 1
    return counts[0], counts[1]


def roles(systems: int, recipe: protocol.TaskRecipe) -> list[tuple[str, ...]]:
    """What is made of the question at each place of a circle of systems, beside the ordinary one. Repeated ones are
    spread evenly over the circle, and degraded ones too: among any neighbours each kind is as often as among as many
    others, give or take one. One system in eleven is both, as in the paper, or as near to that as this allows.
    """
    repeats, degraded = repeats_and_degraded(systems, recipe)
    again, worse = _spread_evenly(repeats, systems), _spread_evenly(degraded, systems)
    both = [sum(again[place - shift] and worse[place] for place in range(systems)) for shift in range(systems)]
    shift = min(range(systems), key=lambda shift: abs(both[shift] - systems / 11))
    return [
        (protocol.REPEAT,) * again[place - shift] + (protocol.DEGRADED,) * worse[place] for place in range(systems)
    ]


def roles_beside_people(systems: int, recipe: protocol.TaskRecipe) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What is made of the human question, in every task, and of those of so many other systems, as `roles` says it. Of
    a system's question not both are made, unless the recipe has more of them than systems.
    """
    human = (protocol.REPEAT,) * min(1, recipe.repeats) + (protocol.DEGRADED,) * min(1, recipe.degraded)
    others = replace(
        recipe,
        items=recipe.items - 1 - len(human),
        repeats=max(0, recipe.repeats - 1),
        degraded=max(0, recipe.degraded - 1),
    )
    repeats, degraded = repeats_and_degraded(systems, others)
    worse = _spread_evenly(degraded, systems)
    free, taken = ([place for place in range(systems) if worse[place] is value] for value in (False, True))
    again = {
        places[number]
        for places, count in ((free, min(repeats, len(free))), (taken, repeats - len(free)))
        for number, chosen in enumerate(_spread_evenly(count, len(places)))
        if chosen
    }
    return human, [
        (protocol.REPEAT,) * (place in again) + (protocol.DEGRADED,) * worse[place] for place in range(systems)
    ]


def _spread_evenly(count: int, places: int) -> list[bool]:
    return [(place + 1) * count // places > place * count // places for place in range(places)]


class _Maker:
    def __init__(self, study: StudyQuestions, recipe: protocol.TaskRecipe, language: str, seed: int) -> None:
        self.study, self.recipe, self.language, self.seed = study, recipe, language, seed
        passages = {subject.passage.passage: subject.passage.context for subject in study.subjects}
        self.degrader = Degrader(passages, recipe.lengths)
        self.tasks = Tasks([])
        self.counts = {
            protocol.DEGRADED: recipe.degraded,
            protocol.REPEAT: recipe.repeats,
            protocol.REFERENCE: recipe.references,
        }
        self.used = {kind: Counter[str]() for kind in self.counts}  # by system

    def complete(self, subjects: Sequence[Subject]) -> list[Subject]:
        """Those with a question of every system."""
        systems = self.study.systems
        found = [subject for subject in subjects if len(subject.questions) == len(systems)]
        self.tasks.left_out[INCOMPLETE] += len(subjects) - len(found)
        if not found:
            counts = Counter(system for subject in subjects for system in subject.questions)
            has = ", ".join(f"{system} {counts[system]:,}" for system in systems)
            raise InputError(
                f"questions: no passage and answer has a question of every system (of {len(subjects):,}: {has}); give "
                "files about the same passages and answers, or a protocol whose recipe is items"
            )
        return found

    def one_passage(self, subjects: Sequence[Subject]) -> None:
        """A task for each subject. In as many tasks as systems (beside people) each of these has each role once."""
        circle = [*self.study.systems]
        kinds, of_human = roles(len(circle), self.recipe), dict[str, tuple[str, ...]]()
        if HUMAN in circle and len(circle) > 1:
            circle.remove(HUMAN)
            of_human[HUMAN], kinds = roles_beside_people(len(circle), self.recipe)
        for number, subject in enumerate(subjects):
            rng = random.Random(f"{self.seed} {subject.item}")
            shift = number % len(circle)
            if not shift:
                random.Random(f"{self.seed} circle {number}").shuffle(circle)
            role = of_human | {system: kinds[(place + shift) % len(circle)] for place, system in enumerate(circle)}
            drafts: list[ItemDraft] = []
            for of, (question, names) in enumerate(subject.asked()):
                asked = Asked(subject, question, names)
                wanted = {kind for name in names for kind in role[name]}
                drafts.append(ItemDraft(protocol.ORDINARY, of, asked))
                drafts += [draft for kind in sorted(wanted) if (draft := self._form(kind, of, asked, rng))]
            self._add(drafts, rng)

    def items(self, subjects: Sequence[Subject]) -> None:
        """Tasks of about equal length; questions about one passage follow each other, so most of them share one."""
        pool, ordinary = self._pool(subjects), self.recipe.items - sum(self.counts.values())
        count = -(-len(pool) // ordinary)
        for number in range(count):
            rng = random.Random(f"{self.seed} task {number}")
            part = pool[number * len(pool) // count : (number + 1) * len(pool) // count]
            drafts = [ItemDraft(protocol.ORDINARY, of, asked) for of, asked in enumerate(part)]
            taken = Counter[int]()
            for kind, wanted in self.counts.items():
                drafts += self._chosen(kind, min(wanted, len(part)), [*enumerate(part)], taken, rng)
            self._add(drafts, rng)

    def blocks(self, subjects: Sequence[Subject]) -> None:
        """Direct assessment: blocks of ten items, whose repeats, degraded and human questions belong to questions of
        the opposite block, so that forms of a question are at least half of the task less nine items apart.
        """
        pool, number = self._pool(subjects), self.recipe.items // protocol.BLOCK
        size = protocol.BLOCK - sum(self.counts.values()) // number
        full = number * size
        if len(pool) < full:
            raise InputError(f"questions: {len(pool)} different ones; a task of this protocol needs {full}")
        self.tasks.left_out[NOT_FULL] += len(pool) % full
        for task in range(len(pool) // full):
            rng = random.Random(f"{self.seed} task {task}")
            part = [*enumerate(pool[task * full : (task + 1) * full])]
            rng.shuffle(part)
            of_blocks = [part[block * size : (block + 1) * size] for block in range(number)]
            order: list[ItemDraft] = []
            for block in range(number):
                drafts = [ItemDraft(protocol.ORDINARY, of, asked) for of, asked in of_blocks[block]]
                opposite, taken = of_blocks[(block + number // 2) % number], Counter[int]()
                for kind, total in self.counts.items():
                    drafts += self._chosen(kind, total // number, opposite, taken, rng)
                rng.shuffle(drafts)
                order += drafts
            self._add_ordered(order)

    def _pool(self, subjects: Sequence[Subject]) -> list[Asked]:
        """All questions to be rated, of a subject in random order; without human ones that are references."""
        pool = []
        for subject in subjects:
            asked = subject.asked()
            if self.recipe.references:
                asked = [(text, tuple(name for name in names if name != HUMAN)) for text, names in asked]
            of_subject = [Asked(subject, question, names) for question, names in asked if names]
            random.Random(f"{self.seed} {subject.item}").shuffle(of_subject)
            pool += of_subject
        if self.recipe.references and HUMAN not in self.study.systems:
            raise InputError(
                "gold has no value: this protocol shows human questions beside others; give gold=dev.json"
            )
        return pool

    def _chosen(
        self, kind: str, count: int, among: Sequence[tuple[int, Asked]], taken: Counter[int], rng: random.Random
    ) -> list[ItemDraft]:
        """Questions in a form of a kind: of systems with few of it, if there are some without another form here."""
        found: list[ItemDraft] = []
        left = [*among]
        while left and len(found) < count:
            uses = self.used[kind]
            left.sort(key=lambda pair: (taken[pair[0]], max(uses[name] for name in pair[1].systems), rng.random()))
            of, asked = left.pop(0)
            if draft := self._form(kind, of, asked, rng, counted=False):
                found.append(draft)
                taken[of] += 1
                uses.update(asked.systems)
        if len(found) < count:
            self.tasks.left_out[NOT_MADE[kind]] += count - len(found)
        return found

    def _form(self, kind: str, of: int, asked: Asked, rng: random.Random, *, counted: bool = True) -> ItemDraft | None:
        """A question again, made worse, or the human one in its place; None where there is none."""
        if kind == protocol.REPEAT:
            return ItemDraft(kind, of, asked)
        subject, systems = asked.subject, asked.systems
        if kind == protocol.REFERENCE:
            text = subject.questions.get(HUMAN)
            text, systems = (None if text == asked.question else text), (HUMAN,)
        else:
            text = self.degrader.degraded(asked.question, subject.passage.passage, rng)
        if text is None:
            self.tasks.left_out[NOT_MADE[kind]] += counted
            return None
        return ItemDraft(kind, of, Asked(subject, text, systems))

    def _add(self, drafts: Sequence[ItemDraft], rng: random.Random) -> None:
        by_question = by_key((draft.of, draft) for draft in drafts)
        forms = [len(by_question[of]) for of in range(len(by_question))]
        distance = min(self.recipe.distance, longest_distance(forms))
        if distance < self.recipe.distance:
            self.tasks.nearer[distance] += 1
        for of_question in by_question.values():
            rng.shuffle(of_question)
        ordered = [by_question[of].pop() for of in arranged(forms, distance, rng)]
        places = {(draft.kind, draft.of): place for place, draft in enumerate(ordered)}
        for (kind, of), place in places.items():  # of a question that is shown twice the first is the ordinary one
            if kind == protocol.REPEAT and place < (ordinary := places[protocol.ORDINARY, of]):
                ordered[place], ordered[ordinary] = ordered[ordinary], ordered[place]
        self._add_ordered(ordered)

    def _add_ordered(self, drafts: Sequence[ItemDraft]) -> None:
        places = {draft.of: place for place, draft in enumerate(drafts, 1) if draft.kind == protocol.ORDINARY}
        passages = {draft.asked.subject.passage.passage: draft.asked.subject.passage for draft in drafts}
        numbers = {name: number for number, name in enumerate(passages)}
        items = [
            Item(
                position=place,
                kind=kind,
                passage=numbers[subject.passage.passage],
                question=question,
                answer=subject.answer,
                answer_start=subject.answer_start,
                systems=systems,
                item=subject.item,
                original=None if kind == protocol.ORDINARY else places[of],
            )
            for place, (kind, of, (subject, question, systems)) in enumerate(drafts, 1)
        ]
        name = f"h{len(self.tasks.hits) + 1:04}"
        self.tasks.hits.append(Hit(name, self.language, tuple(passages.values()), tuple(items)))


def counts_of(hits: Sequence[Hit], systems: Sequence[str]) -> dict[str, Mapping[str, int]]:
    """The items of each system by kind; a shared question counts for each system that asked it."""
    counts = Counter((name, item.kind) for hit in hits for item in hit.items for name in item.systems)
    return {system: {kind: counts[system, kind] for kind in protocol.KINDS} for system in systems}
