"""Decisions: mining the records of a project, linking them, and answering why.

Invariant: a decision is what its record says at one generation. Nothing is stored of a text but where its parts stand,
so spans and texts always agree; a superseded record stays and says by what it was superseded.
"""
