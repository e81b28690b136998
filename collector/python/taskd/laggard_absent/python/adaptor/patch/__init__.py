"""TaskD's patches of PyTorch, where no TaskD is installed."""

from taskd.laggard_absent import nothing

patch_torch_method = nothing("taskd.python.adaptor.patch", None)
patch_torch_method()
