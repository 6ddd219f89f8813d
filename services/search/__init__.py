"""Search: finding chunks, symbols and references in published generations.

It only reads, and one answer is of one generation of each project: chunks, vectors, lexical index, graph, decisions.
"""
