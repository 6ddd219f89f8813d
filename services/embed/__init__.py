"""Text to vectors, from side-loaded model directories.

Invariants: a vector is a function of its text and of the model's files alone, never of what it was batched with; and
no import of this package can reach the network, because the switches are set here, before anything else is imported.
"""

from services.embed.offline import enforce_offline

enforce_offline()
