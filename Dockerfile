# The image of mempo-train: for an NVIDIA GPU, or with --target cpu for a processor. docs/docker.md tells how to build and run it.

# ---- the program, built with what is thrown away afterwards: compilers, Python, downloads ----

FROM golang:1.26.8-bookworm AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
	&& apt-get install -y --no-install-recommends \
		g++=4:12.2.0-3 libhnswlib-dev=0.6.2-* make=4.3-4.1 python3=3.11.2-1+b1 python3-venv=3.11.2-1+b1 \
	&& rm -rf /var/lib/apt/lists/*
# Downloads are checked against pinned hashes: libtorch in tools/libtorch.json, Go modules in go.sum.
ENV MEMPO_CACHE=/cache
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/cache --mount=type=cache,target=/go/pkg/mod \
	make && make install PREFIX=/opt/mempo-train

# ---- what both images have in common ----

FROM debian:bookworm-20260202-slim AS base
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY tools/image/health.sh /usr/local/bin/mempo-health
RUN useradd --uid 10001 --user-group --no-log-init --no-create-home --home-dir /data mempo \
	&& install --directory --owner=mempo --group=mempo /data
ENV PATH=/opt/mempo-train/bin:$PATH
USER 10001:10001
# Configs, models and data are read here, and run folders written.
WORKDIR /data
VOLUME /data
HEALTHCHECK --interval=1m --timeout=20s CMD ["mempo-health"]
ENTRYPOINT ["mempo-train"]
CMD ["--help"]

FROM base AS cpu
COPY --from=build /opt/mempo-train /opt/mempo-train

FROM build AS build-cuda
RUN --mount=type=cache,target=/cache --mount=type=cache,target=/go/pkg/mod \
	make install PREFIX=/opt/mempo-train CUDA=1

# The driver, 580.65.06 or newer for CUDA 13.0, is the host's.
FROM base AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility NVIDIA_REQUIRE_CUDA="cuda>=13.0"
LABEL mempo-train.driver.minimum="580.65.06"
COPY --from=build-cuda /opt/mempo-train /opt/mempo-train
