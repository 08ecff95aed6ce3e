"""Tools as code for questions: documents, calls, data and functions, asked of a model and checked (section 3.3.2)."""

from astra.synthesis.lost import Lost
from astra.synthesis.making import Sizes, Synthesis
from astra.synthesis.writing import Writer

__all__ = ["Lost", "Sizes", "Synthesis", "Writer"]
