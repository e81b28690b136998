"""Saves off the training thread: DCP's async_save in a thread and in a process, a thread
of the script's that calls torch.save; and on it: DCP's save, torch.save, safetensors."""

import sys
import threading
import time

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.nn.parallel import DistributedDataParallel

import common


class Slow:
    """Takes half a second to be pickled: a slow disk."""

    def __getstate__(self):
        time.sleep(0.5)
        return {}


def main():
    rank, world = common.start()
    model = DistributedDataParallel(common.mlp())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    saving = dist.new_group()  # the thread's collectives must not meet DDP's
    losses, background, iterations = [], [], common.iterations(12)
    for n in range(iterations):
        x, y = common.batch(n, rank)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if n == 2:
            dcp.save(model.state_dict(), checkpoint_id="dcp")
        if n == 4:
            torch.save(model.state_dict(), "on-%d.pt" % rank)
            safetensors.torch.save_file(model.state_dict(), "on-%d.safetensors" % rank)
        if n == 5:
            thread = threading.Thread(target=torch.save, args=({"slow": Slow()}, "off-%d.pt" % rank))
            thread.start()
            background.append(thread.join)
        if n == 6:
            how = AsyncCheckpointerType.PROCESS if "process" in sys.argv else AsyncCheckpointerType.THREAD
            background.append(dcp.async_save(model.state_dict(), checkpoint_id="async", async_checkpointer_type=how,
                                             process_group=saving).result)
    for wait in background:
        wait()
    common.finish(losses, iterations, checked="process" not in sys.argv)


if __name__ == "__main__":
    main()
