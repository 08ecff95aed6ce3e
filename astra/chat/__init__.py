"""Messages and tools <-> token ids and loss mask, for training, rollouts, evaluation and serving alike."""

from astra.chat.chat import Chat, Encoded, NotTrainable
from astra.chat.templates import Carried, ChatError, Choice
from astra.chat.tokenizer import BUILTIN_PHRASES, build_tokenizer

__all__ = ["BUILTIN_PHRASES", "Carried", "Chat", "ChatError", "Choice", "Encoded", "NotTrainable", "build_tokenizer"]
