"""Awaiting operations."""


async def wait_for(op):
    """Wait for an Op without blocking the event loop, and return its result."""
    import asyncio
    import os

    if not op.done():
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        fd = op.open_fd()
        loop.add_reader(fd, lambda: ended.done() or ended.set_result(None))
        try:
            await ended
        except asyncio.CancelledError:
            op.cancel()
            del op  # The exception keeps this frame. Without another user the operation ends here.
            raise
        finally:
            loop.remove_reader(fd)
            os.close(fd)
    return op.wait()
