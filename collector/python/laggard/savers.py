"""The functions that save a checkpoint, by the module that has them."""

# Module of a saver → (class or none, function, where its target is: position without
# self, keyword).
SAVERS = {
    "torch.distributed.checkpoint.state_dict_saver": (
        ("", "save", None, "checkpoint_id"), ("", "save_state_dict", None, "checkpoint_id"),
        ("", "async_save", None, "checkpoint_id")),
    "safetensors.torch": (("", "save_file", 1, "filename"),),
    "lightning.pytorch.trainer.trainer": (("Trainer", "save_checkpoint", 0, "filepath"),),
    "pytorch_lightning.trainer.trainer": (("Trainer", "save_checkpoint", 0, "filepath"),),
    "transformers.trainer": (("Trainer", "_save_checkpoint", None, ""), ("Trainer", "save_model", 0, "output_dir")),
    "accelerate.accelerator": (("Accelerator", "save_state", 0, "output_dir"),),
    "deepspeed.runtime.engine": (("DeepSpeedEngine", "save_checkpoint", 0, "save_dir"),),
    "mindspore.train.serialization": (("", "save_checkpoint", 1, "ckpt_file_name"),),
    "megatron.core.dist_checkpointing.serialization": (("", "save", 1, "checkpoint_dir"),),
}
