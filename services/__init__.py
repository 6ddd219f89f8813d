"""Undercroft's implementation: four gRPC services, the embedded appliance and the command line.

Imports point one way: cli and appliance -> server -> service -> domain modules -> store and core.
Services know each other only through the stubs in ``proto/undercroft``.
"""
