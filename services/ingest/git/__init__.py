"""Git repositories as sources: the files of one commit, by a git program that runs in a process of its own.

Invariants: git is started from a helper that holds no channel, no connection and no secret (grpc/grpc#22624), and dies
with it; nothing of a repository is run, no prompt waits, and no host is reached that the service was not configured to
reach; a repository that is mounted is read where it is and never written to.
"""
