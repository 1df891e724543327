"""Human questions as the references of generated ones: joined by id, or by passage and answer.

`rl-qg generate` writes the id of the example that a question was made for, so the question that people asked there is
its reference. Questions from elsewhere, or about answers that `rl-qg answers` chose, have other ids: their references
are all that people asked about the same passage and answer.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from rl_qg.errors import InputError
from rl_qg.qa_data import file_hash, passage_hash
from rl_qg.qa_sources import FoundRecord, found_records, is_hub_name

BY_ID, BY_ANSWER = "id", "passage and answer"


class GoldQuestions:
    """The questions of some sources, each a file in a form that `data.train` takes, or a Hub data set.

    An id that two records share, or that the file lacks, joins nothing.

    Args:
        sources: paths and names, as `data.train` takes them.
        split: of a Hub data set.

    Raises:
        InputError: no source, one that cannot be read, or none of them holds a question.
    """

    def __init__(self, sources: str | Sequence[str], split: str = "train") -> None:
        self.sources = [sources] if isinstance(sources, str) else list(sources)
        if not self.sources or not all(isinstance(source, str) and source for source in self.sources):
            raise InputError(f"references={sources!r}: give a file, such as references=train.json, or a list of files")
        self._by_id: dict[str, tuple[str, str] | None] = {}
        self._by_answer: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._by_passage: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for source in self.sources:
            self._add(found_records(source, split))
        if not self._by_id:
            raise InputError(f"{self}: holds no question; check the file")

    def __str__(self) -> str:
        return ", ".join(self.sources)

    def _add(self, records: Iterable[FoundRecord]) -> None:
        for record in records:
            question = record.question.strip()
            if not question:
                continue
            passage = passage_hash(record.context)
            self._by_id[record.id] = None if record.id in self._by_id else (passage, question)
            self._by_passage[passage][question] = None
            for text, _ in record.answers:
                self._by_answer[passage, text.strip()][question] = None

    def hashes(self) -> dict[str, str]:
        """SHA-256 of each file; of a Hub data set there is none."""
        return {source: file_hash(Path(source).expanduser()) for source in self.sources if not is_hub_name(source)}

    def of_passage(self, context: str) -> tuple[str, ...]:
        """All that people asked about a passage."""
        return tuple(self._by_passage.get(passage_hash(context), ()))

    def find(
        self, example_id: object, context: str | None, answer: str | None, where: str
    ) -> tuple[tuple[str, ...], str]:
        """The references of a question and how they were found: `BY_ID`, `BY_ANSWER`, or none at all and "".

        Raises:
            InputError: the id is that of a question about another passage; `where` names the row.
        """
        passage = None if context is None else passage_hash(context)
        known = self._by_id.get(str(example_id))
        if known is not None:
            if passage not in (None, known[0]):
                raise InputError(
                    f"{where}: field 'id': {example_id!r} is about another passage in {self}; give the file that "
                    "the questions were made from, or rename the field to join by passage and answer"
                )
            return (known[1],), BY_ID
        found = self._by_answer.get((passage, answer.strip())) if passage and answer else None
        return (tuple(found), BY_ANSWER) if found else ((), "")
