#!/usr/bin/env python3
"""Time the retrieval service beside one of the Search-R1 kind (tools/bench_retrieve_peer.py: FastAPI and faiss' flat index).

Both search the same vectors, with the same number of threads, and get the vectors of queries ready-made, so that no encoder takes
part. Vectors are directions around random centres, one centre for a hundred of them: normal(centre) + 0.7 normal, of length 1;
queries are more of the same. Clients are connections that send the next request when the reply is there, from one asyncio process
that is the same for both. The services are asked in turns, so that both see the same load of the machine; printed are the queries
per second of all rounds and the ratio of the medians, behind it those of the rounds. Then, for our own: time and size of the index,
time of a single query, and the share of the exact 10 best that approximate search finds.
"""
import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np


def synthetic(rows, dimensions, centres, seed):
    random = np.random.default_rng(seed)
    vectors = np.empty((rows, dimensions), dtype=np.float32)
    for first in range(0, rows, 1 << 16):
        part = vectors[first : first + (1 << 16)]
        part[:] = centres[random.integers(len(centres), size=len(part))]
        part += 0.7 * random.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def requests(queries, topk):
    """Whole HTTP requests of one query each."""
    texts = []
    for query in queries:
        body = json.dumps({"vectors": [[round(float(x), 6) for x in query]], "topk": topk}).encode()
        head = f"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        texts.append(head.encode() + body)
    return texts


async def ask(connection, request):
    """Sends a request and returns the body of the reply."""
    reader, writer = connection
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if " 200 " not in head.split("\r\n")[0]:
        raise RuntimeError(f"the service answered {head!r}")
    if "content-length:" in head:
        return await reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))
    body = b""
    while size := int((await reader.readline()).strip(), 16):  # chunked
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


async def load(port, texts, clients, seconds):
    """Queries per second of so many clients."""
    end, count, turn = time.monotonic() + seconds, 0, iter(range(1 << 60))

    async def client():
        nonlocal count
        connection = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        while time.monotonic() < end:
            await ask(connection, texts[next(turn) % len(texts)])
            count += 1
        connection[1].close()

    begin = time.monotonic()
    await asyncio.gather(*(client() for _ in range(clients)))
    return count / (time.monotonic() - begin)


async def one_by_one(port, texts):
    """The ids found for each request, and the median time of one in milliseconds."""
    connection = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    found, times = [], []
    for text in texts:
        begin = time.monotonic()
        result = json.loads(await ask(connection, text))["result"][0]
        times.append(1000 * (time.monotonic() - begin))
        found.append([document["id"] for document in result])
    connection[1].close()
    return found, statistics.median(times)


def wait_for(port, process):
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"{process.args[0]} ended with {process.returncode}")


