"""Where a record comes from, and what became of it: ``python -m astra.lineage ID``, from the files of a run alone."""
