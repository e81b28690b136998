"""Parallel groups: what communicators are called, and which dimension they are.

The name of a group is the same on all its ranks: `default` for the default group,
else pg<n>, as torch numbers new_group calls, which all ranks make in one order.

The dimension comes from whom knows it: a device mesh with names, Megatron's
parallel state, DistributedDataParallel (dp). The default group is dp when nobody
knows better; other groups are `other`.
"""

import functools
import sys
import weakref

from . import hook
from . import recorder

DEFAULT = "default"

_MESH = {"dp": "dp", "ddp": "dp", "fsdp": "dp", "data": "dp", "dp_shard": "dp", "dp_replicate": "dp",
         "replicate": "dp", "shard": "dp", "dp_cp": "dp", "tp": "tp", "tensor": "tp", "model": "tp",
         "pp": "pp", "pipe": "pp", "pipeline": "pp", "cp": "cp", "context": "cp", "ep": "ep", "expert": "ep"}
_MEGATRON = (("_TENSOR_MODEL_PARALLEL_GROUP", "tp"), ("_PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
             ("_DATA_PARALLEL_GROUP", "dp"), ("_DATA_PARALLEL_GROUP_WITH_CP", "dp"),
             ("_CONTEXT_PARALLEL_GROUP", "cp"), ("_EXPERT_MODEL_PARALLEL_GROUP", "ep"))

_c10d = None
_names = {}  # id of a process group → (weak reference, string id of its name)
_dims = {}   # name of a group → dimension, where somebody knows it
_known = []  # weak references to the groups of this rank
_told = {}   # name of a group that is none of torch's → its ranks
_meshes = []
_dirty = False
made = []     # called when there is a new group
leaving = []  # called before the groups are destroyed


def cover(module):
    """Covers init_process_group and new_group of distributed_c10d."""
    global _c10d
    _c10d = module
    _around(module, "init_process_group", after=_initialised)
    _around(module, "new_group", after=_added)
    _around(module, "_register_pg_in_world", after=_tell_made)
    _around(module, "destroy_process_group", before=_leave, after=_destroyed)


def cover_mesh(module):
    """Covers DeviceMesh: its dimensions have names."""
    mesh = module.DeviceMesh
    inner = mesh.__init__
    if hasattr(inner, "__laggard__"):
        return

    @functools.wraps(inner)
    def __init__(self, *args, **kwargs):
        inner(self, *args, **kwargs)
        _meshes.append(weakref.ref(self))
        touch()

    __init__.__laggard__ = inner
    mesh.__init__ = __init__


def _around(module, name, before=None, after=None):
    inner = getattr(module, name, None)
    if inner is None or hasattr(inner, "__laggard__"):
        return

    @functools.wraps(inner)
    def covered(*args, **kwargs):
        _guarded(name, before)
        result = inner(*args, **kwargs)
        _guarded(name, after, result)
        return result

    covered.__laggard__ = inner
    setattr(module, name, covered)
    hook.everywhere(module, name, inner)


def _guarded(name, action, *args):
    if action is None:
        return
    try:
        action(*args)
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("follow %s" % name, cause)


def _tell_made(_=None):
    for action in made:
        action()


def _leave():
    settle()
    for action in leaving:
        action()


def _initialised(_):
    recorder.rank_again()
    _tell_made()
    recorder.identity.job()  # the ranks agree on a name while they are all here
    touch()


def _added(group):
    if is_group(group):
        _tell_made()
        remember(group)


def _destroyed(_):
    _names.clear()


def _module():
    """Returns distributed_c10d: covered, or imported without us, or None."""
    global _c10d
    if _c10d is None:
        _c10d = sys.modules.get("torch.distributed.distributed_c10d")
    return _c10d


def is_group(group):
    """Reports whether this rank is in the group."""
    try:
        return isinstance(group, _c10d.ProcessGroup)
    except TypeError:
        return False


def remember(group, dim=None):
    """Adds a group to the identity, with its dimension where it is known."""
    if dim is not None:
        _dims[name_of(group)] = dim
    if not any(r() is group for r in _known):
        _known.append(weakref.ref(group))
    touch()


def tell(name, ranks, dim=None):
    """Adds a group that is none of torch's to the identity."""
    _told[name] = list(ranks)
    if dim is not None:
        _dims[name] = dim
    touch()


def touch():
    """Has the identity published when a step ends: groups come in swarms."""
    global _dirty
    _dirty = True


def settle(_steps=0):
    """Publishes the identity when groups were learnt since the last time."""
    global _dirty
    if not _dirty or recorder._process is None:
        return
    _dirty = False
    refresh()
    recorder.publish_identity()


def name_id(group):
    """Returns the string id of a group's name."""
    key = id(group)
    found = _names.get(key)
    if found is not None and found[0]() is group:
        return found[1]
    number = recorder.strings.id(name_of(group))
    if group is not None:
        _names[key] = (weakref.ref(group, lambda _: _names.pop(key, None)), number)
        settle()
    return number


def name_of(group):
    """Returns a group's name, equal on all its ranks."""
    if group is None or group is _default():
        return DEFAULT
    name = getattr(group, "group_name", None) if hasattr(group, "group_name") else None
    if not name:
        table = getattr(_c10d, "_pg_names", None)
        if table is None:
            table = _c10d._world.pg_names
        name = table.get(group, "")
    return "pg%s" % name if name[:1].isdigit() and len(name) < 12 else name or "unnamed"


def _default():
    if not _module():
        return None
    pg = getattr(_c10d.GroupMember, "WORLD", None)
    if pg is None:
        try:
            pg = _c10d._get_default_group()
        except Exception:  # pylint: disable=broad-except
            return None  # not initialised
    return pg


def refresh():
    """Collects the groups of this rank into the identity."""
    default = _default()
    if default is None:
        rank = recorder.identity.place()[0]
        recorder.identity.groups = [
            {"dim": _dims.get(name, "other"), "name": name, "index": ranks.index(rank), "size": len(ranks), "ranks": ranks}
            for name, ranks in _told.items() if rank in ranks]
        return
    _ask_megatron()
    _ask_meshes()
    groups = [g for g in (r() for r in _known) if g is not None and g is not default]
    known = any(_dims.get(name_of(g)) for g in groups)
    listed = [_entry(DEFAULT, _dims.get(DEFAULT) or ("other" if known else "dp"), default)]
    names = {DEFAULT}
    for group in groups:
        name = name_of(group)
        if name not in names:
            names.add(name)
            listed.append(_entry(name, _dims.get(name, "other"), group))
    recorder.identity.groups = [entry for entry in listed if entry is not None]


def _entry(name, dim, group):
    try:
        ranks = _ranks(group)
        return {"dim": dim, "name": name, "index": group.rank(), "size": group.size(), "ranks": ranks}
    except Exception:  # pylint: disable=broad-except
        return None  # destroyed


def _ranks(group):
    """Returns the global ranks of a group in group order."""
    if group is _default():
        return list(range(group.size()))
    table = getattr(_c10d, "_pg_group_ranks", None)
    if table is None:
        table = _c10d._world.pg_group_ranks
    by_global = table[group]
    return sorted(by_global, key=by_global.get)


def rank_in(group, rank):
    """Returns the rank in the group of a global rank, -1 unknown."""
    if rank is None:
        return -1
    if group is None or group is _default():
        return rank
    try:
        translate = getattr(_c10d, "get_group_rank", None) or _c10d._get_group_rank
        return translate(group, rank)
    except Exception:  # pylint: disable=broad-except
        return -1


def _ask_megatron():
    for name in ("megatron.core.parallel_state", "megatron.core.mpu", "megatron.mpu.initialize"):
        module = sys.modules.get(name)
        if module is None:
            continue
        for variable, dim in _MEGATRON:
            groups = getattr(module, variable, None)
            for group in groups if isinstance(groups, list) else [groups]:
                if is_group(group):
                    _learn(group, dim)


def _ask_meshes():
    for reference in _meshes:
        mesh = reference()
        for dim in (getattr(mesh, "mesh_dim_names", None) or ()) if mesh is not None else ():
            word = _MESH.get(str(dim).lower())
            try:
                group = mesh.get_group(dim)
            except Exception:  # pylint: disable=broad-except
                continue  # a mesh without groups of its own
            if word and is_group(group):
                _learn(group, word)


def _learn(group, dim):
    if not any(r() is group for r in _known):
        _known.append(weakref.ref(group))
    _dims.setdefault(name_of(group), dim)


recorder.closers.append(settle)
