#!/usr/bin/env python3
"""Trains a small language model on several CPU processes with PyTorch's DDP.

An ordinary script: it knows its rank from the launcher's environment, and of no
profiler but PyTorch's own, which --profile turns on. Each step is a counted amount of work. --slow-rank makes one rank
really slower, in what --slow-part names: its forward pass runs its blocks
--slow-extra times more, its loader waits for a disk so much longer, or its shard of
a checkpoint is written so much more often.
"""

import argparse
import contextlib
import os
import time

import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Tokens(Dataset):
    """Token sequences that are made up, the same ones on every rank."""

    def __init__(self, size, length, vocabulary, extra=0):
        self.size, self.length, self.vocabulary = size, length, vocabulary
        self.extra = extra

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        time.sleep(0.004 * self.extra)  # a slow disk; work would slow this machine's other ranks
        generator = torch.Generator().manual_seed(index)
        text = torch.randint(self.vocabulary, (self.length + 1,), generator=generator)
        return text[:-1], text[1:]


class Model(nn.Module):
    """A causal transformer. extra more passes through its blocks are computed and
    left out of the result: what a slow machine feels like to the others."""

    def __init__(self, vocabulary, length, width, depth, extra=0):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, depth)
        self.out = nn.Linear(width, vocabulary)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))
        self.extra = extra

    def forward(self, tokens):
        x = self.embed(tokens) + self.place
        for _ in range(self.extra):
            with torch.no_grad():
                self.blocks(x, self.mask)
        return self.out(self.blocks(x, self.mask))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=2, help="sequences per rank and step")
    parser.add_argument("--length", type=int, default=64, help="tokens per sequence")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--workers", type=int, default=1, help="DataLoader workers per rank")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--save-to", default=".", help="folder of the checkpoints")
    parser.add_argument("--pace", type=float, default=0.12,
                        help="seconds of rest per step, so that many ranks share few cores")
    parser.add_argument("--pairs", action="store_true",
                        help="neighbours of different nodes also trade tokens, as expert parallelism does")
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slow-part", choices=("forward", "load", "save"), default="forward")
    parser.add_argument("--slow-extra", type=int, default=6, help="times the slow rank does its part more")
    parser.add_argument("--profile", default="", help="folder for traces by torch.profiler")
    parser.add_argument("--profile-from", type=int, default=10, help="first step in a trace, at least 2")
    parser.add_argument("--profile-steps", type=int, default=30, help="steps in a trace")
    return parser.parse_args()


def batches(loader, sampler, steps):
    """Yields a batch a step, as many epochs as it takes."""
    done, epoch = 0, 0
    while True:
        sampler.set_epoch(epoch)
        for batch in loader:
            yield batch
            done += 1
            if done == steps:
                return
        epoch += 1


def pair_of(rank, world):
    """The group of an odd rank and the next one: with two ranks a node, a wire between
    two nodes. Every rank has to make every group."""
    groups = {}
    for first in range(1, world, 2):
        ranks = sorted((first, (first + 1) % world))
        group = dist.new_group(ranks)
        groups.update((r, group) for r in ranks)
    return groups[rank]


def profiler(a, rank):
    """PyTorch's profiler as its tutorial has it, or nothing."""
    if not a.profile:
        return contextlib.nullcontext()
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=a.profile_from - 1, warmup=1, active=a.profile_steps, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(a.profile, "rank%d" % rank))


def main():
    a = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    extra = {a.slow_part: a.slow_extra} if rank == a.slow_rank else {}
    pair = pair_of(rank, dist.get_world_size()) if a.pairs else None
    traded = torch.ones(1 << 16)

    data = Tokens(a.batch * dist.get_world_size() * a.steps, a.length, a.vocabulary, extra.get("load", 0))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, a.batch, sampler=sampler, num_workers=a.workers, drop_last=True)
    model = Model(a.vocabulary, a.length, a.width, a.depth, extra.get("forward", 0))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    with profiler(a, rank) as profile:
        for step, (tokens, target) in enumerate(batches(loader, sampler, a.steps)):
            loss = criterion(model(tokens).flatten(0, 1), target.flatten())
            if pair is not None:
                dist.all_reduce(traded, group=pair)
                traded /= 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % a.save_every == 0:  # each rank its shard: here, its own copy
                for _ in range(1 + 10 * extra.get("save", 0)):
                    torch.save(model.module.state_dict(), os.path.join(a.save_to, "step-%d-rank-%d.pt" % (step + 1, rank)))
            if (step + 1) % 20 == 0:
                mean = loss.detach() / dist.get_world_size()
                dist.all_reduce(mean)
                if rank == 0:
                    print("step %d, loss %.3f" % (step + 1, mean.item()), flush=True)
            time.sleep(a.pace)
            if profile is not None:
                profile.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
