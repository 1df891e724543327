"""The command that asks questions about documents."""

import logging

from rl_qg.commands.outputs import check_writable, required
from rl_qg.data.reading import source_names
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.output_reports import check_distinct_files
from rl_qg.runtime.processes import processes
from rl_qg.settings import Settings

log = logging.getLogger(__name__)


def ask(settings: Settings) -> None:
    """Question-answer pairs of documents (`rl_qg.asking.stage`)."""
    from rl_qg.asking.documents import STANDARD_INPUT, read_document
    from rl_qg.asking.exports import format_of
    from rl_qg.asking.models import default_generator
    from rl_qg.asking.question_generator import QuestionGenerator
    from rl_qg.asking.stage import ask_documents, report_line
    from rl_qg.commands.load_reranker import load_pair_reward

    options = settings.ask
    output = required(options.output, "output", "pairs.jsonl")
    format_of(output.name, options.format)
    sources = source_names(options.input)
    if not sources:
        raise InputError("input has no value; give documents, such as rl-qg ask text.txt output=pairs.jsonl")
    check_writable(output)
    check_distinct_files([output], [source for source in sources if source != STANDARD_INPUT])
    documents = [read_document(source) for source in sources]
    state = processes(settings.training.use_cpu)
    generator = QuestionGenerator.from_pretrained(
        options.model.path or default_generator(),
        device=state.device,
        reader=options.reader or None,
        extractor=options.extractor or None,
        reward=load_pair_reward(options.rerank, settings, state, "ask.rerank"),
        batch_size=options.batch_size,
    )
    report = ask_documents(
        generator,
        documents,
        output,
        settings=options,
        state=state,
        accept_changed_data=settings.accept_changed_data,
    )
    log.info("%s\ndone: %s", report_line(report), output)
