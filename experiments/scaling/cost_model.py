"""What a run costs: operations, bytes, memory per GPU, communication per step, seconds.

Pure functions over sizes; nothing is loaded. `tables.py` prints what docs/explanation/scaling.md shows, and compares
with what was measured. Every constant says where it comes from: measured here (`measure.py`, `processes.py`,
`rows.py`), or assumed.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """Sizes that operations are counted from. A decoder-only model stands as an encoder: one layer, one pass."""

    width: int
    heads_width: int
    """Number of heads times their size: `width`, but for T5-3B."""
    feed_forward: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int
    parameters: int
    """Tied weights once, the highlight token with them. Exact: counted on the meta device by `measure.py`."""


ARCHITECTURES = {
    "bart-base": Architecture(768, 768, 3072, 6, 6, 50_266, 139_421_184),
    "bart-large": Architecture(1024, 1024, 4096, 12, 12, 50_266, 406_292_480),
    "t5-3b": Architecture(1024, 4096, 16_384, 24, 24, 32_128, 2_851_598_336),
    "bert-base": Architecture(768, 768, 3072, 12, 0, 28_996, 108_310_272),
    "gpt2": Architecture(768, 768, 3072, 12, 0, 50_257, 124_439_808),
    "roberta-base": Architecture(768, 768, 3072, 12, 0, 50_265, 124_697_433),
    "bart-large-cnn": Architecture(1024, 1024, 4096, 12, 12, 50_264, 406_290_432),
    "distilbert": Architecture(768, 768, 3072, 6, 0, 30_522, 66_364_418),
}
GENERATORS = ("bart-base", "bart-large", "t5-3b")
REWARDS = {"QRelScore": ("bert-base", "gpt2"), "QAScore": ("roberta-base",), "BARTScore": ("bart-large-cnn",)}


@dataclass(frozen=True)
class Work:
    """One step on one GPU."""

    rows: int = 16
    """Examples per GPU (`training.batch_size`)."""
    context: int = 192
    """Tokens of a passage with its answer marked: about SQuAD's mean; the limit is 512."""
    question: int = 20
    """Tokens of a question; the limit is 64."""
    samples: int = 1
    """Per example, beside the greedy one (`scst.num_samples`)."""
    answer: int = 4
    """Tokens of an answer, each a pass of QAScore."""


# --- Operations: two for each multiplication of a product, as torch's FlopCounterMode counts ---


def encoding(model: Architecture, tokens: float, attended: float) -> float:
    """Encoder layers over `tokens`, each of which attends to `attended` others."""
    per_token = 8 * model.width * model.heads_width + 4 * model.width * model.feed_forward
    return model.encoder_layers * tokens * (per_token + 4 * model.heads_width * attended)


def memory_of_contexts(model: Architecture, tokens: float) -> float:
    """Keys and values of cross attention, for each token of a context that a row of the decoder reads."""
    return model.decoder_layers * 4 * model.width * model.heads_width * tokens


def decoding(model: Architecture, tokens: float, attended: float, context: float) -> float:
    """Decoder layers and vocabulary over `tokens`, without the keys and values of the context."""
    per_token = 12 * model.width * model.heads_width + 4 * model.width * model.feed_forward
    layers = model.decoder_layers * (per_token + 4 * model.heads_width * (attended + context))
    return tokens * (layers + head(model))


def head(model: Architecture) -> float:
    """Logits of one position."""
    return 2 * model.width * model.vocabulary


def update(model: Architecture, work: Work, *, rows: int, recompute: bool = False) -> float:
    """Forward and backward pass with `rows` questions for each context, which is encoded once. Its keys and values are
    computed once too, unless layers are computed again in the backward pass.
    """
    texts = work.rows * rows
    forward = (
        encoding(model, work.rows * work.context, work.context)
        + memory_of_contexts(model, (texts if recompute else work.rows) * work.context)
        + decoding(model, texts * work.question, work.question, work.context)
    )
    return (4 if recompute else 3) * forward


def rollout(model: Architecture, work: Work) -> float:
    """The greedy question and the samples of each context, token by token with caches."""
    tokens = work.rows * (1 + work.samples) * work.question
    return (
        encoding(model, work.rows * work.context, work.context)
        + memory_of_contexts(model, work.rows * work.context)
        + decoding(model, tokens, work.question / 2, work.context)
    )


def scoring(reward: str, work: Work, *, questions: int) -> float:
    """A metric over `questions` questions of each of the contexts, all different, contexts not seen before."""
    models = [ARCHITECTURES[name] for name in REWARDS[reward]]
    pairs, length = work.rows * questions, work.context + work.question
    if reward == "QRelScore":
        bert, gpt2 = models
        read = encoding(bert, pairs * (length + 3), length + 3)
        read += encoding(gpt2, pairs * length, length) + encoding(gpt2, work.rows * work.context, work.context)
        return read + head(gpt2) * (pairs + work.rows) * work.context
    (model,) = models
    if reward == "QAScore":
        passes, length = pairs * work.answer, length + work.answer + 2
        return encoding(model, passes * length, length) + passes * (head(model) + 2 * model.width**2)
    return (
        encoding(model, work.rows * work.context, work.context)
        + memory_of_contexts(model, work.rows * work.context)
        + decoding(model, pairs * work.question, work.question, work.context)
    )


