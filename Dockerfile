# Two images with this checkout in /opt/bilm, for the ranks of a run:
#
#   docker build --target cuda --tag bilm:cuda .
#   docker build --target cpu --tag bilm:cpu .
#
# The CUDA build of torch contains its CUDA libraries, so a machine needs only the driver and NVIDIA's
# container toolkit. A C compiler is included, because Triton and the kernels for CPUs need one.

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 bilm
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/bilm
COPY constraints.txt ./

FROM base AS cuda
RUN pip install --constraint constraints.txt torch
COPY . .
RUN pip install --constraint constraints.txt --editable '.[train,data]'
USER bilm
CMD ["bilm", "--help"]

FROM base AS cpu
# Of equal versions pip prefers that of this index, because it ends in "+cpu".
ARG CPU_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --constraint constraints.txt --extra-index-url "${CPU_INDEX}" torch
COPY . .
RUN pip install --constraint constraints.txt --editable '.[train,data]'
ENV DS_ACCELERATOR=cpu
USER bilm
CMD ["bilm", "--help"]
