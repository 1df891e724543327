"""The commands that ask questions about documents, pairs with answers or sets without, and that train a selector."""

import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from rl_qg.commands.outputs import check_own_json, check_writable, required
from rl_qg.data.reading import source_names
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import check_distinct_files
from rl_qg.runtime.processes import processes
from rl_qg.settings import Settings
from rl_qg.settings.generation import FOR_TRAIN

if TYPE_CHECKING:
    from accelerate import PartialState

    from rl_qg.asking.question_generator import QuestionGenerator
    from rl_qg.asking.sets import SetGenerator

log = logging.getLogger(__name__)
STANDARD_OUTPUT = "-"


def ask(settings: Settings) -> None:
    """Question-answer pairs of documents, or sets of questions (`rl_qg.asking.ask_documents`), in a file, or without
    one on standard output: a table in a terminal, in a pipe JSON lines, or as `format` says.
    """
    from rl_qg.asking.exports import AUTO

    options = settings.ask
    if options.output not in ("", STANDARD_OUTPUT):
        output = Path(options.output)
        log.info("%s\ndone: %s", _ask(settings, output), output)
        return
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError("output has no value; several processes need a file, such as output=pairs.jsonl")
    with TemporaryDirectory() as folder:
        file = Path(folder, "pairs")
        form = "jsonl" if options.format == AUTO else options.format
        log.info("%s", _ask(replace(settings, ask=replace(options, format=form)), file))
        text = file.read_text(encoding="utf-8")
    sys.stdout.write(_table(text) if options.format == AUTO and sys.stdout.isatty() else text)


def _table(lines: str) -> str:
    """Pairs, or questions of sets, as a table for people."""
    from rl_qg.pages.results import text_table

    rows = [json.loads(line) for line in lines.splitlines()]
    questions = [question for row in rows for question in row.get("questions", [row])]
    shown = [{name: str(one[name]) for name in ("question", "answer", "score") if name in one} for one in questions]
    return text_table(shown) + "\n"


def _ask(settings: Settings, output: Path) -> str:
    """Write what is asked, and return what the report says, in a line."""
    from rl_qg.asking.ask_documents import ask_documents, report_line
    from rl_qg.asking.documents import STANDARD_INPUT, read_document
    from rl_qg.asking.exports import format_of
    from rl_qg.asking.models import check_text, chosen_generator
    from rl_qg.miniatures.cache import is_miniature
    from rl_qg.miniatures.packaged import is_packaged

    options = settings.ask
    if given := options.changed(*FOR_TRAIN):
        raise InputError(f"{', '.join(given)}: is for rl-qg train; leave it out")
    format_of(output.name, options.format)
    sources = source_names(options.input, "input")
    if not sources:
        raise InputError("input has no value; give documents, such as rl-qg ask text.txt output=pairs.jsonl")
    check_writable(output)
    check_distinct_files([output], [source for source in sources if source != STANDARD_INPUT])
    documents = [read_document(source) for source in sources]
    model = "" if options.strategy else chosen_generator(options.model.path)
    cores = 1
    if is_packaged(model) or is_miniature(model):
        cores = torch.get_num_threads()
        torch.set_num_threads(1)  # several threads make one batch of so small a model no faster, side by side they do
    for source, document in zip(sources, documents, strict=True):
        check_text(model, document.text, source, options.language)
    state, accept = processes(settings.training.use_cpu), settings.accept_changed_data
    made = load_generator(settings, "ask", model, state, cores) if model else _sets_of_ask(settings, output, state)
    report = ask_documents(made, documents, output, settings=options, state=state, accept_changed_data=accept)
    return report_line(report)


def load_generator(settings: Settings, key: str, model: str, state: "PartialState", cores: int) -> "QuestionGenerator":
    """What asks pairs on so many cores of a CPU, as the section `key` of the settings says."""
    from rl_qg.asking.question_generator import QuestionGenerator
    from rl_qg.commands.endpoints import asked_generator
    from rl_qg.scoring.metrics import load_pair_reward

    options = getattr(settings, key)
    return QuestionGenerator.from_pretrained(
        asked_generator(model, settings) or model,
        device=state.device,
        reader=options.reader or None,
        extractor=options.extractor or None,
        reward=load_pair_reward(options.rerank, settings, state, f"{key}.rerank"),
        batch_size=options.batch_size,
        cores=cores,
        format=options.model.format,
    )


def _sets_of_ask(settings: Settings, output: Path, state: "PartialState") -> "SetGenerator":
    from rl_qg.asking.ask_documents import set_format
    from rl_qg.asking.models import chosen_generator

    options = settings.ask
    set_format(output.name, options.format)
    if not options.model.path:
        raise InputError(
            f"model.path has no value, and strategy={options.strategy} needs a model that was trained for it; train "
            "one with rl-qg train ask.granularity=… ask.mode=… output_dir=RUN and give model.path=RUN"
        )
    more = {"selector": options.selector or None, "similarity": options.similarity}
    return _load_sets(options, chosen_generator(options.model.path), state, **more)


def _load_sets(options: Any, path: str, state: "PartialState", **more: Any) -> "SetGenerator":
    from rl_qg.asking.sets import SetGenerator

    more |= {name: getattr(options, name) or None for name in ("worthiness", "types", "reader", "candidates")}
    return SetGenerator.from_pretrained(path, device=state.device, format=options.model.format, **more)


def models(arguments: Sequence[str]) -> None:
    """The published generators whose formats are known: a table for a terminal, JSON lines in a pipe."""
    from rl_qg.generation.published import FORMATS, named_format
    from rl_qg.pages.results import text_table

    names = [named_format(name) for name in arguments]
    if unknown := [name for name, known in zip(arguments, names, strict=True) if not known]:
        raise InputError(f"{unknown[0]}: no known model has such a name; rl-qg models lists them")
    rows = [
        {"models": known.names, "model.format": name, "task": known.task, **known.shown(), "size": known.size}
        | {"licence": known.licence, "source": known.source}
        for name, known in FORMATS.items()
        if not names or name in names
    ]
    print(text_table(rows) if sys.stdout.isatty() else "\n".join(json.dumps(row, ensure_ascii=False) for row in rows))


def train_selector(settings: Settings) -> None:
    from rl_qg.asking.ask_documents import train_set_selector
    from rl_qg.data.splits import read_role

    options = settings.train_selector
    output = required(options.output, "output", "selector.json", ".json")
    check_writable(output)
    check_own_json(output, ("gain", "size", "features"))
    if not options.model.path:
        raise InputError("model.path has no value; give a model of model.task=sets, such as model.path=RUN/ce")
    examples = read_role(settings.data, "train").examples
    state = processes(settings.training.use_cpu)
    generator = _load_sets(options, options.model.path, state)
    selector = train_set_selector(generator, examples, output, settings=options, state=state)
    log.info(
        "learned from %d passages\ndone: use it with rl-qg ask select=learned selector=%s", selector.passages, output
    )
