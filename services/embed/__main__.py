"""``python -m services.embed``."""

from services.embed.server import main

if __name__ == "__main__":
    main()
