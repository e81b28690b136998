package record

import "testing"

func TestBaseOp(t *testing.T) {
	for want, raws := range map[string][]string{
		"allreduce": {
			"allreduce", "HcclAllreduce", "HcclAllReduce", "hcclallreduce", "ncclAllReduce", "all_reduce", "all_reduce_coalesced",
			"c10d::allreduce_", "allreduce_coalesced", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
			"MPI_Allreduce", "nccl:all_reduce", "AllReduce",
		},
		"allgather": {
			"HcclAllGather", "HcclAllGatherV", "_all_gather_base", "all_gather_into_tensor", "all_gather", "all_gather_object",
			"_allgather_base_", "all_gather_into_tensor_coalesced", "gloo:all_gather",
		},
		"reducescatter": {"HcclReduceScatter", "HcclReduceScatterV", "reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base", "ncclReduceScatter"},
		"alltoall":      {"HcclAlltoAll", "HcclAlltoAllV", "HcclAlltoAllVC", "all_to_all", "all_to_all_single", "alltoall_base"},
		"reduce":        {"HcclReduce", "reduce", "ncclReduce"},
		"broadcast":     {"HcclBroadcast", "broadcast", "ncclBroadcast", "broadcast_object_list", "ncclBcast"},
		"scatter":       {"HcclScatter", "scatter", "scatter_object_list"},
		"gather":        {"gather", "gather_object"},
		"send":          {"HcclSend", "isend", "send", "ncclSend"},
		"recv":          {"HcclRecv", "irecv", "recv", "ncclRecv"},
		"sendrecv":      {"HcclBatchSendRecv", "batch_isend_irecv", "sendrecv", "ncclDevKernel_SendRecv"},
		"barrier":       {"barrier", "monitored_barrier", "HcclBarrier"},
		"myop":          {"MyOp"},
		"":              {""},
		"my_reducer":    {"my_reducer"},
	} {
		for _, raw := range raws {
			if got := BaseOp(raw); got != want {
				t.Errorf("BaseOp(%q) = %q, want %q", raw, got, want)
			}
		}
	}
}

func TestDtype(t *testing.T) {
	sizes := []int{0, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 1, 1, 8, 16}
	if len(dtypes) != len(sizes) {
		t.Fatalf("%d dtypes, FORMAT.md 2.3 has %d", len(dtypes), len(sizes))
	}

	for code, size := range sizes {
		name := DtypeName(uint8(code))
		if got := DtypeCode(name); got != uint8(code) {
			t.Errorf("DtypeCode(%q) = %d, want %d", name, got, code)
		}

		if got := DtypeSize(name); got != size {
			t.Errorf("DtypeSize(%q) = %d, want %d", name, got, size)
		}
	}

	for raw, want := range map[string]string{
		"torch.float32": "fp32", "torch.bfloat16": "bf16", "bfp16": "bf16", "torch.half": "fp16", "ncclFloat16": "fp16",
		"HCCL_DATA_TYPE_INT8": "int8", "torch.float8_e4m3fn": "fp8", "torch.uint8": "uint8", "na": "", "": "", "Weird": "weird",
		"torch.complex64": "complex64", "float64": "fp64", "torch.long": "int64",
	} {
		if got := BaseDtype(raw); got != want {
			t.Errorf("BaseDtype(%q) = %q, want %q", raw, got, want)
		}
	}

	if DtypeName(200) != "" || DtypeSize("weird") != 0 {
		t.Error("an unknown dtype has a name or a size")
	}
}
