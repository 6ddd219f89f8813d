"""Ingest's share of the database, one module per noun. Rows stop here: callers get domain values.

Every call on data of a project takes the caller's ``Visible`` or an id that was resolved with it.
"""
