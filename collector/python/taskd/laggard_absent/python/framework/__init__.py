"""TaskD's managers and agents, where no TaskD is installed: there is nothing to import.
MindSpore, which tries, then controls its processes itself."""

raise ImportError(
    "%s is TaskD's own, and no TaskD is installed here: install it (pip install taskd-*.whl, of MindCluster) where its process "
    "recovery is wanted; laggard records without it" % __name__, name=__name__)
