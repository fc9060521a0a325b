"""What JupyterHub's configuration needs, so that its users share the GPUs."""

from ..units import parse_size, parse_time
from .spec import NAME

_LONGEST_INTERVAL_S = 300  # between two looks for idle kernels; the notebook server's default

_TEMPLATE = '''\
# Tandem: kernels that share the GPUs. For jupyterhub_config.py: load_subconfig('THIS FILE').
#
# Before, as root, on the machine where the single-user servers run:
#   tandemd --everybody --daemonize --log /var/log/tandemd.log
#   tandem jupyter install --prefix /usr/local


def _gpu_memory(spawner):
    """What each kernel of this user may have on a GPU."""
    of_user = {{}}  # such as {{"teacher": "16G"}}
    return of_user.get(spawner.user.name, "{memory}")


c.Spawner.environment.update(
    {{
        "TANDEM_KERNEL_MEMORY": _gpu_memory,
        "TANDEM_KERNEL_CLASS": "interactive",
    }}
)

# Kernels end when nothing has run in them for {idle}; their GPU memory is then free. While a cell
# waits for the GPU its kernel is busy, and stays.
c.Spawner.args.extend(
    [
        "--MappingKernelManager.default_kernel_name={kernel}",
        "--MappingKernelManager.cull_idle_timeout={idle_s}",
        "--MappingKernelManager.cull_interval={interval_s}",
        "--MappingKernelManager.cull_connected=True",
        "--MappingKernelManager.cull_busy=False",
    ]
)
'''


def configuration(memory: str = "8G", idle: str = "1h") -> str:
    """Returns Python text for jupyterhub_config.py. Raises InvalidUse for a malformed size or time."""
    parse_size(memory)
    idle_s = round(parse_time(idle) or 0)
    interval_s = min(max(idle_s // 4, 1), _LONGEST_INTERVAL_S)
    return _TEMPLATE.format(
        memory=memory, idle=idle, idle_s=idle_s, interval_s=interval_s, kernel=NAME
    )
