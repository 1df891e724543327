"""The commands that ask questions about documents, pairs with answers or sets without, and that train a selector."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rl_qg.commands.outputs import check_own_json, check_writable, required
from rl_qg.data.reading import source_names
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import check_distinct_files
from rl_qg.runtime.processes import processes
from rl_qg.settings import Settings

if TYPE_CHECKING:
    from accelerate import PartialState

    from rl_qg.asking.documents import Document

log = logging.getLogger(__name__)


def ask(settings: Settings) -> None:
    """Question-answer pairs of documents (`ask_documents`), or sets of questions (`ask_sets`), by `rl_qg.asking`."""
    from rl_qg.asking.documents import STANDARD_INPUT, format_of, read_document

    options = settings.ask
    output = required(options.output, "output", "sets.jsonl" if options.strategy else "pairs.jsonl")
    format_of(output.name, options.format)
    sources = source_names(options.input)
    if not sources:
        raise InputError("input has no value; give documents, such as rl-qg ask text.txt output=pairs.jsonl")
    check_writable(output)
    check_distinct_files([output], [source for source in sources if source != STANDARD_INPUT])
    documents = [read_document(source) for source in sources]
    write = _ask_sets if options.strategy else _ask_pairs
    log.info("%s\ndone: %s", write(settings, documents, output, processes(settings.training.use_cpu)), output)


def _ask_pairs(settings: Settings, documents: Sequence["Document"], output: Path, state: "PartialState") -> str:
    from rl_qg.asking.ask_documents import ask_documents, report_line
    from rl_qg.asking.models import chosen_generator
    from rl_qg.asking.question_generator import QuestionGenerator
    from rl_qg.commands.metrics import load_pair_reward

    options = settings.ask
    generator = QuestionGenerator.from_pretrained(
        chosen_generator(options.model.path),
        device=state.device,
        reader=options.reader or None,
        extractor=options.extractor or None,
        reward=load_pair_reward(options.rerank, settings, state, "ask.rerank"),
        batch_size=options.batch_size,
    )
    accept = settings.accept_changed_data
    return report_line(
        ask_documents(generator, documents, output, settings=options, state=state, accept_changed_data=accept)
    )


def _ask_sets(settings: Settings, documents: Sequence["Document"], output: Path, state: "PartialState") -> str:
    from rl_qg.asking.ask_sets import ask_sets, set_format, set_report_line
    from rl_qg.asking.models import chosen_generator
    from rl_qg.asking.sets import SetGenerator

    options = settings.ask
    set_format(output.name, options.format)
    if not options.model.path:
        raise InputError(
            f"model.path has no value, and strategy={options.strategy} needs a model that was trained for it; train "
            "one with rl-qg train ask.granularity=… ask.mode=… output_dir=RUN and give model.path=RUN"
        )
    generator = SetGenerator.from_pretrained(
        chosen_generator(options.model.path),
        device=state.device,
        worthiness=options.worthiness or None,
        types=options.types or None,
        reader=options.reader or None,
        selector=options.selector or None,
        similarity=options.similarity,
        candidates=options.candidates,
    )
    accept = settings.accept_changed_data
    return set_report_line(
        ask_sets(generator, documents, output, settings=options, state=state, accept_changed_data=accept)
    )


def train_selector(settings: Settings) -> None:
    from rl_qg.asking.ask_sets import train_set_selector
    from rl_qg.asking.sets import SetGenerator
    from rl_qg.data.splits import read_role

    options = settings.train_selector
    output = required(options.output, "output", "selector.json")
    if output.suffix != ".json":
        raise InputError(f"output={output}: the selector is JSON; give a name that ends in .json")
    check_writable(output)
    check_own_json(output, ("gain", "size", "features"))
    if not options.model.path:
        raise InputError("model.path has no value; give a model of model.task=sets, such as model.path=RUN/ce")
    examples = read_role(settings.data, "train").examples
    state = processes(settings.training.use_cpu)
    generator = SetGenerator.from_pretrained(
        options.model.path,
        device=state.device,
        worthiness=options.worthiness or None,
        types=options.types or None,
        reader=options.reader or None,
        candidates=options.candidates,
    )
    selector = train_set_selector(generator, examples, output, settings=options, state=state)
    log.info(
        "learned from %d passages\ndone: use it with rl-qg ask select=learned selector=%s", selector.passages, output
    )
