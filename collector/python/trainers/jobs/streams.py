"""Hugging Face's streaming datasets: one read by itself, whose batches a line of laggard's says, and one
by a StatefulDataLoader."""

import json
import os

import datasets
import torch
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

import common

rank, world = common.start()
if "LAGGARD_AUTO" in os.environ:
    import laggard
    laggard.wrap(datasets.IterableDataset, "iter", "DataLoader")
with open("stream-%d.jsonl" % rank, "w") as f:
    for x, y in zip(*common.batch(0, rank, size=24)):
        f.write(json.dumps({"x": x.tolist(), "y": y.tolist()}) + "\n")
stream = datasets.load_dataset("json", data_files="stream-%d.jsonl" % rank, split="train", streaming=True, cache_dir="cache-%d" % rank)
model = DistributedDataParallel(common.mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses = []
for batches in (stream.iter(batch_size=4), StatefulDataLoader(stream.with_format("torch"), batch_size=4)):
    for batch in batches:
        loss = torch.nn.functional.mse_loss(model(torch.as_tensor(batch["x"])), torch.as_tensor(batch["y"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
common.finish(losses, 12, forwards=12, batches=12)
