"""Measure episodes trained on per second: the plain loop and every mode of the package.

A step is forward, backward, clipping and AdamW of the full model (preset e2e_icl, n = 100)
with fresh episodes, for one model and for many at once, and for the Transformer baseline.
Rates are measured in one run, in turns, so that other work on the machine slows all of them
alike. Writes results/benchmark-training-DEVICE.json, with a profile of the fastest mode
that says which operations take its time, and prints the same JSON as its last line.

    python benchmarks/training.py [--device cuda] [--torch-stage-2] [--seconds 3]
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from icssl import ICSSLTransformer
from icssl.model import eigenmap
from icssl.training.config import load_config
from icssl.training.group import Group, episode_drawer
from icssl.training.step import AdamState, Step
from plain import plain_logits

# (name, preset, mode, models, batch)
CPU_CASES = [
    ("plain loop", "e2e_icl", "plain", 1, 64),
    ("eager", "e2e_icl", "eager", 1, 64),
    ("eager, 4 models", "e2e_icl", "eager", 4, 64),
    ("encoder head, eager", "e2e_encoder", "eager", 1, 64),
    ("Transformer baseline, eager", "transformer", "eager", 1, 64),
    ("as printed, head by head", "paper", "dense", 1, 16),
    ("as printed, eager", "paper", "eager", 1, 16),
]
GPU_CASES = [
    ("plain loop", "e2e_icl", "plain", 1, 256),
    ("eager", "e2e_icl", "eager", 1, 256),
    ("graph", "e2e_icl", "graph", 1, 256),
    ("graph, 16 models", "e2e_icl", "graph", 16, 256),
    ("graph, 16 models, TF32", "e2e_icl", "graph", 16, 256),
    ("encoder head, graph, 16 models, TF32", "e2e_encoder", "graph", 16, 256),
    ("Transformer baseline, graph, 4 models, TF32", "transformer", "graph", 4, 256),
    ("as printed, head by head", "paper", "dense", 1, 128),
    ("as printed, graph, 16 models", "paper", "graph", 16, 128),
]

# What a step without the package's training loop computes logits by.
FORWARD = {
    "plain": plain_logits,
    "dense": lambda model, episode: model(episode, backend="dense"),
}


def plain_step(config, device, logits_of):
    """Return one step as a script would write it: a loop, ``torch.optim`` and clipping."""
    torch.manual_seed(0)
    model = ICSSLTransformer(config.model).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
    draw = episode_drawer([config], device)

    def step(number):
        episode = draw(number)[0]
        logits, unlabelled = logits_of(model, episode), ~episode.labelled
        loss = cross_entropy(logits[unlabelled], episode.y[unlabelled])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimiser.step()

    return step


def package_step(configs, mode, device):
    """Return one step of the package, for all models of a group."""
    group = Group(configs)
    step = Step(group, AdamState.fresh(group.fresh_weights().to(device)), mode)
    draw = episode_drawer(configs, device)
    return lambda number: step(number, draw(number))


def make_step(case, device):
    """Return the step of a case, after a first step that sets everything up."""
    name, preset, mode, models, batch = case
    torch.set_float32_matmul_precision("high" if "TF32" in name else "highest")
    config = replace(load_config(preset), batch=batch)
    if mode in FORWARD:
        step = plain_step(config, device, FORWARD[mode])
    else:
        seeds = [replace(config, seed=seed) for seed in range(models)]
        step = package_step(seeds, mode, device)
    step(0)
    step(1)
    return step


def rate(step, episodes, seconds, device):
    """Return episodes per second over at least ``seconds``."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        done += 1
        step(1 + done)
        if done % 8 == 0:
            wait()
    wait()
    return done * episodes / (time.perf_counter() - start)


def profile(step, device):
    """Return the operations that take most of a step's time, with their fractions."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as found:
        for number in range(3):
            step(number)
        if device == "cuda":
            torch.cuda.synchronize()
    key = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    events = sorted(found.key_averages(), key=lambda e: -getattr(e, key))
    total = sum(getattr(e, key) for e in events)
    return [
        {
            "operation": e.key[:90],
            "calls": e.count // 3,
            "share": round(getattr(e, key) / total, 3),
        }
        for e in events[:12]
    ]


def main():
    """Measure every case in turns, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="Measure only cases whose name contains this.")
    parser.add_argument(
        "--torch-stage-2",
        action="store_true",
        help="Run stage 2 without its Triton kernels, to see what they gain.",
    )
    parser.add_argument("--toy", action="store_true", help="Use two episodes per step.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    device = options.device
    eigenmap.USE_TRITON = not options.torch_stage_2
    cases = CPU_CASES if device == "cpu" else GPU_CASES
    cases = [case for case in cases if not options.only or options.only in case[0]]
    if options.toy:
        cases = [(*case[:-1], 2) for case in cases]
    steps, rates = {}, {case[0]: [] for case in cases}
    for case in cases:
        started = time.perf_counter()
        steps[case[0]] = make_step(case, device)
        took = time.perf_counter() - started
        print(f"{case[0]}: ready after {took:.1f} s", flush=True)
    for _ in range(options.rounds):
        for name, _, _, models, batch in cases:
            episodes = rate(steps[name], models * batch, options.seconds, device)
            print(f"{name}: {episodes:,.0f} episodes/s", flush=True)
            rates[name].append(episodes)
    rows = []
    for name, preset, mode, models, batch in cases:
        middle = statistics.median(rates[name])
        against = statistics.median(rates[cases[0][0]])
        rows.append(
            {
                "case": name,
                "preset": preset,
                "mode": mode,
                "models": models,
                "batch": batch,
                "episodes_per_second": round(middle),
                "times_the_first": round(middle / against, 2),
            }
        )
        print(f"{name:>42} {middle:>10,.0f} episodes/s {middle / against:>8.1f}x")
    full = [row for row in rows if row["preset"] == "e2e_icl"] or rows
    fastest = max(full, key=lambda row: row["episodes_per_second"])["case"]
    line = json.dumps(
        {
            "benchmark": "training",
            "device": "cpu" if device == "cpu" else torch.cuda.get_device_name(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "rows": rows,
            "profile_of": fastest,
            "profile": profile(steps[fastest], device),
        }
    )
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    variant = "-torch-stage-2" if options.torch_stage_2 else ""
    path = options.root / "results" / f"benchmark-training-{device}{variant}.json"
    path.write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
