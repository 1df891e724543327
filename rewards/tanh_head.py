"""Token classifiers whose head has a tanh layer before its linear one, as the predictor of the KPQA paper.

Source: Lee et al., "KPQA: A Metric for Generative Question Answering Using Keyphrase Weights", NAACL 2021, appendix
C.1: BERT with one fully-connected layer of 768 units and tanh, then a softmax layer. A folder says by `TOKEN_HEAD` in
its `config.json` that its model has this head; without that key it has the library's linear one.
"""

from typing import Any

from torch import Tensor, nn
from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING

from rewards.pretrained import ModelFault

TOKEN_HEAD = "token_head"
"""Key of a configuration: `linear` (where it is missing too) or `tanh`."""

HEADS = ("linear", "tanh")


class TanhHead(nn.Module):
    """Class logits from states: linear(tanh(dense(states))); [..., width] to [..., classes]."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, classes)

    def forward(self, states: Tensor) -> Tensor:
        """Return the logits of each state."""
        return self.out(self.dense(states).tanh())


def token_classifier(config: Any) -> Any:
    """Return the class of token classifiers of a configuration, with `from_pretrained`.

    Raises:
        ModelFault: there is no such head, or the architecture has no linear head that it could replace.
    """
    plain: Any = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING[type(config)]
    head = getattr(config, TOKEN_HEAD, HEADS[0])
    if head not in HEADS:
        raise ModelFault(f"its head {head!r} is not one of {', '.join(HEADS)}")
    if head == "linear":
        return plain

    class WithTanhHead(plain):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            if not isinstance(getattr(self, "classifier", None), nn.Linear):
                raise ModelFault(f"a {plain.__name__} has no linear head that one with a tanh layer could replace")
            self.classifier = TanhHead(config.hidden_size, config.num_labels)
            self.post_init()  # initialises the new layers

    WithTanhHead.__name__ = WithTanhHead.__qualname__ = f"{plain.__name__}WithTanhHead"
    return WithTanhHead
