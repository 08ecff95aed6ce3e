"""From knowledge to questions with verified sub-questions: sources, deterministic checks, judgement.

A *source* yields briefs: tables of facts, text corpora, given questions. A *brief* is what one question is made from;
the teacher's reply to its prompt, where it has one, becomes a *draft*. Every draft passes the same checks, whatever
wrote it.
"""
