#!/usr/bin/python3
"""Soak of the KV tiers (docs/kv-tiers.md): two engines with one folder and one Redis, and everything that goes wrong.

Four clients talk to both engines; every answer must equal that of a third engine that caches nothing. Meanwhile one
engine and Redis are killed and stopped again and again, the folder becomes full or read-only, and somebody adds up the
folder's bytes. Ends with one line of counts; exit status 1 when anything was not as it should be.

As root it runs in a mount namespace of its own, where the folder is a small tmpfs; as anybody else it takes the
right to write away from the folder. Root without that right skips this fault and says so.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
FOLDER_MIB = 6
REDIS_MIB = 6
HOST_MIB = 6
CLIENTS = 4
SLOWEST_ANSWER = 120  # seconds; an answer that takes longer hangs
REDIS_PROGRAMS = ("/usr/bin/redis-server", "/usr/bin/redis-check-rdb")
WORDS = ("the a little old fox river tree star house wind ran saw sat told found under over with and then boy girl "
         "dog boat mountain key door song night morning blue green quiet happy").split()

failures: list[str] = []
pause = threading.Event().wait  # between two looks at the same thing


def fail(what: str) -> None:
    failures.append(what)
    print(f"kv_soak: {what}", file=sys.stderr, flush=True)


def wait_until(what: str, condition, seconds: float = 90) -> bool:
    """Looks until it is so. The time is for tests that fail."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        pause(0.05)
    fail(f"not within {seconds} s: {what}")
    return False


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; children are started by the main thread


