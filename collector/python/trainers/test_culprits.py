"""One rank of four that computes more is the only one that `laggard analyze` names; a
healthy job names nobody. What is judged is what the agent wrote while the job ran."""

import culprits


class Culprits(culprits.Case):
    """A job of each family, with a slow rank and without."""


for _name, _script, *_arguments in (
        ("ddp", "ddp"), ("fsdp2", "fsdp2"), ("dtensor", "tensor_parallel"), ("deepspeed", "deepspeed_zero", "2"),
        ("megatron", "megatron_core"), ("lightning", "lightning_automatic"), ("transformers", "hf_trainer"),
        ("accelerate", "accelerated")):
    for _slow in (False, True):
        setattr(Culprits, "test_%s_%s" % (_name, "with_a_slow_rank" if _slow else "healthy"),
                lambda self, script=_script, slow=_slow, arguments=_arguments: self.check(script, slow, arguments))
