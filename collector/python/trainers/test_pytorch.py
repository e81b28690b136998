"""PyTorch alone: DDP, accumulation, several optimizers, scalers, FSDP, DTensor."""

import bed


class Torch(bed.Case):
    def test_ddp(self):
        self.family("ddp")

    def test_gradient_accumulation(self):
        self.family("accumulate")

    def test_gan_with_two_optimizers(self):
        self.family("gan")

    def test_gradient_scaler_that_skips(self):
        self.family("scaler")

    def test_overflow_that_the_script_skips(self):
        self.family("overflow")

    def test_fsdp1(self):
        self.family("fsdp1")

    def test_fsdp2(self):
        self.family("fsdp2")

    def test_dtensor_tensor_parallel(self):
        self.family("tensor_parallel")

    def test_compiled_without_a_graph_break_more(self):
        for p, truth in self.family("compiled"):
            inside = [r for r in p.records("Communication") if r["value"] == 24 and "exposed" not in r]
            self.assertEqual(len(inside), 6)  # a graph's own waits are not seen, so its ranges say nothing of them
            without = self.without[truth["rank"]]
            self.assertEqual((truth["breaks"], truth["graphs"]), (without["breaks"], without["graphs"]))

    def test_coalesced_direct_and_functional(self):
        for p, _ in self.family("coalesced"):
            waited = [r for r in p.records("Communication") if r["text"] == "all_reduce_coalesced"]
            self.assertEqual(len(waited), 6)
            self.assertTrue(all(r["exposed"] > 0 for r in waited))
            self.assertTrue(all("exposed" in r for r in p.records("Communication")))

    def test_pipeline_with_recomputed_layers(self):
        self.family("pipelined", arguments=("1F1B",))

    def test_stateful_loader_and_stream(self):
        self.family("data")
