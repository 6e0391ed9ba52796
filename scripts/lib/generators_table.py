"""The results of scripts/generators as a table for people."""

import statistics

# Of a processor; more is a disturbance: what others used, for how long the generator was kept from its own
# (which a wake-up does, too, by a microsecond or two), and steal.
OTHERS, WAITED, STEAL = 0.06, 0.05, 0.015


def disturbed(one):
    noise, waited = one["noise"], WAITED
    if one["part"] == "accuracy":
        # A hundredth of the requests decides.
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
    """The repetitions of each cell, in the order of the first."""
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
    rows = [["a second", "median gap", "|actual - intended| p50", "p99", "greatest", "processor", "noise"]]
    random_rows = [["a second", "variation of gaps", "distance from exponential", "processor", "noise"]]
    own = [["a second", "it says p50", "seen p50", "it says p99", "seen p99", "in line for a connection"]]
    for (name, rate), ones in groups(result, "accuracy", "name", "rate"):
        title, fits = f"{name} {rate:,}", [one["seen"]["fit"] for one in ones]
        gaps = [one["seen"]["gaps_ns"] for one in ones]
        busy, noise = f"{statistics.median(one['generator_busy'] for one in ones):.0%}", noise_of(ones)
        if "poisson" in name:
            random_rows.append([title, spread([gap["variation"] for gap in gaps], 1, ".3f"),
                                spread([gap["from_exponential"] for gap in gaps], 1, ".3f"), busy, noise])
            continue
        deviation = lambda of: spread([fit["deviation_ns"][of] for fit in fits], 1e3, ",.1f")
        rows.append([title, spread([gap["p50"] for gap in gaps], 1e3, ",.1f"), deviation("p50"), deviation("p99"),
                     deviation("max"), busy, noise])
        if "said" in ones[0] and "connections" not in name:
            says = lambda of: spread([one["said"]["lateness_ns"][of] for one in ones], 1e3, ",.1f")
            seen = lambda of: spread([one["said"]["shift_ns"] + one["seen"]["fit"]["offset_ns"][of] for one in ones],
                                     1e3, ",.1f")
            own.append([title, says("p50"), seen("p50"), says("p99"), seen("p99"),
                        spread([one["said"]["in_line"] for one in ones])])
    lines = ["constant rate: microseconds from an even schedule, its start fitted"]
    lines += columns(rows)
    if len(random_rows) > 1:
        lines += ["", "random arrivals: 1 and 0 are exponential"] + columns(random_rows)
    if len(own) > 1:
        lines += ["", "lateness, in microseconds: what the generator says of itself, and what the server saw of it; "
              "requests that", "found all connections busy are late by the server, and not by what it says"]
        lines += columns(own)
    return lines


def saturation_table(result):
    rows = [["", "replies a second", "generator's ns a reply", "server busy", "generator busy", "noise"]]
    for (name, work), ones in groups(result, "saturation", "name", "work_us"):
        name += f", {work} us of work" if work else ""
        of = lambda key: spread([one[key] for one in ones])
        middle = lambda key: f"{statistics.median(one[key] for one in ones):.0%}"
        rows.append([name, of("reply_rate"), of("generator_ns_per_reply"), middle("server_busy"),
                     middle("generator_busy"), noise_of(ones)])
    return ["saturation: `hearken serve`, and a server with 20 us of work for each; 64 connections (httperf: 200,000 "
            "requests a second offered instead)"] + columns(rows)


def overload_table(result):
    rows = [["capacity, generator", "asked a second", "offered", "it says, replies a second", "the server says",
             "noise"]]
    errors = []
    for (name, work), ones in groups(result, "overload", "name", "work_us"):
        title = f"{ones[0]['capacity']:,.0f} {name}"
        of = lambda key: spread([one[key] for one in ones])
        server = spread([one["server_rate"] for one in ones])
        rows.append([title, of("offered"), of("kept"), of("reply_rate"), server, noise_of(ones)])
        kinds = sorted({kind for one in ones for kind in one["errors"]})
        told = [f"{kind} {spread([one['errors'].get(kind, 0) for one in ones])}" for kind in kinds]
        errors.append(f"  {title}: " + (", ".join(told) or "no errors"))
    return ["overload: twice the capacity, a connection for each request, given up after a second"] + columns(rows) + [
        "  errors in a run:"] + errors


def table(result):
    machine = result["machine"]
    lines = [f"# scripts/{result['command']}, {result['date']}",
             f"# {machine['cpus']} processors ({machine['cpu']}), Linux {machine['kernel']}; clock {machine['clock']}",
             "# " + "; ".join(f"{name}: {version}" for name, version in result["versions"].items()),
             "# not installed: " + (", ".join(result["absent"]) or "none"),
             f"# median (least to greatest) of {result['repetitions']} runs of {result['seconds']} s; noise, at its "
             "most, in parts of a processor:", "# what others used, how long the generator waited for its own, steal", ""]
    tables = {"accuracy": accuracy_table, "saturation": saturation_table, "overload": overload_table}
    for part, make in tables.items():
        if any(one["part"] == part for one in result["measurements"]):
            lines += make(result) + [""]
    bad = sum(map(disturbed, result["measurements"]))
    lines.append(f"{bad} of {len(result['measurements'])} measurements were disturbed")
    for failure in result["failures"]:
        lines.append(f"failed: {failure}")
    return "\n".join(lines) + "\n"