def resident(process):
    """Memory of a process in MiB; what is mapped from files, which others share, apart."""
    fields = dict(line.split(":", 1) for line in open(f"/proc/{process.pid}/status", encoding="ascii"))
    own, mapped = (int(fields[name].split()[0]) // 1024 for name in ("RssAnon", "RssFile"))
    return f"{own} MiB of its own, {mapped} MiB of files"


def write_inputs(folder, args):
    centres = np.random.default_rng(args.seed).standard_normal((max(1, args.rows // 100), args.dimensions), dtype=np.float32)
    np.save(os.path.join(folder, "vectors.npy"), synthetic(args.rows, args.dimensions, centres, args.seed + 1))
    with open(os.path.join(folder, "corpus.jsonl"), "w", encoding="utf-8") as file:
        for row in range(args.rows):
            file.write(json.dumps({"id": str(row), "contents": f'"Passage {row}"\nText of passage {row}.'}) + "\n")
    return synthetic(args.queries, args.dimensions, centres, args.seed + 2)


def build(folder, args):
    """Builds an index with a graph; prints what it takes."""
    path, index = os.path.join(folder, "index.toml"), os.path.join(folder, "index")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"""[index]
dir = "{index}"
corpus = "{folder}/corpus.jsonl"
methods = ["dense"]
[encoder]
vectors = "{folder}/vectors.npy"
device = "cpu"
threads = {args.threads}
[graph]
build = {str(args.graph).lower()}
m = {args.m}
ef_construction = {args.ef_construction}
""")
    begin = time.monotonic()
    subprocess.run([args.program, "index", path], check=True, stdout=subprocess.DEVNULL)
    size = sum(os.path.getsize(os.path.join(index, name)) for name in os.listdir(index))
    print(f"index: {time.monotonic() - begin:.1f} s, {size / 2**20:.0f} MiB on disk", flush=True)
    return index


def serve_ours(folder, index, port, args, *sets):
    path = os.path.join(folder, "retrieve.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'[retrieve]\nindex = "{index}"\nlisten = "127.0.0.1:{port}"\n[encoder]\ndevice = "cpu"\nthreads = {args.threads}\n')
    command = [args.program, "retrieve", path]
    for key in sets:
        command += ["--set", key]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("listening"):
            return process
    sys.exit("our service did not begin")


def side_by_side(folder, index, texts, args):
    ports = {"ours": free_port(), "peer": free_port()}
    processes = {"ours": serve_ours(folder, index, ports["ours"], args), "peer": subprocess.Popen([
        sys.executable, os.path.join(os.path.dirname(__file__), "bench_retrieve_peer.py"), "--corpus", f"{folder}/corpus.jsonl",
        "--vectors", f"{folder}/vectors.npy", "--port", str(ports["peer"]), "--threads", str(args.threads)])}
    try:
        wait_for(ports["peer"], processes["peer"])
        rates = {name: [] for name in ports}
        for name, port in ports.items():
            asyncio.run(load(port, texts, args.clients, min(2, args.seconds)))  # warm
        for _ in range(args.rounds):
            for name, port in ports.items():
                rates[name].append(asyncio.run(load(port, texts, args.clients, args.seconds)))
        for name, all_rates in rates.items():
            print(f"{name}: queries per second {' '.join(f'{rate:.1f}' for rate in all_rates)}; {resident(processes[name])}")
        singles = " ".join(f"{a / b:.2f}" for a, b in zip(rates["ours"], rates["peer"]))
        print(f"ratio: {statistics.median(rates['ours']) / statistics.median(rates['peer']):.2f} ({singles})", flush=True)
        ours, milliseconds = asyncio.run(one_by_one(ports["ours"], texts[: args.checked]))
        peers, peer_milliseconds = asyncio.run(one_by_one(ports["peer"], texts[: args.checked]))
        same = sum(set(a) == set(b) for a, b in zip(ours, peers))
        print(f"one client: {milliseconds:.1f} ms a query, the peer {peer_milliseconds:.1f} ms; the same passages for {same} of {len(ours)} queries")
        return ours
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()


def approximate(folder, index, texts, exact, args):
    for ef in args.ef:
        port = free_port()
        process = serve_ours(folder, index, port, args, "retrieve.approximate=true", f"retrieve.ef={ef}")
        try:
            found, milliseconds = asyncio.run(one_by_one(port, texts[: args.checked]))
            recall = statistics.mean(len(set(a) & set(b)) / len(b) for a, b in zip(found, exact))
            rate = asyncio.run(load(port, texts, args.clients, args.seconds))
            print(f"approximate, ef {ef}: recall@{args.topk} {recall:.3f}, {milliseconds:.1f} ms a query, {rate:.1f} queries per second; {resident(process)}", flush=True)
        finally:
            process.terminate()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="bin/mempo-train")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--checked", type=int, default=200, help="queries that are asked one by one")
    parser.add_argument("--topk", type=int, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--m", type=int, default=32)
    parser.add_argument("--ef-construction", type=int, default=200)
    parser.add_argument("--ef", type=int, nargs="+", default=[64, 128, 256])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts = requests(write_inputs(folder, args), args.topk)
        index = build(folder, args)
        exact = side_by_side(folder, index, texts, args)
        if args.graph:
            approximate(folder, index, texts, exact, args)


if __name__ == "__main__":
    main()
