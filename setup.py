"""The part of `pip install .` that pyproject.toml cannot say: the extension is built by CMake.

DEEPINFER_BUILD_DIR names a CMake build folder of this tree whose extension is taken as it is; otherwise one is built in
build/pip. Nothing is downloaded, and nothing is written outside build/.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

TOP = Path(__file__).resolve().parent
SCRATCH = TOP / "build" / "pip"


def build() -> Path:
    """Configures and builds; returns the build folder."""
    folder = SCRATCH / "cmake"
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "DEEPINFER_PYTHON": "ON",
        "DEEPINFER_TESTS": "OFF",
        "DEEPINFER_BENCH": "OFF",
        "Python_EXECUTABLE": sys.executable,
    }
    if shutil.which("ccache"):
        settings["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    definitions = [f"-D{name}={value}" for name, value in settings.items()]
    subprocess.run(["cmake", "-S", str(TOP), "-B", str(folder), *generator, *definitions], check=True)
    subprocess.run(["cmake", "--build", str(folder), "--target", "deepinfer_python", "--parallel"], check=True)
    return folder


class CMakeBuild(build_ext):
    def build_extension(self, ext: Extension) -> None:
        given = os.environ.get("DEEPINFER_BUILD_DIR")
        folder = Path(given).resolve() if given else build()
        target = Path(self.get_ext_fullpath(ext.name))
        built = folder / "python" / "deepinfer" / target.name
        if not built.exists():
            raise SystemExit(f"{built}: not there; build {folder} first, with the module and for this Python")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(built, target)


def version() -> str:
    found = re.search(r"project\(deepinfer VERSION ([0-9.]+)", (TOP / "CMakeLists.txt").read_text())
    if found is None:
        raise SystemExit("CMakeLists.txt: expected project(deepinfer VERSION ...)")
    return found[1]


SCRATCH.mkdir(parents=True, exist_ok=True)
setup(
    version=version(),
    package_dir={"": "python"},
    packages=["deepinfer"],
    package_data={"deepinfer": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("deepinfer._deepinfer", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    options={"egg_info": {"egg_base": str(SCRATCH)}, "build": {"build_base": str(SCRATCH)}},
)
