"""The plain loops: one example at a time, as the released code goes about it. The slow side of the comparison."""

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer


class Plain:
    """A tokenizer and a model as `from_pretrained` gives them."""

    def __init__(self, auto, folder: str, **options) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = auto.from_pretrained(folder, **options).eval()

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


class PlainQRelScore:
    def __init__(self, encoder: str, decoder: str) -> None:
        self.bert = Plain(AutoModel, encoder, attn_implementation="eager")
        self.gpt2 = Plain(AutoModelForCausalLM, decoder)

    @torch.no_grad()
    def __call__(self, question: str, context: str, answer: str) -> float:
        tokenizer = self.bert.tokenizer
        q = self.bert.ids(question)
        c = self.bert.ids(context)[: 512 - 3 - len(q)]
        ids = [tokenizer.cls_token_id, *q, tokenizer.sep_token_id, *c, tokenizer.sep_token_id]
        types = [0] * (len(q) + 2) + [1] * (len(c) + 1)
        out = self.bert.model(
            input_ids=torch.tensor([ids]),
            token_type_ids=torch.tensor([types]),
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
        marker = self.gpt2.tokenizer.bos_token_id
        ids = torch.tensor([[marker, *self.gpt2.ids(text), marker]])
        logits = self.gpt2.model(ids).logits
        return cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none").neg().exp().mean().item()


class PlainQAScore:
    def __init__(self, model: str) -> None:
        self.roberta = Plain(AutoModelForMaskedLM, model)

    @torch.no_grad()
    def __call__(self, question: str, context: str, answer: str) -> float:
        sep, mask = self.roberta.tokenizer.sep_token_id, self.roberta.tokenizer.mask_token_id
        tokens = self.roberta.ids(answer)
        ids = torch.tensor([*self.roberta.ids(context), sep, *self.roberta.ids(question), sep, *tokens][-512:])
        total = 0.0
        for at in range(len(ids) - len(tokens), len(ids)):
            masked = ids.clone()
            masked[at] = mask
            logits = self.roberta.model(masked[None]).logits
            total += logits[0, at].log_softmax(-1)[ids[at]].item()
        return total


class PlainBARTScore:
    def __init__(self, model: str) -> None:
        self.bart = Plain(AutoModelForSeq2SeqLM, model)

    @torch.no_grad()
    def __call__(self, question: str, context: str, answer: str) -> float:
        source = self.bart.tokenizer(context, return_tensors="pt", truncation=True, max_length=1024)
        target = self.bart.tokenizer(question, return_tensors="pt")["input_ids"]
        logits = self.bart.model(**source, labels=target).logits
        return -cross_entropy(logits[0], target[0]).item()
