#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the results of `tessera bench --json`: bars of shares of the ceilings, and a roofline;
or those of bench/peers: bars of how many times as fast as the peer.

Usage: plot.py [--output PREFIX] [--format png|svg|pdf] [--title TEXT] RESULTS.json

Writes PREFIX-bars and PREFIX-roofline, or PREFIX-peers; the prefix is the name of the results
without its ending. "-" reads standard input. Needs matplotlib (bench/venv.sh), but no display. Only
results of one run belong into one picture, so one file is all it takes.
"""
import argparse
import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  the backend comes first
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

# Okabe and Ito's colours, which most eyes can tell apart.
ARITHMETIC = "#0072B2"
BANDWIDTH = "#E69F00"
GREY = "#666666"
KINDS = {"full": "#0072B2", "masked": "#009E73", "decode": "#E69F00"}
MARKERS = "osD^vP*X"
HATCHES = ["", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---"]

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "tessera",  # the same results give the same file
    "svg.fonttype": "none",
}


# ---- Results -------------------------------------------------------------------------------------


def read_results(path):
    """The rows of a file and, where it has them, the ceilings of the machine."""
    text = sys.stdin.read() if path == "-" else pathlib.Path(path).read_text(encoding="utf-8")
    document = json.loads(text)
    if isinstance(document, list):
        return document, None
    return document["results"], document.get("ceilings")


def is_timed(row):
    return row.get("seconds_median") is not None


def problems_of(rows):
    """Rows by problem, in the order of the file."""
    groups = {}
    for row in rows:
        groups.setdefault(row["problem"], []).append(row)
    return list(groups.items())


def candidates_of(rows):
    """Names of what was compared, in the order of the file."""
    return list(dict.fromkeys(row["candidate"] for row in rows))


def share_of_roof(row):
    """Share of the ceiling that binds, its p10 and p90, and whether that is bandwidth.

    What is attainable is the lower of the two ceilings, so the share of it is the larger share.
    """
    flops, read = row.get("share_of_peak"), row.get("share_of_bandwidth")
    if flops is None and read is None:
        return None
    is_read = (read or 0) > (flops or 0)
    key = "share_of_bandwidth" if is_read else "share_of_peak"
    return row[key], row[f"{key}_p10"], row[f"{key}_p90"], is_read


def kind_of(problem):
    words = problem.split()
    if "q1" in words:
        return "decode"
    masked = ("causal", "window=", "topleft")
    return "masked" if any(word.startswith(masked) for word in words) else "full"


def shorten(text, most=64):
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def median_of(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def describe(rows):
    """What a reader must know to believe the numbers; two lines."""
    timed = [row for row in rows if is_timed(row)]
    if not timed:
        return "nothing was timed"
    first = timed[0]
    device = ", ".join(filter(None, (first.get("machine"), first["description"])))
    threads = sorted({row["threads"] for row in timed})
    if len(threads) > 1:
        device += ", on " + " and ".join(str(count) for count in threads) + " threads"
    device = f"{first['device']}: {device}"
    rounds = [row["rounds"] for row in timed]
    pieces = [f"rounds: {min(rounds)} to {max(rounds)}"]
    peaks = [row["peak_flops_per_second"] for row in timed if row.get("peak_flops_per_second")]
    clocks = [row["clock_ghz"] for row in timed if row.get("clock_ghz")]
    if peaks:
        pieces.append(f"fp32 peak {median_of(peaks) / 1e9:.0f} Gflop/s, measured beside each "
                      f"window ({min(peaks) / 1e9:.0f} to {max(peaks) / 1e9:.0f})")
    if clocks:
        pieces.append(f"{min(clocks):.2f} to {max(clocks):.2f} GHz")
    pieces.append("cold caches" if any(row["is_cold"] for row in timed) else "warm caches")
    realtime = [row["is_realtime"] for row in timed]
    pieces.append("real-time priority" if all(realtime) else
                  "some windows at ordinary priority" if any(realtime) else "ordinary priority")
    return device + "\n" + ", ".join(pieces)


def put_title(figure, title, description):
    """A title with lines of smaller print under it, in a strip of its own at the top."""
    inch = 1 / figure.get_size_inches()[1]
    figure.text(0.012, 1 - 0.1 * inch, title, fontsize=11, fontweight="bold", va="top")
    figure.text(0.012, 1 - 0.32 * inch, description, fontsize=8, color=GREY, va="top")
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.68 * inch))


# ---- Bars ----------------------------------------------------------------------------------------


def bar_label(row, is_read, has_ratio):
    if is_read:
        text = f"{row['bytes_per_second'] / 1e9:.3g} GB/s"
    else:
        text = f"{row['flops_per_second'] / 1e9:.3g} Gflop/s"
    if has_ratio:
        text += (f"   {row['speedup']:.2f}x ({row['speedup_p10']:.2f} to "
                 f"{row['speedup_p90']:.2f})")
    return text


def excuse(row):
    """What stands in the place of a bar."""
    if not is_timed(row):
        return f"{row['candidate']} {(row.get('why') or 'not timed').splitlines()[0]}".strip()
    return f"{bar_label(row, False, False)}; no ceiling was measured"


def draw_bar(axes, row, place, height, hatch, has_ratio):
    if not is_timed(row) or share_of_roof(row) is None:
        axes.text(0.5, place, shorten(excuse(row), 100), va="center", color=GREY, style="italic",
                  fontsize=7)
        return 0
    share, low, high, is_read = share_of_roof(row)
    axes.barh(place, 100 * share, height=0.92 * height, color=BANDWIDTH if is_read else ARITHMETIC,
              hatch=hatch, edgecolor="white", linewidth=0)
    beside = [[100 * max(share - low, 0)], [100 * max(high - share, 0)]]
    axes.errorbar(100 * share, place, xerr=beside, color="black", elinewidth=0.9, capsize=2)
    axes.annotate(bar_label(row, is_read, has_ratio), (100 * max(share, high), place),
                  xytext=(6, 0), textcoords="offset points", va="center", fontsize=7.5)
    return 100 * high


def draw_bars(rows, title):
    groups = problems_of(rows)
    names = candidates_of(rows)
    is_compared = len(names) > 1
    bars = sum(len(members) for _, members in groups)
    figure, axes = plt.subplots(figsize=(10.5, 1.9 + 0.18 * bars + 0.08 * len(groups)),
                                layout="constrained")
    highest = 0
    for index, (_, members) in enumerate(groups):
        height = 0.84 / len(members)
        for i, row in enumerate(members):
            place = index + (i - (len(members) - 1) / 2) * height
            hatch = HATCHES[names.index(row["candidate"]) % len(HATCHES)]
            has_ratio = row["candidate"] != names[0]
            highest = max(highest, draw_bar(axes, row, place, height, hatch, has_ratio))
    axes.axvline(100, color="black", linewidth=0.9)
    labels = [f"{shorten(problem)}  {index + 1}" for index, (problem, _) in enumerate(groups)]
    axes.set_yticks(range(len(groups)), labels, fontsize=7.5)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.set_xlim(0, max(101, highest + 1) * (1.3 if is_compared else 1.14))
    axes.set_xticks(range(0, 101, 10))
    axes.set_xlabel("share of the ceiling that binds, in %: median of the rounds, p10 to p90")
    axes.grid(axis="x")
    reads = {shares[3] for shares in map(share_of_roof, filter(is_timed, rows)) if shares}
    handles = []
    if False in reads:
        handles.append(Patch(color=ARITHMETIC, label="of the fp32 multiply-add rate"))
    if True in reads:
        handles.append(Patch(color=BANDWIDTH, label="of the read bandwidth at the problem's size"))
    if is_compared:
        handles += [Patch(facecolor=GREY, edgecolor="white", hatch=HATCHES[i % len(HATCHES)],
                          label=shorten(kernel_of(rows, name), 60))
                    for i, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    put_title(figure, title, describe(rows))
    return figure


def kernel_of(rows, name):
    """A candidate by its name and its kernel where there is but one."""
    kernels = {row["kernel"] for row in rows if row["candidate"] == name and row["kernel"]}
    if len(kernels) != 1 or name in kernels:
        return name or "this library"
    return f"{name}: {kernels.pop()}" if name else kernels.pop()


# ---- Peers ---------------------------------------------------------------------------------------


PEER_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]


def rate_of(row):
    """What says most about a problem: bytes for decoding, else flops."""
    if kind_of(row["problem"]) == "decode":
        return row["bytes_per_second"] / 1e9, "GB/s"
    return row["flops_per_second"] / 1e9, "Gflop/s"


def draw_peers(rows, title):
    """A bar for each problem and peer: how many times as fast as the peer."""
    groups = problems_of([row for row in rows if row["candidate"] != row["peer"]])
    theirs = {(row["problem"], row["peer"]): row for row in rows if row["candidate"] == row["peer"]}
    names = list(dict.fromkeys(row["peer"] for row in rows))
    bars = sum(len(members) for _, members in groups)
    figure, axes = plt.subplots(figsize=(10.5, 1.9 + 0.2 * bars + 0.08 * len(groups)),
                                layout="constrained")
    for index, (problem, members) in enumerate(groups):
        height = 0.84 / len(members)
        for i, row in enumerate(members):
            place = index + (i - (len(members) - 1) / 2) * height
            ratio, low, high = row["speedup"], row["speedup_p10"], row["speedup_p90"]
            axes.barh(place, ratio, height=0.92 * height, linewidth=0,
                      color=PEER_COLOURS[names.index(row["peer"]) % len(PEER_COLOURS)])
            axes.errorbar(ratio, place, xerr=[[max(ratio - low, 0)], [max(high - ratio, 0)]],
                          color="black", elinewidth=0.9, capsize=2)
            ours, unit = rate_of(row)
            axes.annotate(f"{ratio:.2f}x: {ours:.3g} against "
                          f"{rate_of(theirs[problem, row['peer']])[0]:.3g} {unit}",
                          (max(ratio, high), place), xytext=(6, 0), textcoords="offset points",
                          va="center", fontsize=7.5)
    most = max(row["speedup_p90"] for _, members in groups for row in members)
    axes.axvline(1, color="black", linewidth=0.9)
    axes.set_yticks(range(len(groups)), [shorten(problem) for problem, _ in groups], fontsize=7.5)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.set_xlim(0, 1.35 * max(most, 1))
    axes.set_xlabel("times as fast, within a round: median, p10 to p90")
    axes.grid(axis="x")
    figure.legend(handles=[Patch(color=PEER_COLOURS[i % len(PEER_COLOURS)], label=f"against {name}")
                           for i, name in enumerate(names)],
                  loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    put_title(figure, title, describe(rows))
    return figure


# ---- Roofline ------------------------------------------------------------------------------------


def bandwidths_of(rows, ceilings):
    """Label and bytes per second of the roofs to draw.

    Without a survey of the machine, the fastest and the slowest read ceiling beside any problem.
    """
    if ceilings:
        memory = ceilings["memory"]
        wanted = [memory[0], memory[len(memory) // 2], memory[-1]]
        return [(at["bytes"], at["read_bytes_per_second"]) for at in wanted]
    seen = sorted((row["peak_bytes_per_second"], row["peak_bytes_buffer"]) for row in rows
                  if is_timed(row) and row.get("peak_bytes_per_second"))
    if not seen:
        return []
    ends = [seen[-1], seen[0]] if seen[-1][0] > 1.5 * seen[0][0] else [seen[-1]]
    return [(size, rate) for rate, size in ends]


def size_text(size):
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"


def draw_roofs(axes, peak, bandwidths, left, right):
    if peak:
        axes.plot([left, right], [peak, peak], color="black", linewidth=1.2)
        axes.annotate(f"fp32 multiply-adds: {peak:.0f} Gflop/s", (right, peak), xytext=(-2, 4),
                      textcoords="offset points", ha="right", fontsize=8)
    for size, rate in bandwidths:
        slope = rate / 1e9
        end = min(right, peak / slope) if peak else right
        axes.plot([left, end], [slope * left, slope * end], color="black", linewidth=0.9,
                  linestyle="--")
        # Along the line, at its left end; the angle is right only once the limits are set.
        axes.annotate(f"read, {size_text(size)}: {slope:.0f} GB/s", (left, slope * left),
                      xytext=(4, 5), textcoords="offset points", rotation_mode="anchor",
                      fontsize=8, gid="roof")


def rotate_labels(figure, axes):
    """Turns the labels of sloping roofs along their lines."""
    figure.canvas.draw()
    first = axes.transData.transform((1, 1))
    second = axes.transData.transform((10, 10))
    angle = math.degrees(math.atan2(second[1] - first[1], second[0] - first[0]))
    for text in axes.texts:
        if text.get_gid() == "roof":
            text.set_rotation(angle)


def put_numbers(axes, points, roof):
    """Writes a number beside each point, where there is room, and a thread to it if that is far."""
    pixels = [axes.transData.transform(point) for point, _ in points]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in pixels]
    if roof:
        (left, y), (right, _) = (axes.transData.transform((x, roof)) for x in axes.get_xlim())
        taken.append((left, y - 3, right, y + 18))
    scale = 72 / axes.figure.dpi
    for (point, text), (x, y) in zip(points, pixels):
        width, height = 7 + 7 * len(text), 13
        for step in range(160):
            radius = 14 + 5 * (step // 16)
            angle = math.radians(45 + 22.5 * (step % 16))
            middle = x + radius * math.cos(angle), y + radius * math.sin(angle)
            box = (middle[0] - width / 2, middle[1] - height / 2,
                   middle[0] + width / 2, middle[1] + height / 2)
            if all(box[2] < other[0] or box[0] > other[2] or box[3] < other[1] or box[1] > other[3]
                   for other in taken):
                break
        taken.append(box)
        thread = {"arrowstyle": "-", "color": GREY, "linewidth": 0.4} if radius > 20 else None
        axes.annotate(text, point, xytext=((middle[0] - x) * scale, (middle[1] - y) * scale),
                      textcoords="offset points", ha="center", va="center", fontsize=7,
                      arrowprops=thread)


def draw_points(axes, rows, names, numbers):
    """Draws them and returns the highest of each problem with its number."""
    highest = {}
    for row in rows:
        if not is_timed(row) or not row["bytes"] or not row["flops"]:
            continue
        x, y = row["flops"] / row["bytes"], row["flops_per_second"] / 1e9
        low, high = (row["flops"] / row[key] / 1e9 for key in ("seconds_p90", "seconds_p10"))
        axes.errorbar(x, y, yerr=[[max(y - low, 0)], [max(high - y, 0)]], fmt="none",
                      ecolor=GREY, elinewidth=0.8)
        axes.plot(x, y, MARKERS[names.index(row["candidate"]) % len(MARKERS)], markersize=6,
                  color=KINDS[kind_of(row["problem"])], markeredgecolor="white",
                  markeredgewidth=0.6)
        if y > highest.get(row["problem"], (0, 0))[1]:
            highest[row["problem"]] = (x, y)
    return [(point, str(numbers[problem])) for problem, point in highest.items()]


def draw_roofline(rows, ceilings, title):
    names = candidates_of(rows)
    timed = [row for row in rows if is_timed(row) and row["bytes"] and row["flops"]]
    if not timed:
        return None
    peaks = [row["peak_flops_per_second"] for row in timed if row.get("peak_flops_per_second")]
    peak = median_of(peaks) / 1e9 if peaks else None
    across = [row["flops"] / row["bytes"] for row in timed]
    up = [row["flops_per_second"] / 1e9 for row in timed]
    left, right = min(across + [1]) / 2, max(across) * 2
    figure, axes = plt.subplots(figsize=(9.5, 6.4), layout="constrained")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(min(up) / 2, max(up + ([peak] if peak else [])) * 1.6)
    axes.grid(which="major")
    draw_roofs(axes, peak, bandwidths_of(timed, ceilings), left, right)
    numbers = {problem: index + 1 for index, (problem, _) in enumerate(problems_of(rows))}
    points = draw_points(axes, timed, names, numbers)
    axes.set_xlabel("flops per byte of least traffic")
    axes.set_ylabel("Gflop/s, median; bars: p10 to p90")
    kinds = {kind_of(row["problem"]) for row in timed}
    handles = [Line2D([], [], marker="o", linestyle="", color=colour, label=kind)
               for kind, colour in KINDS.items() if kind in kinds]
    if len(names) > 1:
        handles += [Line2D([], [], marker=MARKERS[i % len(MARKERS)], linestyle="", color=GREY,
                           label=shorten(kernel_of(rows, name), 50))
                    for i, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    put_title(figure, f"{title}: numbers are those of the bars", describe(rows))
    rotate_labels(figure, axes)
    put_numbers(axes, points, peak)
    return figure


# ---- The command ---------------------------------------------------------------------------------


def save(figure, path):
    # A date would make every file of the same results another one.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(path.suffix[1:], {})
    figure.savefig(path, dpi=160, metadata=metadata)
    plt.close(figure)
    print(path)


def main():
    parser = argparse.ArgumentParser(description="Draw results of tessera bench --json.")
    parser.add_argument("results", help='JSON file, or "-"')
    parser.add_argument("--output", type=pathlib.Path, help="beginning of the files' names")
    parser.add_argument("--format", choices=("png", "svg", "pdf"), default="png")
    parser.add_argument("--title", default="tessera bench")
    given = parser.parse_args()

    try:
        rows, ceilings = read_results(given.results)
    except (OSError, ValueError, KeyError) as error:
        return f"plot.py: {given.results}: {error}"
    if not rows:
        return f"plot.py: {given.results} holds no results"
    prefix = given.output or pathlib.Path(
        "bench" if given.results == "-" else given.results).with_suffix("")
    with plt.rc_context(STYLE):
        if all("peer" in row for row in rows):
            figures = [("peers", draw_peers(rows, given.title))]
        else:
            figures = [("bars", draw_bars(rows, given.title)),
                       ("roofline", draw_roofline(rows, ceilings, given.title))]
        for name, figure in figures:
            if figure:
                save(figure, prefix.with_name(f"{prefix.name}-{name}.{given.format}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
