"""The paper's ablations: which arms there are, how they are run as DVC experiments, what came of them."""
