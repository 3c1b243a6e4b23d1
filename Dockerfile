# contamination-testbed in a container; docs/docker.md tells how to use it.
#
#   docker build -t contamination .
#   docker build -t contamination:cuda --build-arg BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04 --build-arg TORCH=cuda .
ARG BASE=python:3.12-slim

FROM ${BASE} AS python
# The slim image has a Python; CUDA's images get that of their distribution, whatever its release is.
# hadolint ignore=DL3008
RUN if ! python3 -c 'import ensurepip'; then \
      apt-get update && apt-get install -y --no-install-recommends python3 python3-venv \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

FROM python AS wheel
WORKDIR /src
COPY . .
RUN pip wheel --no-deps --wheel-dir /wheel .

FROM python
ARG TORCH=cpu
ARG TORCH_VERSION=2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN if [ "$TORCH" = cpu ]; then \
      pip install --extra-index-url "$TORCH_INDEX" "torch==$TORCH_VERSION+cpu"; \
    else \
      pip install "torch==$TORCH_VERSION"; \
    fi
ARG EXTRAS=embedded
COPY --from=wheel /wheel /wheel
RUN pip install "$(echo /wheel/*.whl)[$EXTRAS]"
# Any user may run it (docker run --user): HOME is writable, and who asks for a name gets one.
RUN useradd --create-home --uid 10001 contamination \
    && install -d -o contamination -m 1777 /work /home/contamination
ENV HOME=/home/contamination USER=contamination
USER 10001
WORKDIR /work
ENTRYPOINT ["contamination"]
CMD ["--help"]
