# mmulator with Triton and NVIDIA's compiler, in an environment of its own:
#   docker build -t mmulator . && docker run --rm -v "$PWD:/work" mmulator run examples/hopper_gemm/launch.toml
# The stage `development` is that of the devcontainer: what builds need, without the package.

FROM debian:trixie-slim AS development
# g++: for nvcc, and for programs in C++. The distribution's versions, whatever they are on the day of the build.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ git make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/mmulator \
    && useradd --uid 1000 --create-home --shell /bin/bash me \
    && chown -R me /opt/mmulator
ENV PATH=/opt/mmulator/bin:$PATH
USER 1000
WORKDIR /work

FROM development AS build
COPY --chown=1000 . /tmp/mmulator
# hadolint ignore=DL3013
RUN pip install --no-cache-dir '/tmp/mmulator[triton,nvcc]' pytest

FROM development
COPY --from=build /opt/mmulator /opt/mmulator
RUN mmulator doctor
ENTRYPOINT ["mmulator"]
CMD ["--help"]
