"""The built-in policy's tokenizer, made from the run's own texts."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from astra.chat.templates import MARKS, TINY

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
BUILTIN_PHRASES = ("The answer is ", " and ", "Next: ", "I cannot answer: no tool gives the ")
# What every conversation of the built-in format repeats, as single tokens: the tiny policy decides names and values,
# not punctuation. None crosses the border of what the model writes, so sampled ids and rendered ids agree.
_SCAFFOLD = (
    f"{START}system\n",
    f"{START}user\n",
    f"\n{START}user\n",
    f"\n{START}assistant\n",
    f"\n{START}user\n<tool_response>\n",
    f"\n</tool_response>{END}\n{START}assistant\n",
    '\n<tool_call>\n{"name": "',
    '<tool_call>\n{"name": "',
    '", "arguments": {"',
    '": "',
    '"}}\n</tool_call>',
    '{"result": "',
    '{"result": ',
    '"}',
    "): ",
)


def build_tokenizer(
    texts: Iterable[str], names: Iterable[str], phrases: Iterable[str], n_pieces: int
) -> PreTrainedTokenizerFast:
    """A BPE tokenizer over the run's own texts.

    ``names`` (tools, entities: whole words; those in ASCII), ``phrases`` (anywhere) and the format's scaffolding become
    single tokens.
    Digits, capitals in a row and full stops stand alone; all else is split into at most ``n_pieces`` pieces that
    ``texts`` suggest, which may span several words.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|[.\n_]|[A-Z](?=[A-Z])|[A-Z][a-z]*"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_pieces,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    marks = (*MARKS, *_SCAFFOLD, *sorted(set(phrases)))
    # the byte-level decoder reads a token's letters as bytes: a whole token such as Córdoba would come back as others
    words = sorted(name for name in set(names) if name.isascii())
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=PAD)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in marks])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False, single_word=True) for text in words])
    tokenizer.chat_template = TINY
    return tokenizer