# --- Bytes ---

KEPT = {"float32": 12.2, "bfloat16": 8.0}
"""Bytes kept for the backward pass, per token, layer and unit of width, heads and feed-forward. Fitted to 18 runs."""
KEPT_ATTENTION = {"float32": 17.0, "bfloat16": 17.5}
"""The same for each head and pair of tokens, where attention is not fused (T5 on a CPU). Fitted to the same runs."""
LOGIT = 14
"""At the peak, per logit: bf16, float32, log-softmax and its gradient. Assumed; the 4 of the log-softmax measured."""
SCORING = 2e9
"""What a metric computes with, 32 pairs of 512 tokens in float32. Assumed (`rewards.frozen` bounds it)."""
CONTEXT = 2e9
"""CUDA, NCCL and gaps in the allocator. Assumed."""
BUCKET, LIVE = 5e8, 1e9
"""DeepSpeed's defaults: parameters in a bucket, and gathered parameters kept for use again (ZeRO-3)."""

WAYS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP", "ZeRO-2, offload", "ZeRO-3, offload")


def activations(
    model: Architecture, work: Work, *, rows: int, recompute: bool = False, dtype: str = "bfloat16"
) -> float:
    """Bytes at the beginning of the backward pass, with `rows` questions for each context."""
    sizes = model.width + model.heads_width + model.feed_forward
    number = 4 if dtype == "float32" else 2
    encoder, texts = work.rows * work.context, work.rows * rows
    decoder = texts * work.question
    logits = LOGIT * decoder * model.vocabulary
    memory = texts * work.context * 2 * model.heads_width * number
    own = KEPT[dtype] * (encoder * sizes + decoder * (sizes + model.width + model.heads_width)) + memory
    if model.heads_width != model.width:
        heads = model.heads_width // 128
        own += KEPT_ATTENTION[dtype] * heads * (encoder * work.context + decoder * (work.question + work.context))
    layers = model.encoder_layers  # as many in the decoder
    if recompute:  # the input of each layer, and one layer whole
        return (encoder + decoder) * model.width * number * layers + own + logits
    return layers * own + logits


def states(model: Architecture, way: str, gpus: int) -> float:
    """Bytes of weights, gradients and Adam's two moments on one GPU in bf16 training.

    DDP: float32 weights, gradients and moments, a bf16 copy of the weights under autocast, and, from two GPUs on, the
    buckets. ZeRO: bf16 weights and gradients, float32 weights and moments.
    """
    count, share = model.parameters, model.parameters / gpus
    if way == "DDP":
        return count * (4 + 4 + 8 + 2 + (4 if gpus > 1 else 0))
    if way == "FSDP":
        return 16 * share + 2 * 2 * count / (model.encoder_layers + model.decoder_layers) + 2 * _embeddings(model)
    buckets = 2 * 2 * min(count, BUCKET)
    if way.startswith("ZeRO-3"):
        live = 2 * min(count, LIVE)
        return live + buckets + (0 if "offload" in way else 16 * share)
    return 2 * count + buckets + (0 if "offload" in way else 14 * share)


def on_host(model: Architecture, way: str, gpus: int) -> float:
    """Bytes in the memory of a machine with up to eight GPUs."""
    if "offload" not in way:
        return 0.0
    return model.parameters * (16 if "ZeRO-3" in way else 14) * min(8, gpus) / gpus


def memory(
    model: Architecture,
    way: str,
    gpus: int,
    work: Work,
    *,
    reward: str | None = "QRelScore",
    watch_kl: bool = True,
    recompute: bool = False,
) -> float:
    """Bytes on one GPU at the peak of a self-critical step with a reward in float32: during rollout, scoring or
    update. Without a reward: of an update by cross-entropy.
    """
    if reward is None:
        return states(model, way, gpus) + CONTEXT + activations(model, work, rows=1, recompute=recompute)
    number = 4 if way in ("DDP", "FSDP") else 2
    standing = states(model, way, gpus) + CONTEXT
    standing += 4 * sum(ARCHITECTURES[name].parameters for name in REWARDS[reward])
    if watch_kl:
        standing += number * model.parameters
    copy = number * model.parameters if way.startswith(("ZeRO-3", "FSDP")) else 0  # whole weights to sample from
    texts = work.rows * (1 + work.samples)
    caches = texts * (work.question + work.context) * model.decoder_layers * 2 * model.heads_width * 2
    rollout_peak = copy + caches + LOGIT * texts * model.vocabulary
    return standing + max(rollout_peak, SCORING, activations(model, work, rows=1 + work.samples, recompute=recompute))


def _embeddings(model: Architecture) -> float:
    return model.width * model.vocabulary


# --- Communication ---


