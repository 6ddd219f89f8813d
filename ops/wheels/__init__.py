"""The wheel mirror: filled from the hash-locked sets, indexed for pip, and proven complete without an index.

What a set names is in the mirror, and what is in the mirror is named by a set: every file, by its SHA-256. Needs
nothing but Python 3.11 and pip, so that it runs where an image is built: ``python -m ops.wheels --help``.
"""
