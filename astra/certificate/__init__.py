"""The certificate of an arena: what was shown on its final bytes, and how to show it again."""

from astra.certificate.cache import Kept
from astra.certificate.certifying import Failures, Playable, artifact, certify, playable, seal, verify
from astra.certificate.trials import trial
from astra.certificate.variants import drawn, honest_end, label_of

__all__ = [
    "Failures",
    "Kept",
    "Playable",
    "artifact",
    "certify",
    "drawn",
    "honest_end",
    "label_of",
    "playable",
    "seal",
    "trial",
    "verify",
]
