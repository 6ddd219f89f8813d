"""Dependencies: what a project declares, which file of the wheel directory that is, and what such a file holds.

Invariant: manifests, wheels and sdists are read as data. Nothing of them is imported, installed, built or run, no
address in them is followed, and nothing is read or written outside the folders that the caller names.
"""
