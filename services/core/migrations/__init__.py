"""Numbered forward migrations, each the SQL file of its own name; safe with the previous release running."""
