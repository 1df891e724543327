"""The plain loops: one example at a time, as the released code goes about it. The slow side of the comparison."""

import math

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)


class Plain:
    """A tokenizer and a model as `from_pretrained` gives them. `options` are those of the model, and `device`."""

    def __init__(self, auto, folder: str, *, device: str = "cpu", **options) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self.model = auto.from_pretrained(folder, trust_remote_code=False, **options).eval().to(device)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def tensor(self, ids: list) -> torch.Tensor:
        return torch.tensor(ids, device=self.model.device)


class PlainQRelScore:
    def __init__(self, encoder: str, decoder: str, **options) -> None:
        self.bert = Plain(AutoModel, encoder, attn_implementation="eager", **options)
        self.gpt2 = Plain(AutoModelForCausalLM, decoder, **options)

    @torch.no_grad()
    def __call__(self, question: str, context: str, answer: str) -> float:
        tokenizer = self.bert.tokenizer
        q = self.bert.ids(question)
        c = self.bert.ids(context)[: 512 - 3 - len(q)]
        ids = [tokenizer.cls_token_id, *q, tokenizer.sep_token_id, *c, tokenizer.sep_token_id]
        types = [0] * (len(q) + 2) + [1] * (len(c) + 1)
        out = self.bert.model(
            input_ids=self.bert.tensor([ids]),
            token_type_ids=self.bert.tensor([types]),
            output_attentions=True,
            output_hidden_states=True,
        )
        attention = torch.stack(out.attentions, 1)[0].amax(1)[:, 1 : len(q), len(q) + 2 : -2]
        hidden = torch.stack(out.hidden_states[1:], 1)[0]
        unit = hidden / hidden.norm(dim=-1, keepdim=True)
        cosine = unit[:, 1 : len(q)] @ unit[:, len(q) + 2 : -2].transpose(1, 2)
        local = cosine.gather(-1, attention.argmax(-1, keepdim=True)).mean().item()
        base, prompt = self.confidence(context), self.confidence(question + " " + context)
        gain = max(0.0, (prompt - base) / base)
        return 2 * local * gain / (local + gain + 1e-8)

    def confidence(self, text: str) -> float:
        tokenizer = self.gpt2.tokenizer
        ids = self.gpt2.tensor([[tokenizer.bos_token_id, *self.gpt2.ids(text), tokenizer.eos_token_id]])
        logits = self.gpt2.model(ids).logits.float()
        return cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none").neg().exp().mean().item()


class PlainQAScore:
    def __init__(self, model: str, **options) -> None:
        self.roberta = Plain(AutoModelForMaskedLM, model, **options)

    @torch.no_grad()
    def __call__(self, question: str, context: str, answer: str) -> float:
        sep, mask = self.roberta.tokenizer.sep_token_id, self.roberta.tokenizer.mask_token_id
        tokens = self.roberta.ids(answer)
        ids = self.roberta.tensor([*self.roberta.ids(context), sep, *self.roberta.ids(question), sep, *tokens][-512:])
        total = 0.0
        for at in range(len(ids) - len(tokens), len(ids)):
            masked = ids.clone()
            masked[at] = mask
            logits = self.roberta.model(masked[None]).logits.float()
            total += logits[0, at].log_softmax(-1)[ids[at]].item()
        return total


class PlainBARTScore:
    def __init__(self, model: str, **options) -> None:
        self.bart = Plain(AutoModelForSeq2SeqLM, model, **options)

    @torch.no_grad()
    def __call__(self, question: str, context: str, answer: str) -> float:
        source = self.bart.tensor([self.bart.tokenizer(context, truncation=True, max_length=1024)["input_ids"]])
        target = self.bart.tensor([self.bart.tokenizer(question)["input_ids"]])
        logits = self.bart.model(input_ids=source, labels=target).logits.float()
        return -cross_entropy(logits[0], target[0]).item()


class PlainReader:
    """Of passages that one window holds."""

    def __init__(self, model: str, **options) -> None:
        self.reader = Plain(AutoModelForQuestionAnswering, model, **options)

    @torch.no_grad()
    def __call__(self, question: str, context: str, answer: str) -> float:
        encoded = self.reader.tokenizer(
            question, context, truncation="only_second", max_length=384, return_offsets_mapping=True
        )
        inside = [at for at, part in enumerate(encoded.sequence_ids()) if part == 1]
        out = self.reader.model(self.reader.tensor([encoded["input_ids"]]))
        start, end = (logits[0, inside].float().log_softmax(-1) for logits in (out.start_logits, out.end_logits))
        offsets = [encoded["offset_mapping"][at] for at in inside]
        places, at = [-30.0], context.find(answer)
        while at >= 0:
            touching = [n for n, (first, last) in enumerate(offsets) if first < at + len(answer) and last > at]
            places.append((start[touching[0]] + end[touching[-1]]).item())
            at = context.find(answer, at + 1)
        return math.exp(max(places))
