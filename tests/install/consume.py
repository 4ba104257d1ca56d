#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the library into an empty folder and uses it from there as a stranger would.

Usage: consume.py files|pkg-config|cmake --build DIRECTORY --source DIRECTORY ... -- COMPILER...

files        what is installed is what should be, and nothing else
pkg-config   docs/examples/minimal.c built with the flags of tessera.pc, shared and static, and run
cmake        the same through find_package(tessera), shared and static
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIP = 77

CMAKE_PROJECT = """\
cmake_minimum_required(VERSION 3.13)
project(consumer C)
find_package(tessera {version} REQUIRED)
find_package(tessera {too_new} QUIET)
if(tessera_FOUND)
  message(FATAL_ERROR "version {version} answers a request for {too_new}")
endif()
find_package(tessera {version} EXACT REQUIRED)
if(NOT "${{tessera_BACKENDS}}" STREQUAL "{backends}")
  message(FATAL_ERROR "tessera_BACKENDS is ${{tessera_BACKENDS}}; it should be {backends}")
endif()
foreach(kind {kinds})
  add_executable(${{kind}} minimal.c)
  target_link_libraries(${{kind}} PRIVATE tessera::${{kind}})
endforeach()
"""


class Failure(Exception):
    pass


def run(command, environment=None):
    """Runs a command; returns what it says, and shows it when it fails."""
    print("+", " ".join(str(part) for part in command), flush=True)
    result = subprocess.run(command, env={**os.environ, **(environment or {})}, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise Failure(f"{result.stdout}\nexit status {result.returncode}")
    return result.stdout


class Package:
    """An installed tessera, below a root that stands for /."""

    def __init__(self, arguments, root):
        self.arguments = arguments
        self.root = root
        self.prefix = root / arguments.prefix.lstrip("/")
        self.libdir = self.prefix / arguments.libdir
        self.example = arguments.source / "docs" / "examples" / "minimal.c"
        run(["meson", "install", "-C", arguments.build, "--no-rebuild", "--quiet",
             "--destdir", root])

    def has(self, kind):
        return self.arguments.library in ("both", kind)

    def check_program(self, program):
        said = run([program], {"LD_LIBRARY_PATH": str(self.libdir), "TESSERA_BACKEND": "cpu"})
        print(said, end="")
        if not re.fullmatch(r"o\[last\] = \d+\.\d+\n", said):
            raise Failure(f"the example said {said!r}")


def check_files(package):
    """Every public header, the libraries with their links, and what finds them."""
    version = package.arguments.version
    include = package.arguments.source / "include" / "tessera"
    wanted = {f"include/tessera/{path.name}" for path in include.glob("*.h")}
    libdir = package.arguments.libdir
    wanted |= {"share/man/man1/tessera.1", "share/man/man3/tessera.3",
               f"{libdir}/pkgconfig/tessera.pc", f"{libdir}/cmake/tessera/tessera-config.cmake",
               f"{libdir}/cmake/tessera/tessera-config-version.cmake"}
    if package.has("static"):
        wanted.add(f"{libdir}/libtessera.a")
    if package.has("shared"):
        wanted |= {f"{libdir}/libtessera.so{end}"
                   for end in ("", "." + version.split(".")[0], "." + version)}
    optional = {"bin/tessera"}
    lists = r"share/tessera/\w+/\w+\.problems"

    seen = {str(path.relative_to(package.prefix)) for path in package.root.rglob("*")
            if path.is_symlink() or path.is_file()}
    seen = {name for name in seen if not re.fullmatch(lists, name)}
    for name in sorted(wanted - seen):
        print(f"{name} is not installed")
    for name in sorted(seen - wanted - optional):
        print(f"{name} is installed, but nobody expects it")
    if wanted - seen or seen - wanted - optional:
        raise Failure("the list of installed files is not what it should be")
    print(f"{len(seen)} files")


def check_pkg_config(package):
    environment = {"PKG_CONFIG_PATH": str(package.libdir / "pkgconfig"),
                   "PKG_CONFIG_SYSROOT_DIR": str(package.root)}

    def ask(*question):
        return run(["pkg-config", *question, "tessera"], environment).split()

    if ask("--modversion") != [package.arguments.version]:
        raise Failure("tessera.pc has another version than the library")
    if ask("--variable=backends") != [package.arguments.backends]:
        raise Failure(f"tessera.pc lists other backends than {package.arguments.backends}")
    for kind in ("shared", "static"):
        if not package.has(kind):
            continue
        program = package.root / f"through_pkg_config_{kind}"
        flags = ask("--cflags", "--libs", *(["--static"] if kind == "static" else []))
        if kind == "static":
            flags = [str(package.libdir / "libtessera.a") if flag == "-ltessera" else flag
                     for flag in flags]
        run([*package.arguments.compiler, "-std=c11", "-Wall", "-Wextra", "-Werror",
             package.example, "-o", program, *flags])
        package.check_program(program)
    check_build_folder(package)


def check_build_folder(package):
    """The library where it was built, for programs that do not wait for its installation."""
    build = package.arguments.build.resolve()
    environment = {"PKG_CONFIG_PATH": str(build / "meson-uninstalled")}
    program = package.root / "in_the_build_folder"

    if not package.has("shared"):
        return
    flags = run(["pkg-config", "--cflags", "--libs", "tessera"], environment).split()
    run([*package.arguments.compiler, "-std=c11", package.example, "-o", program, *flags,
         f"-Wl,-rpath,{build}"])
    package.check_program(program)


def check_cmake(package):
    project = package.root / "project"
    build = package.root / "build"
    version = package.arguments.version
    major, minor = version.split(".")[:2]
    kinds = [target for kind, target in (("shared", "tessera"), ("static", "tessera_static"))
             if package.has(kind)]

    project.mkdir()
    shutil.copy(package.example, project)
    (project / "CMakeLists.txt").write_text(CMAKE_PROJECT.format(
        version=version, too_new=f"{major}.{int(minor) + 1}", kinds=" ".join(kinds),
        backends=package.arguments.backends.replace(",", ";")), "utf-8")
    compiler = package.arguments.compiler[-1]
    run(["cmake", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={package.prefix}",
         f"-DCMAKE_C_COMPILER={shutil.which(compiler)}"])
    run(["cmake", "--build", build])
    for kind in kinds:
        package.check_program(build / kind)


def main():
    checks = {"files": check_files, "pkg-config": check_pkg_config, "cmake": check_cmake}
    parser = argparse.ArgumentParser(description="Install the library and use it from there.")
    parser.add_argument("through", choices=checks)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--libdir", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--backends", required=True)
    parser.add_argument("--library", choices=["both", "shared", "static"], required=True)
    parser.add_argument("compiler", nargs="+")
    arguments = parser.parse_args()

    tools = ["meson"] if arguments.through == "files" else ["meson", arguments.through]
    for tool in tools:
        if shutil.which(tool) is None:
            print(f"{tool} is not installed")
            return SKIP
    with tempfile.TemporaryDirectory(prefix="tessera-install-") as root:
        try:
            checks[arguments.through](Package(arguments, pathlib.Path(root)))
        except Failure as failure:
            print(failure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
