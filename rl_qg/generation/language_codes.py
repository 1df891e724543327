"""Language codes of multilingual generators: what stands in their inputs, and before the question in the decoder.

| tokenizer | input | decoder | learned |
| --- | --- | --- | --- |
| mBART-cc25 | `X </s> de_DE` | `de_DE Q` | `Q </s>` |
| mBART-50, NLLB | `de_DE X </s>` | `</s> de_DE Q` | `Q </s>` |

Sources: Liu et al. 2020 (mBART), Tang et al. 2020 (mBART-50), and `shift_tokens_right` of the library. The code is
given, never chosen: it is no part of the question, of its probability or of what decoding rules see. mT5 has no codes.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from transformers import GenerationConfig, PreTrainedTokenizerBase

from rl_qg.data.examples import QAExample
from rl_qg.runtime.errors import InputError

CODE = re.compile(r"[a-z]{2,3}_([A-Z]{2}|[A-Z][a-z]{3})")  # de_DE of mBART, deu_Latn of NLLB
Result = TypeVar("Result")


def codes_of(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The codes of a tokenizer in its order; none for most."""
    if getattr(tokenizer, "src_lang", None) is None:
        return []
    vocabulary = tokenizer.get_added_vocab()
    return sorted(filter(CODE.fullmatch, vocabulary), key=vocabulary.__getitem__)


class LanguageCodes:
    """The codes of a tokenizer, and the one that it writes where a row names no language.

    Raises:
        InputError: `default` is given, and none of them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, default: str = "") -> None:
        self._tokenizer, self._codes = tokenizer, codes_of(tokenizer)
        self.default = self._known(default) if default and self._codes else getattr(tokenizer, "src_lang", None) or ""
        if self._codes:
            self._write(self.default)
            # whether the code stands before a text, as in mBART-50, not after its end
            self._leads = tokenizer(text_target="")["input_ids"][0] != tokenizer.eos_token_id

    def __bool__(self) -> bool:
        return bool(self._codes)

    def code(self, language: str) -> str:
        """The code of a language, which is given as `de` or as the code itself; the default of "".

        Raises:
            InputError: the model does not know the language.
        """
        return self._known(language) if language else self.default

    def _known(self, language: str) -> str:
        wanted = language.casefold()
        for code in self._codes:
            if wanted in (code.casefold(), code.partition("_")[0]):
                return code
        known = ", ".join(sorted({code.partition("_")[0] for code in self._codes}))
        raise InputError(f"language={language}: the model knows {known}")

    def in_language(
        self, rows: Sequence[QAExample], work: Callable[[Sequence[QAExample]], list[Result]]
    ) -> list[Result]:
        """The results of `work` for all rows, in their order; the tokenizer writes the language of those that `work`
        is given.
        """
        codes = [self.code(row.language) for row in rows]
        results: dict[int, Result] = {}
        try:
            for code in dict.fromkeys(codes):
                self._write(code)
                numbers = [number for number, of_row in enumerate(codes) if of_row == code]
                results |= zip(numbers, work([rows[number] for number in numbers]), strict=True)
        finally:
            self._write(self.default)
        return [results[number] for number in range(len(rows))]

    def _write(self, code: str) -> None:
        if (self._tokenizer.src_lang, self._tokenizer.tgt_lang) != (code, code):
            self._tokenizer.src_lang = self._tokenizer.tgt_lang = code

    def without_code(self, targets: Sequence[list[int]]) -> list[list[int]]:
        """What the tokenizer gives for texts to write, without the code."""
        part = slice(1, None) if self._leads else slice(-1)
        return [ids[part] for ids in targets]

    def starts(self, rows: Sequence[QAExample]) -> list[list[int]]:
        """What the decoder reads before the question of each row; equally many tokens for all."""
        before = [self._tokenizer.eos_token_id] if self._leads else []
        return [[*before, self._tokenizer.convert_tokens_to_ids(self.code(row.language))] for row in rows]

    def set_generation(self, config: GenerationConfig) -> None:
        """Let the library's `generate` begin with the default code; without codes nothing is changed."""
        if not self._codes:
            return
        code = self._tokenizer.convert_tokens_to_ids(self.default)
        if self._leads:
            config.decoder_start_token_id, config.forced_bos_token_id = self._tokenizer.eos_token_id, code
        else:
            config.decoder_start_token_id = code
