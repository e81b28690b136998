"""The package runs on any Python from 3.7 on, with nothing installed."""

import ast
import glob
import os
import sys
import unittest

import jobs


class Syntax(unittest.TestCase):
    def files(self):
        found = glob.glob(os.path.join(jobs.PACKAGE, "laggard", "*.py"))
        self.assertGreater(len(found), 10)
        return found + [os.path.join(jobs.PACKAGE, name) for name in ("sitecustomize.py", "laggard_start.py")]

    def test_syntax_of_3_7(self):
        for path in self.files():
            with open(path) as f:
                ast.parse(f.read(), path, feature_version=(3, 7))

    def test_imports_are_of_the_standard_library(self):
        library = getattr(sys, "stdlib_module_names", None)
        self.assertIsNotNone(library, "run the tests on Python 3.10 or newer")
        for path in self.files():
            with open(path) as f:
                tree = ast.parse(f.read(), path)
            for node in ast.walk(tree):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module]
                for name in names:
                    root = name.partition(".")[0]
                    allowed = root in library or root in ("laggard", "laggard_start") or name == "torch.utils.data"
                    self.assertTrue(allowed, "%s imports %s" % (path, name))

    def test_files_are_short(self):
        for path in self.files():
            with open(path) as f:
                self.assertLess(len(f.readlines()), 400, path)
