"""Calls of a session are awaited in asyncio, and one that takes too long is stopped."""

import asyncio
import time

import slotwise


async def main(session: slotwise.Session) -> None:
    first, second = session.submit(pow, 2, 10), session.submit(pow, 3, 5)
    print(await first, await second)
    print(await asyncio.gather(*(session.submit(abs, -n) for n in range(4))))
    with session.executor(pool="people") as executor:
        loop = asyncio.get_running_loop()
        print(await loop.run_in_executor(executor, len, "abc"))
    endless = session.submit(time.sleep, 3600)
    try:
        async with asyncio.timeout(0.1):
            await endless
    except TimeoutError:
        print("cancelled:", endless.cancelled())


if __name__ == "__main__":
    with slotwise.Session(2) as session:
        asyncio.run(main(session))
