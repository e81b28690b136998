// Package mspti carries the C library that takes what Ascend's libmspti knows of a
// training process and writes it into the rings of package native:
//
//	LD_PRELOAD=libmspti.so:liblaggard_mspti.so python train.py
//
// Adapters (torch_npu, mstx_torch_plugin, MindSpore) and mstx calls in a script leave
// markers at libmspti: two a range on the host, and two on the device for a range that
// was given a stream. The library joins them by Id to finished ranges with the device's
// times and the host's beside them, reads kind, operation, communicator, count and
// element type out of their names, and follows the switch of its ring folder. What a
// marker may say is in schemas/marker; the rules here are the same.
//
// A second, small library, libms_tools_ext.so, has the mstx functions for machines
// without an NPU: ranges go straight into the ring with the host's times.
//
// Invariant: libmspti's callbacks exchange a buffer by a compare-and-swap; they enter no
// kernel, take no lock and wait for nothing. When no buffer is free the markers go to a
// place that nobody reads, and are counted; a record of the kind "mspti.dropped" says
// how many (its bytes). There is no Go in the trainer.
//
// Caveats: libmspti has one subscriber. While a full profiling is on, nothing is
// recorded; that is said once and tried again every 30 s. A process has one recorder:
// with this library loaded the Python recorder of the same process (LAGGARD_AUTO=1)
// finds the ring folder taken and says so, or the other way round. A marker reaches the
// ring when libmspti hands its buffer over, a second later at most: a SIGKILL loses the
// markers of that second. Records of the host side carry no thread: they are written by
// the library's own.
//
// # Which kinds arrive
//
//	kind            PyTorch, libmspti                  PyTorch, Python recorder alone   MindSpore, libmspti             MindSpore, without
//	Step            mstx_torch_plugin, or a range      each optimizer.step              MindFormers only; else a        laggard.callbacks, or
//	                "step N" in the script, or                                          range "step N" in the script    laggard.step in the script
//	                torch_npu's dynamic_profile
//	FP              mstx_torch_plugin, eager mode      outermost Module call            –                               laggard.span in the script
//	Communication   torch_npu, every HCCL call,        every torch.distributed call;    the framework, every HCCL       –
//	                device time                        host time, exposed               call, device time
//	DataLoader      torch_npu or plugin, host time     each __next__                    a range "dataloader" in the     laggard.span in the script
//	                                                                                    script
//	SaveCheckpoint  torch_npu, each torch.save         torch.save and                   a range "save_checkpoint" in    laggard.callbacks, or
//	                                                   distributed.checkpoint           the script                      laggard.span in the script
//
// torch_npu speaks to libmspti only when LD_PRELOAD names a path that ends in
// libmspti.so; TorchNPU from 7.1.RC1 on, MindSpore from 2.7.0, CANN from 8.2.RC1.
package mspti
