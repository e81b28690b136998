"""Builds the wheels of the recorder; needs nothing but Python (and cc for the second).

    python3 wheels.py DIR      laggard-VERSION-py3-none-any.whl, and one with the C extension
                               for this interpreter

It is also the build backend that pyproject.toml names, so `pip install collector/python`
works without a network. A wheel is the package, the sources of its extension, and
laggard.pth, which does nothing unless LAGGARD_AUTO is set.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
NATIVE = os.path.join(HERE, "..", "native", "src")
PTH = 'import os; os.environ.get("LAGGARD_AUTO") == "1" and __import__("laggard_start")\n'
METADATA = """Metadata-Version: 2.1
Name: laggard
Version: %s
Summary: Light timing records of a training process, for laggard agent
License: Apache-2.0
Requires-Python: >=3.7
"""


def version():
    """Returns what git says of the checkout, as Python spells versions."""
    try:
        said = subprocess.run(["git", "describe", "--tags", "--always", "--dirty", "--long"], cwd=HERE, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "0"
    return spelled(said)


def spelled(said):
    """Returns a version of git describe's (vX.Y.Z-N-gHASH, a hash; -dirty) as Python's."""
    dirty = said.endswith("-dirty")
    said = said[:-len("-dirty")] if dirty else said
    tagged = re.match(r"v?(\d+(?:\.\d+)*)-(\d+)-g([0-9a-f]+)$", said)
    if tagged is None:
        return "0+g%s%s" % (said, ".dirty" if dirty else "")
    release, commits, commit = tagged.groups()
    if commits == "0" and not dirty:
        return release
    return "%s.post%s+g%s%s" % (release, commits, commit, ".dirty" if dirty else "")


def files():
    """Returns {name in the wheel: path} of the recorder."""
    found = {name: os.path.join(HERE, name) for name in ("laggard_start.py",)}
    for folder, inside, ends in (("laggard", "laggard", (".py",)), ("laggard/csrc", "laggard/csrc", (".c",)),
                                 (NATIVE, "laggard/native", (".c", ".h"))):
        for name in sorted(os.listdir(os.path.join(HERE, folder))):
            if name.endswith(ends):
                found["%s/%s" % (inside, name)] = os.path.join(HERE, folder, name)
    return found


def write(directory, tag, more=None):
    """Writes a wheel with these files more; returns its name."""
    number = version()
    info = "laggard-%s.dist-info" % number
    name = "laggard-%s-%s.whl" % (number, tag)
    content = {}
    for inside, path in sorted(dict(files(), **(more or {})).items()):
        with open(path, "rb") as f:
            content[inside] = f.read()
    content["laggard.pth"] = PTH.encode("ascii")
    content[info + "/METADATA"] = (METADATA % number).encode("ascii")
    content[info + "/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: laggard\nRoot-Is-Purelib: %s\nTag: %s\n"
                                % ("false" if more else "true", tag)).encode("ascii")
    record = info + "/RECORD"
    lines = ["%s,sha256=%s,%d" % (n, base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b"=").decode(), len(b))
             for n, b in content.items()]
    content[record] = ("\n".join(lines + [record + ",,"]) + "\n").encode("ascii")
    os.makedirs(directory, exist_ok=True)
    with zipfile.ZipFile(os.path.join(directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for inside, data in content.items():
            entry = zipfile.ZipInfo(inside, (1980, 1, 1, 0, 0, 0))  # the same files, the same wheel
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def with_extension(directory):
    """Writes the wheel with the C extension of this interpreter; returns its name."""
    os.environ["LAGGARD_EXTENSION"] = "0"
    sys.path.insert(0, HERE)
    from laggard import extension
    with tempfile.TemporaryDirectory() as folder:
        path = extension.build(folder)
        with open(path, "rb") as f:
            newest = max(int(n) for n in re.findall(rb"GLIBC_2\.(\d+)", f.read()))
        python = "cp%d%d" % sys.version_info[:2]
        abi = python + ("m" if sys.version_info < (3, 8) else "")
        tag = "%s-%s-manylinux_2_%d_%s" % (python, abi, max(newest, 17), os.uname().machine)
        return write(directory, tag, {"laggard/" + os.path.basename(path): path})


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the pure wheel: what pip calls."""
    return write(wheel_directory, "py3-none-any")


def main(arguments):
    """Writes both wheels; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write(__doc__)
        return 2
    print(os.path.join(arguments[0], build_wheel(arguments[0])))
    print(os.path.join(arguments[0], with_extension(arguments[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
