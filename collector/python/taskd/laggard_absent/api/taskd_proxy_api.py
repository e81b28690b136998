"""TaskD's proxy, where no TaskD is installed."""

from taskd.laggard_absent import nothing

init_taskd_proxy = nothing("init_taskd_proxy")
destroy_taskd_proxy = nothing("destroy_taskd_proxy")
