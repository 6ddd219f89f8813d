"""Alembic's entry point: runs the migrations on the connection that ``services.core.db.migrate`` holds."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
