"""TaskD's agent, where no TaskD is installed."""

from taskd.laggard_absent import nothing

init_taskd_agent = nothing("init_taskd_agent")
start_taskd_agent = nothing("start_taskd_agent", None)
register_func = nothing("register_func")
