"""Formats the results of scripts/generators as a table."""

import statistics

# Thresholds of a disturbance, as fractions of a processor: utilisation by other processes, time that the
# generator waited for its processor (a wake-up also causes a microsecond or two), and steal time.
OTHERS, WAITED, STEAL = 0.06, 0.05, 0.015


def disturbed(one):
    """Returns whether other activity disturbed a measurement."""
    noise, waited = one["noise"], WAITED
    if one["part"] == "accuracy":
        # The 99th percentile depends on one per cent of the requests.
        waited = 0.002 + 2e-6 * one["rate"]
    return noise["others"] > OTHERS or noise["waited"] > waited or noise["steal"] > STEAL


def spread(values, scale=1.0, form=",.0f"):
    values = sorted(value / scale for value in values)
    return f"{statistics.median(values):{form}} ({values[0]:{form}} to {values[-1]:{form}})"


def columns(rows):
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) if at == 0 else cell.rjust(width)
                             for at, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]


def groups(result, part, *keys):
    """Returns the repetitions of each cell, in the order of the first."""
    cells = {}
    for one in result["measurements"]:
        if one["part"] == part:
            cells.setdefault(tuple(one[key] for key in keys), []).append(one)
    return sorted(cells.items(), key=lambda cell: tuple((isinstance(key, str) and not key.startswith("hearken"), key)
                                                        for key in reversed(cell[0])))


def noise_of(ones):
    worst = [max(one["noise"][kind] for one in ones) for kind in ("others", "waited", "steal")]
    return " ".join(f"{of:.3f}" for of in worst) + (" disturbed" if any(map(disturbed, ones)) else "")


def accuracy_table(result):
    rows = [["per second", "median gap", "|actual - scheduled| p50", "p99", "max", "CPU", "noise"]]
    random_rows = [["per second", "coefficient of variation", "distance from exponential", "CPU", "noise"]]
    own = [["per second", "reported p50", "observed p50", "reported p99", "observed p99", "waited for a connection"]]
    for (name, rate), ones in groups(result, "accuracy", "name", "rate"):
        title, fits = f"{name} {rate:,}", [one["seen"]["fit"] for one in ones]
        gaps = [one["seen"]["gaps_ns"] for one in ones]
        busy, noise = f"{statistics.median(one['generator_busy'] for one in ones):.0%}", noise_of(ones)
        if "poisson" in name:
            random_rows.append([title, spread([gap["variation"] for gap in gaps], 1, ".3f"),
                                spread([gap["from_exponential"] for gap in gaps], 1, ".3f"), busy, noise])
            continue
        deviation = lambda key: spread([fit["deviation_ns"][key] for fit in fits], 1e3, ",.1f")
        rows.append([title, spread([gap["p50"] for gap in gaps], 1e3, ",.1f"), deviation("p50"), deviation("p99"),
                     deviation("max"), busy, noise])
        if "said" in ones[0] and "connections" not in name:
            reported = lambda key: spread([one["said"]["lateness_ns"][key] for one in ones], 1e3, ",.1f")
            observed = lambda key: spread([one["said"]["shift_ns"] + one["seen"]["fit"]["offset_ns"][key] for one in ones],
                                          1e3, ",.1f")
            own.append([title, reported("p50"), observed("p50"), reported("p99"), observed("p99"),
                        spread([one["said"]["in_line"] for one in ones])])
    lines = ["constant rate: deviation from an even schedule with a fitted start, in microseconds"]
    lines += columns(rows)
    if len(random_rows) > 1:
        lines += ["", "random arrivals: 1 and 0 indicate an exponential distribution"] + columns(random_rows)
    if len(own) > 1:
        lines += ["", "lateness in microseconds: reported by the generator and observed by the server; requests that",
                  "waited for a connection are late for the server, but not in the report of the generator"]
        lines += columns(own)
    return lines


def saturation_table(result):
    rows = [["", "replies per second", "generator ns/reply", "server busy", "generator busy", "noise"]]
    for (name, work), ones in groups(result, "saturation", "name", "work_us"):
        name += f", {work} us of work" if work else ""
        statistic = lambda key: spread([one[key] for one in ones])
        median = lambda key: f"{statistics.median(one[key] for one in ones):.0%}"
        rows.append([name, statistic("reply_rate"), statistic("generator_ns_per_reply"), median("server_busy"),
                     median("generator_busy"), noise_of(ones)])
    return ["saturation: `hearken serve`, and a server with 20 us of work per request; 64 connections (httperf: an open "
            "loop with 200,000 requests per second instead)"] + columns(rows)


def overload_table(result):
    rows = [["capacity, generator", "requested rate", "offered rate", "replies/s (generator)", "replies/s (server)",
             "noise"]]
    errors = []
    for (name, work), ones in groups(result, "overload", "name", "work_us"):
        title = f"{ones[0]['capacity']:,.0f} {name}"
        statistic = lambda key: spread([one[key] for one in ones])
        server = spread([one["server_rate"] for one in ones])
        rows.append([title, statistic("offered"), statistic("kept"), statistic("reply_rate"), server, noise_of(ones)])
        kinds = sorted({kind for one in ones for kind in one["errors"]})
        counts = [f"{kind} {spread([one['errors'].get(kind, 0) for one in ones])}" for kind in kinds]
        errors.append(f"  {title}: " + (", ".join(counts) or "no errors"))
    return ["overload: twice the capacity, one connection per request, timeout of one second"] + columns(rows) + [
        "  errors per run:"] + errors


def table(result):
    machine = result["machine"]
    lines = [f"# scripts/{result['command']}, {result['date']}",
             f"# {machine['cpus']} processors ({machine['cpu']}), Linux {machine['kernel']}; clock {machine['clock']}",
             "# " + "; ".join(f"{name}: {version}" for name, version in result["versions"].items()),
             "# not installed: " + (", ".join(result["absent"]) or "none"),
             f"# median (minimum to maximum) of {result['repetitions']} runs of {result['seconds']} s; noise: maximum fraction "
             "of a processor", "# used by other processes, that the generator waited, and stolen by the hypervisor", ""]
    tables = {"accuracy": accuracy_table, "saturation": saturation_table, "overload": overload_table}
    for part, make in tables.items():
        if any(one["part"] == part for one in result["measurements"]):
            lines += make(result) + [""]
    bad = sum(map(disturbed, result["measurements"]))
    lines.append(f"{bad} of {len(result['measurements'])} measurements were disturbed")
    for failure in result["failures"]:
        lines.append(f"failed: {failure}")
    return "\n".join(lines) + "\n"
