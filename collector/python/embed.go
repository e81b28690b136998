// Package python carries laggard's recorder for Python trainers: the package
// laggard, and the sitecustomize.py that instruments an unchanged PyTorch script.
// `laggard install DIR` writes them to DIR/python; a job then runs with
// PYTHONPATH=DIR/python LAGGARD_AUTO=1.
//
// Invariant: Files holds what a trainer needs and nothing else: Python 3.7 syntax,
// standard library only, no tests, no bytecode, and the sources of the C extension.
//
// Caveat: there is no Go in the trainer. The Python code writes the rings of
// schemas/FORMAT.md section 2 by itself, with checksum kind 2, or with kind 1 where
// the extension does it. That is compiled together with the sources of
// collector/native, which have to lie in laggard/native or in native beside Files.
package python

import "embed"

// Files is the content of DIR/python.
//
//go:embed sitecustomize.py laggard_start.py mstx.py laggard/*.py laggard/csrc/*.c
//go:embed taskd/*.py taskd/api/*.py taskd/laggard_worker/*.py taskd/laggard_absent/*.py taskd/laggard_absent/api/*.py
//go:embed taskd/laggard_absent/python/*.py taskd/laggard_absent/python/adaptor/*.py taskd/laggard_absent/python/framework/*.py
//go:embed taskd/laggard_absent/python/adaptor/patch/*.py taskd/laggard_absent/python/adaptor/pytorch/*.py
var Files embed.FS
