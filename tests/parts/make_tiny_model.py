"""``python make_tiny_model.py FOLDER``: the smallest model that Dynamo's mocker engine takes; no weights.

The mocker invents its tokens, so only a tokenizer and a configuration are needed. The tokenizer is a byte-level BPE of
exactly `VOCABULARY` tokens, trained on words made of syllables: the same files come out each time. Run by the Python
that Dynamo is installed for, which has the package tokenizers.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 8192
CONTEXT_TOKENS = 8192
TEXT_START, TEXT_END, TURN_START, TURN_END = SPECIAL = ("<text>", "</text>", "<turn>", "</turn>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{TURN_START}{{{{ message['role'] }}}}\n{{{{ message['content'] }}}}{TURN_END}\n"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{TURN_START}assistant\n{{% endif %}}"
)


def corpus() -> Iterator[str]:
    """Lines of made-up words, enough of them for every merge that is wanted."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    pairs = ["".join(pair) for pair in itertools.product(syllables, repeat=2)]
    triples = [pair + syllables[number % len(syllables)] for number, pair in enumerate(pairs)]
    yield "system user assistant hello world"
    words = pairs + triples
    for start in range(0, len(words), 40):
        yield " ".join(words[start : start + 40])


def train() -> Any:
    """The tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the corpus gave {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}")
    return tokenizer


def documents(tokenizer: Any) -> dict[str, dict[str, Any]]:
    """The files beside the tokenizer's own, by name: a llama of two layers that no one ever runs."""
    ends = {"bos_token_id": tokenizer.token_to_id(TEXT_START), "eos_token_id": tokenizer.token_to_id(TURN_END)}
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    kind = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32"}
    return {
        "config.json": kind
        | shape
        | heads
        | ends
        | {"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT_TOKENS, "tie_word_embeddings": True}
        | {"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10_000.0},
        "generation_config.json": ends,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": TEXT_START,
            "eos_token": TURN_END,
            "model_max_length": CONTEXT_TOKENS,
            "chat_template": CHAT_TEMPLATE,
        },
    }


def main(folder: Path) -> None:
    """Write the model. ``config.json`` is written last: where it is, the model is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, document in sorted(documents(tokenizer).items(), reverse=True):
        (folder / name).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
