"""Numbers for fake_serve.py: a machine of three GPUs with as many sessions as a test wants."""

import datetime
import math
import re

GIB = 1 << 30
CARD = 80 * GIB
CONTEXT = GIB // 4
USERS = ("anna", "ben", "chen", "dora", "emil", "fatima", "gustav")
RUNS = ("film", "mnist", "fold", "whisper", "sweep", "eval", "notebook")
PROJECTS = ("vision", "speech", None)
AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
FIRST_DAY_S = 20 * 86400  # the accounts begin so long ago


def uuid_of(gpu):
    return f"GPU-00000000-0000-0000-0000-00000000000{gpu}"


def text_of(unix_s):
    return datetime.datetime.fromtimestamp(unix_s, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time_of(text, now):
    """`7d`, `now` or RFC 3339; ValueError for anything else."""
    if text == "now":
        return now
    age = re.fullmatch(r"(\d+)([smhdw])", text)
    if age:
        return now - int(age[1]) * AGES[age[2]]
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def seconds_of(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text)
    if not match:
        raise ValueError(f"'{text}' is no time")
    return float(match[1]) * {"ms": 0.001, None: 1, **AGES}[match[2]]


def sessions_of(count, now, names=()):
    """`names`: of the first sessions."""
    sessions = []
    for number in range(count):
        gpu, turn = number % 3, int(now / 4)
        on_gpu = (count - gpu + 2) // 3
        rank = (number // 3 - turn) % on_gpu  # 0 holds it
        state, code, place = "idle", None, None
        if rank == 0:
            state = "running"
        elif rank < 4 or number % 5 == 0:
            state, code, place = "waiting", "turn", rank
        if number == 7:
            state, code, place = "suspended", None, None
        size = (4 + number * 7 % 23) * GIB
        resident = size if rank == 0 else size * (8 - min(rank, 7)) // 8 // (1 + number % 3)
        name = names[number] if number < len(names) else f"{RUNS[number % 7]}-{number // 7 + 1}"
        sessions.append({
            "id": number + 1, "run": 1000 + number, "name": name, "program": "python3",
            "pid": 4000 + number, "uid": 1000 + number % 7, "user": USERS[number % 7],
            "project": PROJECTS[number % 3] or "", "gpu": gpu,
            "class": "interactive" if number % 4 else "batch",
            "state": state, "state_text": state, "since": text_of(now - 3 - number % 50),
            "reason_code": code, "place": place,
            "reason": None if code is None else "1st in line",
            "expected_wait_s": None if code is None else 13.4 * place, "held_by": [],
            "blocks_since": None, "suspended": state == "suspended",
            "suspended_by_uid": 0 if state == "suspended" else None,
            "limited_by_uid": None, "limited_since": None,
            "waited_s": 40.0 + number, "held_s": 90.0, "active_s": 80.0, "elapsed_s": 400.0,
            "leases": 3, "handovers": 2, "handovers_per_minute": 1.5,
            "utilisation": 0.9 if state == "running" else 0.0,
            "allocated_bytes": size, "resident_bytes": resident, "swapped_bytes": size - resident,
            "exchanged_bytes": 0, "credit_bytes": resident, "limit_bytes": CARD, "contexts": 1,
            "fixed_bytes": 0, "host_share_bytes": size, "host_file_bytes": 0,
            "out_bytes": size, "in_bytes": size, "share": "1", "user_share": "1",
        })  # fmt: skip
    for session in sessions:
        if session["state"] == "waiting":
            session["held_by"] = [
                each["id"] for each in sessions
                if each["gpu"] == session["gpu"] and each["state"] == "running"
            ]  # fmt: skip
    return sessions


def gpu_of(index, sessions, now):
    mine = [each for each in sessions if each["gpu"] == index]
    foreign = 3 * GIB if index == 1 else 0
    used = sum(each["resident_bytes"] + CONTEXT for each in mine)
    room = CARD - 2 * GIB - foreign
    if used > room:  # as the daemon would: no more than fits
        for each in mine:
            each["resident_bytes"] = int(each["resident_bytes"] * max(0, room - CONTEXT * len(mine)) / used)
            each["swapped_bytes"] = each["allocated_bytes"] - each["resident_bytes"]
        used = sum(each["resident_bytes"] + CONTEXT for each in mine)
    of_state = lambda state: [each["id"] for each in mine if each["state"] == state]  # noqa: E731
    busy = 0.55 + 0.25 * math.sin(now / 9 + index) + 0.15 * math.sin(now / 2.3 + 2 * index)
    return {
        "index": index, "uuid": uuid_of(index),
        "name": "Made up, 80 GiB", "software": True, "card_bytes": CARD,
        "budget_bytes": room, "charged_bytes": used, "free_bytes": room - used,
        "foreign_bytes": foreign, "chunk_bytes": 2 << 20, "context_bytes": CONTEXT,
        "holders": of_state("running"), "waiting": of_state("waiting"),
        "suspended": of_state("suspended"), "restoring": None, "blocked_by": [],
        "policy": ("interactive", "fair", "priority")[index], "mode": "turns",
        "held_s": 5000.0, "busy_s": 4100.0, "quantum_s": 3.3, "switch_cost_s": 0.166,
        "handovers": 420, "handovers_per_minute": 14.2, "out_bytes": 9 * GIB, "in_bytes": 8 * GIB,
        "utilisation": busy if of_state("running") else 0.0,
    }  # fmt: skip


def live(count, now, names=()):
    """An object as of `tandem top --json`."""
    sessions = sessions_of(count, now, names)
    return {
        "at": text_of(now), "version": "0.1.0", "pid": 77, "uptime_s": 86400.0,
        "socket": "/run/tandem/tandemd.sock", "chaos_seed": None, "policies": [],
        "events_file": None, "accounts_file": None, "host_limit_bytes": 512 * GIB,
        "host_promised_bytes": 200 * GIB, "spill_limit_bytes": 0, "spill_promised_bytes": 0,
        "spill_directory": "", "runs": [], "sessions": sessions,
        "gpus": [gpu_of(index, sessions, now) for index in range(3)],
    }  # fmt: skip


def _wave(at, number):
    """Use in the course of days, in 0..1: little at night and at the weekend."""
    when = datetime.datetime.fromtimestamp(at)
    hour = when.hour + when.minute / 60
    day = max(0.08, math.sin((hour - 7 - number % 3) / 13 * math.pi)) if 6 < hour < 23 else 0.08
    week = 0.3 if when.weekday() >= 5 else 1
    return max(0.0, min(1.0, day * week * (0.75 + 0.25 * math.sin(at / 700 + number * 2))))


def keys_of(by):
    return {
        "gpu": ["gpu0", "gpu1", "gpu2"],
        "user": list(USERS),
        "project": ["vision", "speech", ""],
    }[by]


def history(since, until, by, points, now):
    span = until - since
    if span <= 3 * 3600 + 60:
        step = max(10, math.ceil(span / points / 10) * 10)
    else:
        step = max(3600, math.ceil(span / points / 3600) * 3600)
    first = math.floor(since / step) * step
    times = list(range(int(first), int(until), int(step)))
    keys = keys_of(by)
    series = []
    for number, key in enumerate(keys):
        part = 1 if by == "gpu" else 3 / len(keys)
        one = {"key": key}
        wave = [None if at < now - FIRST_DAY_S else _wave(at, number) for at in times]

        def scaled(factor):
            return [None if value is None else value * factor for value in wave]  # noqa: B023

        one["held_s"], one["active_s"] = scaled(step * part), scaled(step * part * 0.85)
        one["waited_s"] = [None if value is None else 3 * value**3 * step * part for value in wave]
        one["allocated_bytes"] = scaled(110 * GIB * part)
        one["resident_bytes"] = scaled(74 * GIB * part)
        one["swapped_bytes"] = scaled(36 * GIB * part)
        series.append(one)
    return {
        "since": text_of(since), "until": text_of(until), "step_s": step, "by": by, "times": times,
        "series": series, "complete_since": text_of(now - FIRST_DAY_S),
    }  # fmt: skip


AMOUNTS = ("held_s", "active_s", "waited_s", "allocated_byte_s", "resident_byte_s", "swapped_byte_s",
           "handovers", "out_bytes", "in_bytes", "sessions", "share")  # fmt: skip


def _row(weight, span):
    return {
        "held_s": weight * span, "active_s": 0.85 * weight * span, "waited_s": weight**2 * span,
        "allocated_byte_s": 30 * GIB * weight * span, "resident_byte_s": 20 * GIB * weight * span,
        "swapped_byte_s": 10 * GIB * weight * span, "handovers": int(4000 * weight),
        "out_bytes": int(9e12 * weight), "in_bytes": int(8e12 * weight),
        "sessions": 1 + int(90 * weight), "share": weight / 3,
    }  # fmt: skip


def report(since, until, by, names):
    span = until - since
    values = {"user": USERS, "project": PROJECTS, "gpu": [uuid_of(number) for number in range(3)],
              "run": list(names) + [f"{run}-1" for run in RUNS]}  # fmt: skip
    if by in ("day", "hour"):
        step = 86400 if by == "day" else 3600
        starts = range(int(since // step * step), int(until), step)
        keys = [datetime.datetime.fromtimestamp(at).astimezone().isoformat() for at in starts]
        rows = [{by: key, **_row(3 * _wave(at + step / 2, 0), step)} for key, at in zip(keys, starts)]
    else:
        keys = values[by]
        rows = [{by: key, **_row(0.9 / (2 + number), span)} for number, key in enumerate(keys)]
    total = {amount: sum(row[amount] for row in rows) for amount in AMOUNTS}
    return {"format": 1, "since": text_of(since), "until": text_of(until), "by": by,
            "gpus": values["gpu"], "rows": rows, "sum": total}  # fmt: skip


def _poisson_sum(upto, x):
    """Sum of x^k/k! for k up to `upto`, times e^-x."""
    if upto < 0:
        return 0.0
    term = total = math.exp(-x)
    for k in range(1, upto + 1):
        term *= x / k
        total += term
    return total


def _point(users, burst, pause, gpus):
    """docs/plan.md for one GPU; for several roughly, as one of their joint speed."""
    z = pause * gpus / burst
    utilisation = _poisson_sum(users - 1, z) / _poisson_sum(users, z)
    wait = max(0.0, users * burst / utilisation / gpus - pause - burst)
    over = lambda t: _poisson_sum(users - 2, z + t * gpus / burst) / _poisson_sum(users - 1, z)  # noqa: E731
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) > 0.01 else (low, middle)
    return {"users": users, "mean_wait_s": wait, "p99_wait_s": high, "switch_s": 0.0,
            "utilisation": utilisation}  # fmt: skip


def plan(users, burst, pause, gpus, bound):
    saturation = gpus * (1 + pause / burst)
    most = int(max(2 * users, 1.5 * saturation)) + 1
    counts = sorted({max(1, round(1 + step * (most - 1) / 24)) for step in range(25)} | {users})
    curve = [_point(count, burst, pause, gpus) for count in counts]
    within = [point["users"] for point in curve if point["p99_wait_s"] <= bound]
    exclusive = {"mean_wait_s": 117.0, "p99_wait_s": 1894.0} if users <= 5 and gpus == 1 else None
    return {**_point(users, burst, pause, gpus), "gpus": gpus, "bound_s": bound, "curve": curve,
            "saturation": saturation, "most_users": max(within, default=0), "exclusive": exclusive}  # fmt: skip
