"""Ingest: from the files of a source to one published generation.

Invariant: every file of a source is either indexed or listed with the reason why it is not; nothing is dropped in
silence, and one bad file never stops the rest.
"""
