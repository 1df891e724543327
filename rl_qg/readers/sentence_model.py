"""The network of a sentence classifier: an encoder of sentences and two layers, with a BiLSTM between them or without.

Source: "Multi-Question Generation" (docs/papers.md), sections 6.1 and 6.3, and its released code
(`models/BinaryClassifier_model.py`, `models/HierarchicalLabeler_model.py`).
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from rewards.pretrained import ModelFault, check_weights
from rl_qg.readers.sentence_data import LABELS
from rl_qg.runtime.pretrained import loading
from rl_qg.runtime.processes import load_unsharded

OPTIONS = "sentence_classifier"
"""The key of `config.json` that holds `SentenceOptions`."""
LSTM_WIDTH = 150  # of each direction
PARTS = 4  # of a batch: padding would be most of it, since sentences differ in length
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SentenceOptions:
    """What a folder says of its classifier, beside the configuration of its encoder.

    Args:
        kind: `worthiness`, `hierarchical` or `types`.
        pooling: the vector of a sentence: that of its first token (`cls`), or the `mean` of all its tokens.
        max_length: sentences were cut at this many tokens.
        weights: of the positive sentences of each label in the loss.
        thresholds: a sentence has a label whose probability is at least this.
    """

    kind: str
    pooling: str
    max_length: int
    weights: tuple[float, ...]
    thresholds: tuple[float, ...]


class SentenceLabeller(PreTrainedModel):
    """Logits of the labels of each sentence.

    `worthiness` and `types`: vector -> Linear(h, h) -> GELU -> Linear(h, labels). `hierarchical`: vector ->
    Linear(h, 150) -> BiLSTM over the sentences of the passage, 150 each way -> Linear(300, 300) -> GELU ->
    Linear(300, 1). The configuration is that of the encoder, with `SentenceOptions` as the mapping `OPTIONS`.
    """

    base_model_prefix = "encoder"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.options = SentenceOptions(**getattr(config, OPTIONS))
        self.encoder = AutoModel.from_config(config, trust_remote_code=False)
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None  # its output is not used
        width = config.hidden_size
        self.is_hierarchical = self.options.kind == "hierarchical"
        if self.is_hierarchical:
            self.compress = nn.Linear(width, LSTM_WIDTH)
            self.lstm = nn.LSTM(LSTM_WIDTH, LSTM_WIDTH, batch_first=True, bidirectional=True)
            width = 2 * LSTM_WIDTH
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, config.num_labels)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return `logits` (passages, sentences, labels), 0 where there is no sentence, and with `labels` the `loss`.

        The loss is the mean binary cross-entropy over sentences and labels, where positive ones count by their weight.
        Padding takes no part in it (in the released code of HC it has the target -1).

        Args:
            input_ids: (passages, sentences, tokens).
            attention_mask: the same shape; a sentence that is not there has no token.
            labels: float (passages, sentences, labels).
        """
        real = attention_mask.any(dim=-1)
        vectors = self._sentence_vectors(input_ids[real], attention_mask[real])
        if self.is_hierarchical:
            vectors = self._in_passage(vectors, real)
        logits = self.out(functional.gelu(self.dense(vectors)))
        result = {"logits": logits.new_zeros((*real.shape, logits.shape[-1])).masked_scatter(real[..., None], logits)}
        if labels is not None:
            weights = torch.tensor(self.options.weights, device=logits.device)
            result["loss"] = functional.binary_cross_entropy_with_logits(
                logits.float(), labels[real].float(), pos_weight=weights
            )
        return result

    def _sentence_vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(sentences, tokens) to (sentences, h); the encoder reads long sentences and short ones apart."""
        lengths = mask.sum(dim=1)
        order = lengths.argsort(descending=True)
        vectors = []
        for part in order.tensor_split(PARTS):
            rows = part if len(part) else order[:1]  # every process must call a sharded encoder as often
            longest = int(lengths[rows[0]])
            vectors.append(self._pooled(ids[rows, :longest], mask[rows, :longest])[: len(part)])
        return torch.cat(vectors)[order.argsort()]

    def _pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.options.pooling == "cls":
            return states[:, 0]
        counted = mask[..., None].to(states.dtype)
        return (states * counted).sum(dim=1) / counted.sum(dim=1)

    def _in_passage(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Vectors (all sentences, h) after the BiLSTM over those of each passage, (all sentences, 300)."""
        vectors = self.compress(vectors)
        rows = vectors.new_zeros((*real.shape, LSTM_WIDTH)).masked_scatter(real[..., None], vectors)
        packed = pack_padded_sequence(rows, real.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=real.shape[1])
        return states[real]


def new_labeller(
    path: str, key: str, tokenizer: PreTrainedTokenizerBase, options: SentenceOptions, seed: int
) -> SentenceLabeller:
    """A classifier on the encoder `path`, whose other layers are initialised from `seed`; `key` is the setting that
    names `path`.

    Raises:
        InputError: its weights cannot be read or used, or its tokenizer has more tokens than it.
    """
    load_unsharded()
    names = dict(enumerate(LABELS[options.kind]))
    heads = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    transformers.set_seed(seed)
    with loading(path, key, "encoder") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False, **heads)
        setattr(config, OPTIONS, asdict(options))
        model = SentenceLabeller(config)
        encoder, info = AutoModel.from_pretrained(
            name,
            config=config,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        model.encoder.load_state_dict(encoder.state_dict(), strict=False)  # without the pooler
        check_weights(model, tokenizer)
    if missing := sorted(name for name in info["missing_keys"] if not name.startswith("pooler.")):
        log.warning("%s: %d weights of the encoder start at random, such as %s", path, len(missing), missing[0])
    return model.float()


def load_labeller(folder: str, key: str, tokenizer: PreTrainedTokenizerBase, kinds: Sequence[str]) -> SentenceLabeller:
    """The classifier that `rl-qg train-sentences` saved, in evaluation mode; `key` is the setting that names it.

    Raises:
        InputError: the folder holds no such classifier, or one that is not of `kinds`.
    """
    load_unsharded()
    with loading(folder, key, "sentence classifier") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        options = getattr(config, OPTIONS, None)
        if not isinstance(options, dict) or options.get("kind") not in LABELS:
            raise ModelFault("it is no folder of rl-qg train-sentences")
        if options["kind"] not in kinds:
            raise ModelFault(f"it is of kind={options['kind']}; train one with kind={' or '.join(kinds)}")
        model: SentenceLabeller = SentenceLabeller.from_pretrained(
            name, config=config, use_safetensors=True, dtype=torch.float32, trust_remote_code=False
        )
        check_weights(model, tokenizer)
    return model.eval()