class Engine:
    """`deepinfer serve`, which may be killed and started again."""

    def __init__(self, name: str, flags: argparse.Namespace, folder: Path, more: list[str]) -> None:
        self.name = name
        self.command = [
            flags.program, "serve", "--model", flags.model, "--port", "0", "--response-store", "memory", "--access-log",
            "off", "--threads", "1", "--ctx", "4096", "--max-num-seqs", "4", "--replay-grid", "1024", "--thinking",
            "off", *more,
        ]
        self.log = folder / f"{name}.log"
        self.lives = 0
        self.up = False
        self.evicted: dict[str, float] = {}  # by tier, of earlier lives

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stderr=log, stdout=log, preexec_fn=die_with_parent)
        ports: list[str] = []

        def told() -> bool:
            ports[:] = re.findall(r"is served at http://127\.0\.0\.1:(\d+)", self.log.read_text(errors="replace"))
            return len(ports) > self.lives or self.process.poll() is not None

        wait_until(f"{self.name} is served", told)
        if len(ports) <= self.lives:
            raise SystemExit(f"kv_soak: {self.name} does not start")
        self.port = int(ports[-1])
        self.up = True

    def kill(self) -> None:
        self.up = False
        self.lives += 1  # who fails from here on was in flight
        for tier, count in self.metric("kv_tier_evicted_records_total").items():
            self.evicted[tier] = self.evicted.get(tier, 0) + count
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.up = False
        self.process.terminate()
        try:
            status = self.process.wait(SLOWEST_ANSWER)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "killed, because it hung"
        if status != 0:
            fail(f"{self.name} ends with {status}")

    def leave(self, body: dict, seconds: float) -> None:
        """Asks, and goes away after so long."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SLOWEST_ANSWER)
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        pause(seconds)
        connection.close()

    def call(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SLOWEST_ANSWER)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def ask(self, body: dict) -> dict:
        status, text = self.call("POST", "/v1/chat/completions", json.dumps(body))
        if status != 200:
            raise RuntimeError(f"status {status}: {text}")
        return json.loads(text)

    def metric(self, family: str) -> dict[str, float]:
        """By tier."""
        page = self.call("GET", "/metrics")[1]
        pattern = rf'^\w*{family}\{{[^}}]*tier="(\w+)"[^}}]*\}} (\S+)$'
        return {tier: float(value) for tier, value in re.findall(pattern, page, re.MULTILINE)}

    def tier_is_up(self, tier: str) -> bool:
        return self.metric("kv_tier_up").get(tier) == 1

    def is_at_rest(self) -> bool:
        load = json.loads(self.call("GET", "/load")[1])
        free_or_cached = load["kv_blocks_free"] + load["kv_blocks_cached"]
        return load["running"] == load["waiting"] == 0 and free_or_cached == load["kv_blocks"]

    def anonymous_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Anonymous: +(\d+) kB", text, re.MULTILINE).group(1)) / 1024


class Redis:
    """A server on a unix socket, that keeps nothing when it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = next((path for path in REDIS_PROGRAMS if os.access(path, os.X_OK)), None)
        self.socket = folder / "redis.socket"

    def start(self) -> None:
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir", str(self.folder),
             "--daemonize", "no", "--maxmemory", f"{REDIS_MIB}mb", "--maxmemory-policy", "allkeys-lru"],
            executable=self.program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Folder:
    """The tier's folder: how large it is, and how it fails."""

    def __init__(self, path: Path, own_mounts: bool) -> None:
        self.path = path
        self.budget = FOLDER_MIB * MIB
        self.most = 0
        self.looks = 0
        self.stop = threading.Event()
        path.mkdir(mode=0o700)
        self.fault = None
        if own_mounts:
            size = self.budget * 9 // 8
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(path)], check=True)
            self.fault = "full"
        elif os.geteuid() != 0:
            self.fault = "read-only"
        self.tier = path / "kv"
        self.ballast = path / "ballast"

    def sizes(self) -> dict[int, int]:
        """Bytes by inode."""
        found = {}
        folders = [self.tier]
        while folders:
            try:
                for entry in os.scandir(folders.pop()):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        info = entry.stat(follow_symlinks=False)
                        found[info.st_ino] = info.st_size
            except (FileNotFoundError, PermissionError):
                pass
        return found

    def watch(self) -> None:
        # A listing takes time, and files come and go meanwhile. What two listings have in common was there at the
        # moment between them.
        before = self.sizes()
        while not self.stop.wait(0.01):
            now = self.sizes()
            total = sum(min(size, before[file]) for file, size in now.items() if file in before)
            if total > self.budget * 1.02 and self.most <= self.budget * 1.02:
                fail(f"the folder has {total} bytes, the budget is {self.budget}")
            self.most = max(self.most, total)
            self.looks += 1
            before = now

    def break_it(self) -> None:
        """To be called until it shows: the tier makes room for itself."""
        if self.fault == "read-only":
            for folder, _, _ in os.walk(self.tier):
                os.chmod(folder, 0o500)
            return
        for log in self.path.glob("*.log"):
            with log.open("ab") as file:
                file.write(b"\n" * (-log.stat().st_size % 4096))  # no line fits into its last page
        with self.ballast.open("ab", buffering=0) as file:
            for size in (MIB, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def repair(self) -> None:
        if self.fault == "read-only":
            for folder, _, _ in os.walk(self.tier):
                os.chmod(folder, 0o700)
        else:
            self.ballast.unlink()


def prose(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(words))


class Soak:
    """What the clients share."""

    def __init__(self, seed: int, engines: list[Engine], reference: Engine) -> None:
        self.engines = engines
        self.reference = reference
        self.lock = threading.Lock()
        self.stop = threading.Event()
        dice = random.Random(seed)
        self.systems = [prose(dice, words) for words in (250, 400, 700, 900)]
        self.conversations: list[dict] = []
        self.earlier: list[dict] = []
        self.known: dict[str, dict] = {}  # answers of the reference by request
        self.counts = {"requests": 0, "repeated": 0, "stopped": 0, "left": 0, "lost": 0, "differences": 0}
        self.hits: dict[str, int] = {}
        self.slowest = {engine.name: 0.0 for engine in engines}  # answer, seconds

    def client(self, seed: int) -> None:
        dice = random.Random(seed)
        while not self.stop.is_set():
            try:
                self.turn(dice)
            except Exception as error:  # whatever it is: the soak has failed
                fail(f"client {seed}: {error!r}")

    def turn(self, dice: random.Random) -> None:
        kind = dice.random()
        with self.lock:
            if kind < 0.4 and self.earlier:
                body, conversation = dice.choice(self.earlier[-300:]), None
                self.counts["repeated"] += 1
            elif kind < 0.8 and self.conversations:
                conversation = self.conversations.pop(dice.randrange(len(self.conversations)))
            else:
                conversation = {"messages": [{"role": "system", "content": dice.choice(self.systems)}],
                                "replay": dice.choice(["exact", "bounded"]), "cache_salt": dice.choice(["", "", "blue"])}
        if conversation is not None:
            conversation["messages"].append({"role": "user", "content": prose(dice, dice.randrange(20, 150))})
            body = {**conversation, "messages": list(conversation["messages"]), "model": "nano", "max_tokens": 120,
                    "logprobs": True, "seed": dice.randrange(1000), "temperature": dice.choice([0, 0, 0.7, 1])}
        answer = self.ask(dice, body)
        if answer is None:
            return
        expected = self.expected(body)
        with self.lock:
            self.counts["requests"] += 1
            self.counts["stopped"] += answer["choices"][0]["finish_reason"] == "stop"
            self.count_hits(answer["usage"])
            if answer["choices"] != expected["choices"]:
                self.counts["differences"] += 1
                fail(f"another answer than without a cache:\nrequest {json.dumps(body)}\n"
                     f"answer {json.dumps(answer)}\nexpected {json.dumps(expected)}")
            if conversation is not None:
                self.earlier.append(body)
                conversation["messages"].append(
                    {"role": "assistant", "content": expected["choices"][0]["message"]["content"]})
                if expected["usage"]["prompt_tokens"] < 2500:
                    self.conversations.append(conversation)

    def choose(self, dice: random.Random) -> tuple[Engine, int]:
        """An engine and the life that it is in."""
        while True:
            engine = dice.choice(self.engines)
            life = engine.lives
            if engine.up:
                return engine, life

    def ask(self, dice: random.Random, body: dict) -> dict | None:
        """None: the engine was killed meanwhile."""
        engine, life = self.choose(dice)
        begin = time.monotonic()
        try:
            if dice.random() < 0.1:
                engine.leave(body, dice.random() / 3)
                with self.lock:
                    self.counts["left"] += 1
            answer = engine.ask(body)
            self.slowest[engine.name] = max(self.slowest[engine.name], time.monotonic() - begin)
            return answer
        except (OSError, http.client.HTTPException) as error:
            if engine.lives == life:
                fail(f"{engine.name} does not answer ({error!r}):\nrequest {json.dumps(body)}")
            with self.lock:
                self.counts["lost"] += 1
            return None

    def expected(self, body: dict) -> dict:
        key = json.dumps(body)
        with self.lock:
            answer = self.known.get(key)
        if answer is None:
            answer = self.reference.ask(body)
            with self.lock:
                self.known[key] = answer
        return answer

    def count_hits(self, usage: dict) -> None:
        details = usage.get("prompt_tokens_details", {})
        by_tier = details.get("cached_tokens_by_tier", {"device": details.get("cached_tokens", 0)})
        for tier, tokens in by_tier.items():
            self.hits[tier] = self.hits.get(tier, 0) + tokens


class Faults:
    """What the main thread does to the others."""

    def __init__(self, dice: random.Random, engines: list[Engine], redis: Redis, folder: Folder) -> None:
        self.dice = dice
        self.engines = engines
        self.redis = redis
        self.folder = folder
        self.counts: dict[str, int] = {}

    def all_kinds(self) -> list:
        kinds = [self.kill_engine, self.stop_engine]
        if self.redis.program:
            kinds += [self.kill_redis, self.stop_redis]
        if self.folder.fault:
            kinds.append(self.break_folder)
        return kinds

    def do(self, fault) -> None:
        fault()
        self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1

    def kill_engine(self) -> None:
        self.engines[0].kill()
        pause(self.dice.random())
        self.engines[0].start()

    def stop_engine(self) -> None:
        """Maybe while it holds the folder's lock."""
        self.engines[0].process.send_signal(signal.SIGSTOP)
        pause(1 + 3 * self.dice.random())
        self.engines[0].process.send_signal(signal.SIGCONT)

    def kill_redis(self) -> None:
        self.redis.kill()
        self.expect("redis", all, False)
        self.redis.start()
        self.expect("redis", all, True)

    def stop_redis(self) -> None:
        self.redis.process.send_signal(signal.SIGSTOP)
        self.expect("redis", all, False)
        pause(2 * self.dice.random())
        self.redis.process.send_signal(signal.SIGCONT)
        self.expect("redis", all, True)

    def break_folder(self) -> None:
        self.expect("disk", any, False, self.folder.break_it)
        pause(3 * self.dice.random())
        self.folder.repair()
        self.expect("disk", all, True)

    def expect(self, tier: str, which, up: bool, meanwhile=lambda: None) -> None:
        def seen() -> bool:
            meanwhile()
            return which(engine.tier_is_up(tier) == up for engine in self.engines)

        wait_until(f"/metrics of {which.__name__} says that {tier} is {'up' if up else 'down'}", seen)


def check_inheritance(soak: Soak) -> int:
    """What an engine has written before it was killed is found by the other; tokens."""
    first, second = soak.engines
    dice = random.Random(0)
    bodies = [{"model": "nano", "messages": [{"role": "user", "content": prose(dice, 700)}], "max_tokens": 40,
               "temperature": 0, "logprobs": True, "replay": replay, "cache_salt": "heirs"}
              for replay in ("exact", "bounded", "exact", "bounded")]
    answers = [first.ask(body) for body in bodies]
    wait_until("everything is written", lambda: not any(first.metric("kv_tier_queued_bytes").values()))
    wait_until("no pins are left", first.is_at_rest)
    first.kill()
    tokens = 0
    for body, answer in zip(bodies, answers):
        again = second.ask(body)
        if again["choices"] != answer["choices"]:
            fail(f"the heir answers differently:\nrequest {json.dumps(body)}")
        by_tier = again["usage"]["prompt_tokens_details"].get("cached_tokens_by_tier", {})
        tokens += sum(count for tier, count in by_tier.items() if tier != "device")
    if tokens == 0:
        fail("nothing is found of what the killed engine has written")
    return tokens


def run(flags: argparse.Namespace, scratch: Path, own_mounts: bool) -> None:
    folder = Folder(scratch / "disk", own_mounts)
    redis = Redis(scratch)
    tiers = ["--kv-memory", "2MiB", "--snapshot-memory", "2MiB", "--kv-host-gib", str(HOST_MIB / 1024), "--kv-disk",
             str(folder.tier), "--kv-disk-gib", str(FOLDER_MIB / 1024)]
    if redis.program:
        redis.start()
        tiers += ["--kv-shared", f"redis+unix://{redis.socket}"]
    else:
        print("kv_soak: no redis-server here (Debian's redis-tools has one): runs without Redis")
    if not folder.fault:
        print("kv_soak: root is not stopped by modes, and may not mount here: the folder stays as it is")
    # Their logs are on the file system that becomes full.
    engines = [Engine(name, flags, folder.path, tiers) for name in ("first", "second")]
    reference = Engine("reference", flags, scratch, ["--no-prefix-cache", "--kv-host-gib", "0"])
    for engine in (*engines, reference):
        engine.start()

    soak = Soak(flags.seed, engines, reference)
    faults = Faults(random.Random(flags.seed), engines, redis, folder)
    threads = [threading.Thread(target=soak.client, args=(flags.seed * 1000 + i,)) for i in range(CLIENTS)]
    watcher = threading.Thread(target=folder.watch, daemon=True)
    for thread in (*threads, watcher):
        thread.start()
    begin = time.monotonic()
    memory = []
    kinds: list = []
    try:
        while not failures:
            if not kinds:
                kinds = faults.all_kinds()
                faults.dice.shuffle(kinds)
            pause(3 * faults.dice.random())
            faults.do(kinds.pop())
            memory.append(engines[1].anonymous_mib())
            if len(memory) >= len(faults.all_kinds()) and time.monotonic() - begin >= flags.seconds:
                break
    finally:
        soak.stop.set()
        for thread in threads:
            thread.join()
    for engine in engines:
        wait_until(f"{engine.name} has no pins", engine.is_at_rest)
    inherited = check_inheritance(soak)
    wait_until("second has no pins", engines[1].is_at_rest)
    evicted = engines[1].metric("kv_tier_evicted_records_total")
    for tier, count in engines[0].evicted.items():
        evicted[tier] = evicted.get(tier, 0) + count
    corrupt = sum(engines[1].metric("kv_tier_corrupt_records_total").values())
    engines[1].end()
    reference.end()
    if redis.program:
        redis.kill()
    folder.stop.set()
    watcher.join()
    verify = subprocess.run([flags.program, "kv", "verify", "--kv-disk", str(folder.tier)], capture_output=True,
                            text=True)
    if verify.returncode != 0:
        fail(f"kv verify: {verify.stdout}{verify.stderr}")
    if soak.counts["stopped"] == 0:
        fail("no answer has ended by itself")

    def listed(counts: dict) -> str:
        return ", ".join(f"{name} {count:.0f}" for name, count in counts.items())

    print(f"kv_soak: seed {flags.seed}, {time.monotonic() - begin:.0f} s: {listed(soak.counts)}; "
          f"hit tokens: {listed(soak.hits)}, of a killed engine {inherited}; faults: {listed(faults.counts)}; "
          f"evicted records: {listed(evicted)}; corrupt {corrupt:.0f}; slowest answers in s: {listed(soak.slowest)}; "
          f"folder at most {100 * folder.most / folder.budget:.1f} % of its budget in {folder.looks} looks; anonymous "
          f"memory of the second engine in MiB, from start to end: "
          f"{' '.join(f'{memory[i * (len(memory) - 1) // 6]:.0f}' for i in range(7))}; "
          f"{len(failures)} failures", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="at least; every fault comes once in any case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default=str(ROOT / "build/release/deepinfer"))
    parser.add_argument("--model", default=str(ROOT / "models/nano"))
    parser.add_argument("--own-mounts", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if os.geteuid() == 0 and not flags.own_mounts:
        with tempfile.TemporaryDirectory() as place:
            trial = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", place], capture_output=True)
        if trial.returncode == 0:
            os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv, "--own-mounts"])
    with tempfile.TemporaryDirectory(prefix="kv_soak.") as scratch:
        try:
            run(flags, Path(scratch), flags.own_mounts)
        finally:
            if failures or sys.exc_info()[0]:
                for log in sorted(Path(scratch).rglob("*.log")):
                    print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            if flags.own_mounts:
                subprocess.run(["umount", "--lazy", f"{scratch}/disk"], check=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
