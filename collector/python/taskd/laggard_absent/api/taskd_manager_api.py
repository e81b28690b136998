"""TaskD's manager, where no TaskD is installed."""

from taskd.laggard_absent import nothing

init_taskd_manager = nothing("init_taskd_manager")
start_taskd_manager = nothing("start_taskd_manager")
