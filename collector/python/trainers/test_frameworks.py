"""Frameworks above PyTorch: whose the steps are."""

import bed


class DeepSpeed(bed.Case):
    def test_zero_1(self):
        self.family("deepspeed_zero", arguments=("1",))

    def test_zero_2(self):
        self.family("deepspeed_zero", arguments=("2",))

    def test_zero_3(self):
        self.family("deepspeed_zero", arguments=("3",))

    def test_overflows_that_it_skips(self):
        for stage in "1", "3":
            with self.subTest(stage=stage):
                self.clean()
                self.family("deepspeed_zero", arguments=(stage, "overflow"), name="deepspeed_overflow")


class Megatron(bed.Case):
    def test_schedule_and_optimizer(self):
        self.family("megatron_core", arguments=("checkpoint",))

    def test_step_that_returns_false(self):
        self.family("megatron_core", arguments=("overflow",), name="megatron_overflow")


class Lightning(bed.Case):
    def test_automatic_optimization(self):
        self.family("lightning_automatic")

    def test_manual_optimization_with_two_optimizers(self):
        self.family("lightning_manual")


class HuggingFace(bed.Case):
    def test_trainer(self):
        self.family("hf_trainer")

    def test_accelerate(self):
        self.family("accelerated")
