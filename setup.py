"""The compiled kernel of the fused steps, where there is a C compiler; everything else is in pyproject.toml.

The kernel is loaded by ctypes and needs no Python headers, so one build serves every version of Python. Without a
compiler the package is built and works without it (docs/speed.md).
"""

import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOM = Path("src/chase/learning/native")
KERNEL = runpy.run_path(str(ROOM / "kernel.py"))
FLAGS = ["-O2", "-ffp-contract=fast", "-fvisibility=hidden", "-Wno-psabi"]


class BuildKernel(build_ext):
    """Names the library as ``chase.learning.native.kernel`` looks for it."""

    def get_ext_filename(self, fullname: str) -> str:
        """Beside ``kernel.py``, whatever Python is in use."""
        return str(Path(*fullname.split(".")[:-1]) / KERNEL["LIBRARY"])


class Wheel(bdist_wheel):
    """A wheel for this kind of machine where the kernel was built, else one for all."""

    def run(self) -> None:
        """Build the kernel first: it decides which kind of wheel this is."""
        self.run_command("build_ext")
        if not all(Path(path).exists() for path in self.get_finalized_command("build_ext").get_outputs()):
            self.distribution.ext_modules, self.root_is_pure = [], True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Any Python of this kind of machine."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[
        Extension(
            "chase.learning.native._kernel",
            sources=[str(ROOM / "kernel.c")],
            depends=[str(path) for path in ROOM.glob("*.h")],
            define_macros=[("CHASE_SOURCES", f'"{KERNEL["sources_hash"](ROOM)}"')],
            extra_compile_args=FLAGS,
            libraries=["m"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": Wheel},
)
