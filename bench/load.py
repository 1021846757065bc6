"""The load: wrk where it is installed, else an aiohttp client in a process of its own (which costs 30-40 %).

As a script it is that client: `python -m bench.load URL CONNECTIONS SECONDS [TOKEN [BODY_FILE]]`.
"""

import asyncio
import itertools
import json
import re
import shutil
import ssl
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.cluster import BenchFailed

_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
NAME = "@NAME@"
"""Stands in a body for a name that no other request has."""

_POST = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local made = 0
function request()
  made = made + 1
  return wrk.format(nil, nil, nil, {before} .. {run} .. made .. {after})
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What a server is asked: GETs, or POSTs of `body`, which holds NAME once.

    Each of the `connections` waits for its answer before it asks again.
    """

    url: str
    token: str = ""
    connections: int = 1
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Rate:
    """Answers per second and the median time of one, in ms."""

    per_second: float
    p50_ms: float


def tool() -> str:
    """Which client makes the load."""
    return "wrk" if shutil.which("wrk") else "aiohttp client"


async def drive(load: Load, seconds: float, folder: Path) -> Rate:
    """Puts the load on for about `seconds`. BenchFailed when any answer was no success."""
    return await (_wrk if shutil.which("wrk") else _client)(load, seconds, folder)


async def _output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output = (await process.communicate())[0].decode()
    if process.returncode:
        raise BenchFailed(f"{command[0]}: exit code {process.returncode}\n{output}")
    return output


async def _wrk(load: Load, seconds: float, folder: Path) -> Rate:
    command = ["wrk", "-t1", f"-c{load.connections}", f"-d{max(1, round(seconds))}s", "--latency"]
    if load.token:
        command += ["-H", f"Authorization: Bearer {load.token}"]
    if load.body:
        script = folder / "post.lua"
        before, after = (json.dumps(part) for part in load.body.decode().split(NAME))
        run = json.dumps(f"n{time.monotonic_ns()}-")
        script.write_text(_POST.format(before=before, run=run, after=after))
        command += ["-s", str(script)]
    output = await _output(*command, load.url)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    p50 = re.search(r"50%\s+([\d.]+)(us|ms|s)", output)
    if rate is None or p50 is None or "Non-2xx" in output or "Socket errors" in output:
        raise BenchFailed(f"wrk {load.url}:\n{output}")
    return Rate(float(rate.group(1)), float(p50.group(1)) * _UNITS[p50.group(2)])


async def _client(load: Load, seconds: float, folder: Path) -> Rate:
    command = [sys.executable, "-m", "bench.load", load.url, str(load.connections), str(seconds), load.token]
    if load.body:
        (folder / "body.json").write_bytes(load.body)
        command.append(str(folder / "body.json"))
    return Rate(**json.loads(await _output(*command)))


async def _own_load(load: Load, seconds: float) -> Rate:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {load.token}"} if load.token else {}
    if load.body:
        headers["Content-Type"] = "application/json"
    times: list[float] = []
    begun = time.perf_counter()
    names = (f"n{time.monotonic_ns()}-{number}".encode() for number in itertools.count())

    def body() -> bytes | None:
        return load.body.replace(NAME.encode(), next(names)) if load.body else None

    async def one(session: aiohttp.ClientSession) -> None:
        while (now := time.perf_counter()) - begun < seconds:
            async with session.request(
                "POST" if load.body else "GET", load.url, data=body(), headers=headers
            ) as response:
                await response.read()
                if response.status >= 300:
                    raise BenchFailed(f"{load.url}: {response.status}")
            times.append(time.perf_counter() - now)

    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(one(session) for _ in range(load.connections)))
    return Rate(len(times) / (time.perf_counter() - begun), sorted(times)[len(times) // 2] * 1000)


def main(url: str, connections: str, seconds: str, token: str = "", body_file: str = "") -> None:
    """The client process: prints its Rate as JSON."""
    body = Path(body_file).read_bytes() if body_file else b""
    rate = asyncio.run(_own_load(Load(url, token, int(connections), body), float(seconds)))
    print(json.dumps({"per_second": rate.per_second, "p50_ms": rate.p50_ms}))


if __name__ == "__main__":
    main(*sys.argv[1:])
