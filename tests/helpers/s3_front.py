"""The process behind `s3.S3Server`: moto, and in front of it what adds latency and faults.

Run it, do not import it.

Moto answers everything: buckets, listings, HEAD, writes, conditions, errors. One short cut is
taken, because a GET
costs moto 4 ms of a core: its reply to a whole object is remembered, in memory, until a write to
that object or to its bucket passes through, and signed requests for some of its bytes (a-b, a- or
-n that exist, If-Match that holds) are cut from that. No one else knows moto's port, so what is
remembered is what moto would say; test_s3.py compares the two.

Commands come in on stdin and answers go out on stdout, a line of JSON each. The end of stdin ends
the process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import re
import sys
import time
from collections import Counter
from urllib.parse import unquote, urlsplit

from moto.server import ThreadedMotoServer

from helpers.s3_faults import Entry, Faults
from helpers.s3_http import Reply, Request, ask, receive, send

HOST, BACKLOG, ORPHAN_S = "127.0.0.1", 1024, 1.0
WHOLE = {  # how the front reads an object for itself; moto wants a signature but does not check it
    "host": HOST,
    "authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request",
    "x-amz-checksum-mode": "ENABLED",
}
ERRORS = {
    "500": ("InternalError", "We encountered an internal error. Please try again."),
    "503": ("SlowDown", "Please reduce your request rate."),
}
XML = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>'


class Front:
    """Takes requests, decides what goes wrong, and keeps the log."""

    def __init__(self, moto: tuple[str, int]) -> None:
        self.moto = moto
        self.objects: dict[str, asyncio.Task[Reply]] = {}  # whole objects by path
        self.log: list[Entry] = []
        self.set_faults()

    def set_faults(self, **faults) -> None:
        self.faults, self.asked = Faults(**faults), Counter()
        self.only = re.compile(self.faults.only)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upcoming = asyncio.create_task(receive(reader, writer))
        try:
            while (request := await upcoming).method:
                upcoming = asyncio.create_task(receive(reader, writer))
                if not await self.serve(request, upcoming, writer):
                    break
        except ConnectionError:
            pass  # the client has gone
        finally:
            upcoming.cancel()
            writer.close()

    async def serve(
        self, request: Request, upcoming: asyncio.Task[Request], writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request as the faults have it. False: the connection has to end.

        Clients send no second request before the reply to the first: if `upcoming` is there, they
        have gone.
        """
        if "x-unfaulted" in request.headers:
            await send(writer, request, await self.answer(request))
            return True
        url, span = urlsplit(request.target), request.headers.get("range", "")
        entry = Entry(request.method, unquote(url.path), url.query, span, request.at_s)
        self.log.append(entry)
        try:
            wait_s = self.befall(entry, request)
            if entry.fault in ERRORS:
                error = XML.format(*ERRORS[entry.fault]).encode()
                reply = Reply(int(entry.fault), [("content-type", "application/xml")], error)
            else:
                reply = await self.answer(request)
            await asyncio.wait(
                [upcoming], timeout=max(0.0, request.at_s + wait_s - time.monotonic())
            )
            if entry.fault == "drop" or upcoming.done():
                return False
            entry.status, broken = reply.status, entry.fault in ("cut", "reset")
            entry.sent = await send(writer, request, reply, 0.5 if broken else 1.0)
            if entry.fault == "reset":
                writer.transport.abort()
            return not broken
        finally:
            entry.end_s = upcoming.result().at_s if upcoming.done() else time.monotonic()

    def befall(self, entry: Entry, request: Request) -> float:
        """Note the fault of a request; seconds until its reply."""
        what = f"{entry.method} {entry.path}" + (f"?{entry.query}" if entry.query else "")
        if not self.only.search(what):
            return 0.0
        same = f"{what} {entry.range}"
        entry.fault, wait_s = self.faults.outcome(same, self.asked[same])
        self.asked[same] += 1
        if not self.faults.ranges:
            request.headers.pop("range", None)
        return self.faults.hang_s if entry.fault == "timeout" else wait_s

    async def answer(self, request: Request) -> Reply:
        """What moto says, or has said."""
        if request.method not in ("GET", "HEAD"):
            self.forget(request.path)
            try:
                return await asyncio.to_thread(ask, self.moto, request)
            finally:
                self.forget(request.path)  # what a GET brought while the write was under way
        if request.reads_object():
            whole = await self.whole(request.path)
            if whole.status == 200 and (part := whole.part(request)):
                return part
        return await asyncio.to_thread(ask, self.moto, request)

    async def whole(self, path: str) -> Reply:
        """Moto's reply to a GET of all of an object; asked for once, however many wait for it."""
        if path not in self.objects:
            asked = asyncio.to_thread(ask, self.moto, Request(time.monotonic(), "GET", path, WHOLE))
            self.objects[path] = asyncio.create_task(asked)
        task = self.objects[path]
        await asyncio.wait([task])
        if task.exception() or task.result().status != 200:
            self.forget(path)
        return task.result()

    def forget(self, path: str) -> None:
        """Drop an object, or all of a bucket."""
        folder = path.rstrip("/") + "/"
        for known in [known for known in self.objects if known == path or known.startswith(folder)]:
            del self.objects[known]

    def command(self, name: str, faults: dict) -> object:
        """Carry out what the test's side asks for."""
        if name == "faults":
            return self.set_faults(**faults)
        entries = [dataclasses.astuple(entry) for entry in self.log]
        if name == "clear":
            self.log = []
        return entries


async def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would write a line per request
    moto = ThreadedMotoServer(HOST, 0, verbose=False)
    moto.start()
    front = Front(moto.get_host_and_port())
    server = await asyncio.start_server(front.connected, HOST, 0, backlog=BACKLOG)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    watch = asyncio.create_task(end_with(os.getppid()))
    print(server.sockets[0].getsockname()[1], flush=True)
    while line := await orders.readline():
        print(json.dumps(front.command(**json.loads(line))), flush=True)
    watch.cancel()
    os._exit(0)  # moto's threads, hung requests and open connections need no farewell


async def end_with(parent: int) -> None:
    """End this process when its parent has: a fork of the parent's may hold the other end of stdin
    open.
    """
    while os.getppid() == parent:
        await asyncio.sleep(ORPHAN_S)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
