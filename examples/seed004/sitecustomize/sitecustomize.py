"""Lets a script that calls ``.cuda()`` unconditionally run on a machine without CUDA.

Put this folder on PYTHONPATH. When, and only when, the program imports torch and torch finds no CUDA, the methods
``Tensor.cuda`` and ``Module.cuda`` return their object unchanged instead of raising. With CUDA nothing is changed.
Nothing is imported before the program does. Python knows one sitecustomize: this one hides any other further down
the path.
"""

import importlib.abc
import importlib.machinery
import sys


class _PatchingLoader(importlib.abc.Loader):
    """Loads torch with its own loader, then makes ``.cuda()`` harmless where there is no CUDA."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        if not module.cuda.is_available():
            module.Tensor.cuda = _stay
            module.nn.Module.cuda = _stay


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Steps in for the import of torch, once."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader)
        return spec


def _stay(self, *_, **__):
    return self


sys.meta_path.insert(0, _TorchFinder())
