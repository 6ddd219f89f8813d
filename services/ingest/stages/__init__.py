"""The stages of an index run, one module each: scope, discover, extract, embed, publish.

A stage leaves what it has done in Postgres under the run's id, so that a run that is taken up again goes on after it.
Only publish changes what readers see.
"""
