"""Wait until the database holds the schema of this release: await.py SECONDS."""

import asyncio
import os
import sys
import time

import psycopg

from services.core.conninfo import check_conninfo
from services.core.db import Database, check_schema


async def look(url: str) -> None:
    # A pool would try for 30 s, with a line in the log for each attempt.
    connection = await psycopg.AsyncConnection.connect(url, connect_timeout=5)
    await connection.close()
    database = Database(url, size=1)
    await database.open()
    try:
        await check_schema(database)
    finally:
        await database.close()


def main(seconds: float) -> None:
    until = time.monotonic() + seconds
    told = ""
    try:
        url = check_conninfo(os.environ["UNDERCROFT_DATABASE_URL"].strip())
    except ValueError as error:
        sys.exit(f"UNDERCROFT_DATABASE_URL {error}")
    while True:
        try:
            asyncio.run(look(url))
        except Exception as error:
            reason = str(error).strip()
            if getattr(error, "reason", "") == "SCHEMA_LATER" or time.monotonic() > until:
                sys.exit(f"waiting for the schema ends: {reason}")
            if reason != told:
                print(f"waiting for the schema: {reason}", flush=True)
                told = reason
            time.sleep(1)
        else:
            return


main(float(sys.argv[1]))
