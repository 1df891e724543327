"""The commands of `rl-qg`, the groups of `configs/`, and the text of `--help`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from rewards import METRICS
from rl_qg.settings import Settings, describe

PACKAGE = Path(__file__).parents[1]
PACKAGED = PACKAGE / "configs"  # in an installed wheel
CONFIGS = PACKAGED if PACKAGED.is_dir() else PACKAGE.parent / "configs"
GROUPS = {  # folders of `configs/` and the file of each that is used by default; later groups override earlier ones
    "data": "squad",
    "reward": "qrelscore",
    "held_out": "none",
    "model": "bart-base",
    "peft": "none",
    "filters": "paper",
    "preset": "paper",
}
RAW = {  # commands that read their arguments themselves, and what these are
    "bench": (
        "data and key=value of the section below; or transfer, a transfer file (YAML) and key=value of that file "
        "(--dry-run lists its jobs); or report, results of rl-qg evaluate and rl-qg qa-evaluate, and output=FOLDER"
    ),
    "report": "run folders, then --output FILE (report.html by default)",
    "search": (
        "a search file (YAML) or the name of one that comes with the package, then key=value of that file; --dry-run "
        "lists the first runs, --allow-imports lets the file name code of other packages"
    ),
    "study": (
        "a study file (YAML), then key=value of that file; --dry-run lists the jobs, --allow-imports lets the file "
        "name code of other packages"
    ),
}


MACHINE = ("training.use_cpu", "training.reward_placement")
SCORING = ("reward_models", "miniature", *MACHINE)  # what loads a metric
EXAMPLES = ("data.train", "data.validation", "data.max_train", "data.max_validation", "data.seed", "data.world")


@dataclass(frozen=True)
class Command:
    """One sub-command: what it does, an example, the keys of `Settings` that it reads (whole sections, or single keys
    of one), and the module of this package whose function of its name runs it.
    """

    purpose: str
    example: str
    sections: tuple[str, ...]
    module: str


COMMANDS = {
    "pipeline": Command(
        "all stages, resumable: data, CE, SCST, questions, filter, augment, QA, report",
        "rl-qg pipeline preset=quickstart output_dir=runs/first",
        tuple(Settings.__dataclass_fields__),
        "pipeline",
    ),
    "train": Command(
        "train a question generator: cross-entropy, then self-critical training",
        "rl-qg train reward=qascore data.train=train.json data.validation=dev.json model.path=./my-t5 output_dir=RUN",
        (
            *("output_dir", "seed", "stages", "algorithm", "accept_changed_data", "data", "model", "miniature"),
            *("peft", "reward_models", "reward", "held_out", "training", "ce", "scst", "evaluation", "answers"),
            *("ask.granularity", "ask.mode", "ask.order"),
        ),
        "training",
    ),
    "trim": Command(
        "leave a generator the pieces of its vocabulary that a corpus uses, so that it is smaller",
        "rl-qg trim model.path=google/mt5-small corpus=train.json output_dir=mt5-small-de",
        ("output_dir", "trim", "model.path"),
        "generation",
    ),
    "answers": Command(
        "propose answers in passages without questions, so that questions can be generated for them",
        "rl-qg answers contexts.txt output=answers.jsonl",
        ("answers", "accept_changed_data", "training.use_cpu"),
        "generation",
    ),
    "ask": Command(
        "write question-answer pairs, or sets of questions, of documents: text, Markdown, HTML, PDF",
        "rl-qg ask text.txt output=pairs.jsonl model.path=RUN/scst",
        ("ask", "accept_changed_data", "reward_models", "training.use_cpu"),
        "asking",
    ),
    "train-answers": Command(
        "train a model that proposes answers, on the answers of known questions",
        "rl-qg train-answers data.train=train.json data.validation=dev.json output_dir=RUN/answers",
        (
            *("output_dir", "seed", "accept_changed_data", "train_answers", "data", "miniature"),
            *("training.use_cpu", "training.precision"),
        ),
        "training",
    ),
    "train-kpqa": Command(
        "train the model that weighs tokens in the metrics of KPQA, on questions and the sentences that answer them",
        "rl-qg train-kpqa data.train=train.json data.validation=dev.json output_dir=RUN/kpqa",
        (
            *("output_dir", "seed", "accept_changed_data", "train_kpqa", "data", "miniature"),
            *("training.use_cpu", "training.precision"),
        ),
        "training",
    ),
    "train-sentences": Command(
        "train a classifier of sentences: which are worth a question, or of which types it can be",
        "rl-qg train-sentences kind=hierarchical data.train=train.json data.validation=dev.json output_dir=RUN/worthy",
        (
            *("output_dir", "seed", "accept_changed_data", "train_sentences", "data", "miniature"),
            *("training.use_cpu", "training.precision"),
        ),
        "training",
    ),
    "train-selector": Command(
        "learn which of the generated questions make a set like those that people ask",
        "rl-qg train-selector data.train=dev.json model.path=RUN/ce output=selector.json",
        (
            *("train_selector", "accept_changed_data", "training.use_cpu"),
            *("data.train", "data.max_train", "data.seed", "data.world"),
        ),
        "asking",
    ),
    "generate": Command(
        "write candidate questions for every answer of the training data",
        "rl-qg generate model.path=RUN/scst data.train=train.json output=questions.jsonl num_beams=8",
        (
            *("generate", "seed", "accept_changed_data", "model.path", "model.language"),
            *("data.train", "data.max_train", "data.seed", "data.world", *SCORING),
        ),
        "generation",
    ),
    "augment": Command(
        "filter and sample questions and add them to the human ones",
        "rl-qg augment questions=questions.jsonl gold=train.json output=augmented.json num_samples=90000",
        ("augment", *SCORING),
        "generation",
    ),
    "qa": Command(
        "train an extractive reader and report EM and F1",
        "rl-qg qa data.train=augmented.json data.validation=dev.json output_dir=RUN/qa",
        (
            *("output_dir", "accept_changed_data", "qa", *EXAMPLES),
            *("miniature", "training.use_cpu", "training.precision"),
        ),
        "training",
    ),
    "qa-evaluate": Command(
        "evaluate generators by the readers that their questions teach, on human questions",
        "rl-qg qa-evaluate data=dev.json 'questions={ce: ce.jsonl, scst: scst.jsonl}' output=qa.json",
        ("qa_evaluate", "qa", "accept_changed_data", "miniature", "training.use_cpu", "training.precision"),
        "evaluation",
    ),
    "score": Command(
        "score questions with one metric",
        "rl-qg score reward=qrelscore input=questions.jsonl output=scored.jsonl",
        ("score", "accept_changed_data", "reward", "data.train", "data.world", *SCORING),
        "evaluation",
    ),
    "evaluate": Command(
        "evaluate questions with several metrics: means and corpus scores with intervals, by type and length",
        "rl-qg evaluate predictions=questions.jsonl references=train.json metrics=[bleu4,qrelscore] output=DIR",
        ("evaluate", "data.train", "data.world", *SCORING),
        "evaluation",
    ),
    "correlate": Command(
        "evaluate metrics: how well they agree with human ratings of the same questions",
        "rl-qg correlate human=judgements.jsonl metrics=[bleu4,rouge_l,qrelscore] output=DIR",
        ("correlate", "data.train", "data.world", *SCORING),
        "evaluation",
    ),
    "robustness": Command(
        "evaluate metrics: whether they separate questions made wrong from paraphrases",
        "rl-qg robustness input=dev.json metrics=[rouge_l,qrelscore] output=DIR",
        ("robustness", "data.train", "data.world", *SCORING),
        "evaluation",
    ),
    "separate": Command(
        "test a reward before training with it: how often it ranks right questions above wrong ones",
        "rl-qg separate reward=reader data.train=train.json data.validation=dev.json output=DIR",
        ("separate", "scst.max_new_tokens", "scst.top_p", "scst.temperature", "reward", *EXAMPLES, *SCORING),
        "evaluation",
    ),
    "explain": Command(
        "show where the score of one question comes from, token by token, as a page",
        'rl-qg explain reward=qrelscore question="Who wrote Faust?" context="Faust is a play." output=why.html',
        ("explain", "reward", "data.train", "data.world", *SCORING),
        "evaluation",
    ),
    "baselines": Command(
        "estimate what QRelScore gives questions that have nothing to do with the passage",
        "rl-qg baselines reward=qrelscore data.train=train.json output=baselines.json",
        ("baselines", "reward", "data", *SCORING),
        "evaluation",
    ),
    "serve": Command(
        "answer over HTTP: questions, answers and scores for any text, with a page to make them on",
        "rl-qg serve model.path=RUN/scst port=8000",
        ("serve", "reward_models", "training.use_cpu"),
        "serving",
    ),
    "search": Command(
        "find the best settings of a training: many configurations a little, the best of them longer",
        "rl-qg search qg-bench data.train=train.json data.validation=dev.json output_dir=runs/search",
        (),
        "studies",
    ),
    "study": Command(
        "run a grid of generators, filters, amounts and seeds, and compare the readers they teach",
        "rl-qg study experiments/augmentation/study.yaml",
        (),
        "studies",
    ),
    "bench": Command(
        "data of a benchmark, tables of transfer between domains and languages, and the leaderboard",
        "rl-qg bench data data=squad.json output_dir=bench/squad",
        ("output_dir", "bench"),
        "studies",
    ),
    "rate plan": Command(
        "people judge, 1: from the questions of several systems to tasks for raters (HITs)",
        "rl-qg rate plan questions=[ce.jsonl,scst.jsonl] output=plan",
        ("rate_plan",),
        "rating",
    ),
    "rate serve": Command(
        "people judge, 2: serve the tasks of a plan to raters, as a web application",
        "rl-qg rate serve plan=plan study=study.db port=8080",
        ("rate_serve",),
        "rating",
    ),
    "rate status": Command(
        "how far a study is: tasks, raters, pass rate so far, minutes and pay",
        "rl-qg rate status study=study.db",
        ("rate_status",),
        "rating",
    ),
    "rate export": Command(
        "people judge, 3: the ratings of a study as files, with pseudonyms of raters",
        "rl-qg rate export study=study.db output=ratings",
        ("rate_export",),
        "rating",
    ),
    "rate forget": Command(
        "delete what a study knows of one rater",
        "rl-qg rate forget study=study.db rater=r0007",
        ("rate_forget",),
        "rating",
    ),
    "rate analyse": Command(
        "people judge, 4: whose ratings count, which system people prefer, and how certain that is",
        "rl-qg rate analyse ratings=ratings output=analysis",
        ("rate_analyse",),
        "rating",
    ),
    "rate demo": Command(
        "a study to try: questions of the quickstart, in a browser, in five minutes",
        "rl-qg rate demo",
        ("rate_demo",),
        "rating",
    ),
    "report": Command(
        "make one HTML page of one run or several",
        "rl-qg report runs/a runs/b --output report.html",
        (),
        "evaluation",
    ),
}


def named_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that a command line begins with, of one word or two (`rate plan`), and what follows."""
    length = 2 if " ".join(words[:2]) in COMMANDS else 1
    return " ".join(words[:length]), [*words[length:]]


