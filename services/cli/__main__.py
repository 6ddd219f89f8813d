"""``python -m services.cli``: the ``undercroft`` command where its script is not installed."""

from services.cli import main

if __name__ == "__main__":
    main()
