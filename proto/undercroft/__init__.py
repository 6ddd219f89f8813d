"""Stubs of the four services and a small Python client.

Needs grpcio, protobuf and googleapis-common-protos only. ``undercroft.<area>.v1`` holds the generated stubs;
``undercroft.client`` opens channels and turns failed calls into errors with their next step.
"""