def section_of(command: str) -> str:
    """The settings section of a command, which is also the name of its function."""
    return command.replace("-", "_").replace(" ", "_")


def choices(group: str) -> list[str]:
    folder = CONFIGS / group
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def metrics_without_file() -> list[str]:
    """Metrics that need no options: those of `rewards.METRICS` without a file in `configs/reward/`."""
    return sorted(METRICS.keys() - set(choices("reward")))


def offered(group: str) -> str:
    return ", ".join([*choices(group), *(metrics_without_file() if group == "reward" else [])])


def groups_of(command: str) -> list[str]:
    """The config groups that have an effect on a command."""
    read = {key.split(".")[0] for key in COMMANDS[command].sections}
    return [group for group in GROUPS if group == "preset" or {"filters": "augment"}.get(group, group) in read]


def suggestion(word: str, known: Iterable[str]) -> str:
    """A question for a message about an unknown word: "; did you mean 'train'?", or nothing."""
    near = get_close_matches(word, [*known], n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["rl-qg: train question generators by reinforcement, with evaluation metrics as rewards", "", "Commands:"]
    lines += [f"  {name:<{width}}  {command.purpose}" for name, command in COMMANDS.items()]
    lines += ["", "Start with:", f"  {COMMANDS['pipeline'].example}", ""]
    lines += ["rl-qg COMMAND --help lists a command's settings, rl-qg --version tells the version, and"]
    return "\n".join([*lines, "rl-qg --completion bash (or zsh, fish) prints what completes commands and keys."])


def group_help(first: str) -> str:
    """The text of `rl-qg FIRST --help`, where the names of several commands begin with the same word."""
    members = {name: command for name, command in COMMANDS.items() if name.startswith(f"{first} ")}
    width = max(map(len, members))
    lines = [f"rl-qg {first}: one of these commands", ""]
    lines += [f"  {name:<{width}}  {command.purpose}" for name, command in members.items()]
    return "\n".join([*lines, "", f"rl-qg {first} … --help lists the settings of each."])


def command_help(name: str) -> str:
    """The text of `rl-qg COMMAND --help`: purpose, example, groups with their choices, and every key with its
    default.
    """
    command, section = COMMANDS[name], section_of(name)
    lines = [f"rl-qg {name}: {command.purpose}", "", "Example:", f"  {command.example}", ""]
    if name in RAW:
        lines += [f"Arguments: {RAW[name]}."]
        keys = describe(*command.sections).splitlines() if command.sections else []
        return "\n".join([*lines, *([""] if keys else []), *(f"  {line}" for line in keys)])
    groups = (f"  {group:<8} {offered(group)}" for group in groups_of(name))
    lines += ["Groups (choose with group=name):", *groups, ""]
    lines += ["Keys and defaults (set with key=value; nested ones with dots, as ce.epochs=3):", ""]
    lines += [f"  {line}" for line in describe(*command.sections).splitlines()]
    if section in Settings.__dataclass_fields__:
        lines += ["", f"Keys below {section}: may be written without it, as in the example."]
    return "\n".join([*lines, "", "--cfg job prints the composed settings without running anything."])
