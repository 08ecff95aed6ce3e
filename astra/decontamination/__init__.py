"""Nothing that a benchmark asks may be trained on: training rows against fingerprints of benchmarks.

A row's tools (names, parameter sets, descriptions) and its user messages are compared with what the benchmarks at hand
hold. Of a benchmark only hashes and vectors are kept, never its text. A row that is too like a case is a hit, and
``report.clearance`` lets training go on only where every benchmark was either looked at or waived by name. This file
imports nothing, so that who needs only ``encoder`` depends on nothing else.
"""
