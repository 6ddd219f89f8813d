"""The appliance on one machine: an embedded Postgres and a supervisor of the four services.

Invariant: whatever is killed, and whenever, the next ``undercroft up`` finds a data directory that it can serve and
``undercroft down`` leaves nothing running. Every process is recognised by pid, start time and boot, never by pid alone.
"""
