"""Builds the optional compiled steps; the rest is in pyproject.toml. Without a C compiler the install goes on."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "mtlens.engine.native._steps",
            sources=["src/mtlens/engine/native/steps.c"],
            depends=["src/mtlens/engine/native/steps.h", "src/mtlens/engine/native/types.h"],
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math", "-std=gnu11"],
            optional=True,
        )
    ]
)