def sent(model: Architecture, way: str, gpus: int, *, rollout: bool) -> float:
    """Bytes that one GPU sends in an update (in a ring, an all-reduce counts twice); `rollout`: with one before it."""
    count, ring = model.parameters, (gpus - 1) / gpus
    if way == "DDP":
        return ring * 2 * 4 * count
    if way == "FSDP":
        return ring * count * (2 + 2 + 2 + (4 if rollout else 0))
    if way.startswith("ZeRO-3"):
        return ring * 2 * count * (gathers(model) + 1 + (1 if rollout else 0))
    return ring * 2 * count * (2 + 1)


def gathers(model: Architecture, live: float = LIVE) -> float:
    """How often ZeRO-3 gathers a parameter in an update: once where all may stay for the backward pass; otherwise
    twice, and five times the embeddings that encoder, decoder and head share.
    """
    if model.parameters <= live:
        return 1.0
    shared = _embeddings(model) / model.parameters
    return 2 * (1 - shared) + 5 * shared


# --- Seconds ---


@dataclass(frozen=True)
class Machine:
    """A GPU, its links, and the share of each that is reached. Inputs, not claims: data sheets of an H200 with eight
    to a machine; the shares are guesses to be replaced by what you measure.
    """

    bf16: float = 990e12
    float32: float = 67e12
    """PyTorch's default does not use the tensor cores for float32."""
    reached: float = 0.4
    memory: float = 4.8e12 * 0.7
    link: float = 450e9 * 0.7
    network: float = 400e9 * 0.7
    """Eight cards of 400 Gbit/s to a machine, all in use."""
    host: float = 55e9 * 0.7
    """To the host and back, per GPU."""
    layer_step: float = 0.5e-3
    """A decoder layer for one token, however many rows: the time to launch its kernels one by one."""

    def compute(self, operations: float, dtype: str = "bfloat16") -> float:
        """Seconds of products."""
        return operations / (self.reached * (self.bf16 if dtype == "bfloat16" else self.float32))

    def decode(self, model: Architecture, tokens: int, operations: float) -> float:
        """Seconds of `tokens` steps of the decoder: launching, reading weights or computing, whichever is longest."""
        read = tokens * 2 * (model.parameters - self.encoder_weights(model)) / self.memory
        return max(tokens * model.decoder_layers * self.layer_step, read, self.compute(operations))

    @staticmethod
    def encoder_weights(model: Architecture) -> float:
        """Weights that a step of decoding does not read."""
        per_layer = 4 * model.width * model.heads_width + 2 * model.width * model.feed_forward
        return model.encoder_layers * per_layer

    def communicate(self, size: float, gpus: int) -> float:
        """Seconds, as if nothing was hidden behind the backward pass."""
        return size / (self.link if gpus <= 8 else self.network)

    def offload(self, model: Architecture, way: str, gpus: int) -> float:
        """Seconds for gradients to the host and weights back; ZeRO-3 fetches its share for each gathering."""
        if "offload" not in way:
            return 0.0
        times = 2 + (gathers(model) if "ZeRO-3" in way else 0)
        return times * 2 * model.parameters / gpus / self.host


def self_critical_step(
    machine: Machine, model: Architecture, way: str, gpus: int, work: Work, *, reward: str, reward_dtype: str
) -> dict[str, float]:
    """Seconds of the parts of a step; a text of context and question is new to the reward."""
    rows = 1 + work.samples
    encoder = encoding(model, work.rows * work.context, work.context)
    decoder = rollout(model, work) - encoder
    adam = 30 * model.parameters / (1 if way == "DDP" else gpus) / machine.memory
    return {
        "rollout": machine.compute(encoder) + machine.decode(model, work.question, decoder),
        "reward": machine.compute(scoring(reward, work, questions=rows), reward_dtype),
        "update": machine.compute(update(model, work, rows=rows)) + adam + machine.offload(model, way, gpus),
        "communication": machine.communicate(sent(model, way, gpus, rollout=True), gpus),
    }


def cross_entropy_step(machine: Machine, model: Architecture, way: str, gpus: int, work: Work) -> float:
    """Seconds of an update on gold questions."""
    adam = 30 * model.parameters / (1 if way == "DDP" else gpus) / machine.memory
    seconds = machine.compute(update(model, work, rows=1)) + adam + machine.offload(model, way, gpus)
    return seconds + machine.communicate(sent(model, way, gpus, rollout=False), gpus)


def beams_step(machine: Machine, model: Architecture, work: Work, *, beams: int) -> float:
    """Seconds for the beams of a batch of contexts; each beam carries the keys and values of its context."""
    wide = Work(work.rows, work.context, work.question, samples=beams - 1)
    encoder = encoding(model, work.rows * work.context, work.context)
    cache = work.rows * beams * (work.context + work.question) * model.decoder_layers * 2 * model.heads_width * 2
    decoder = machine.decode(model, work.question, rollout(model, wide) - encoder)
    return machine.compute(encoder) + decoder + 2 * work.question * cache / machine.memory
