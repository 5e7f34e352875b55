# Dask workers on NVIDIA GPUs (dask-cuda, CuPy). Never built or run on a GPU by the authors.
# The driver comes from the host through the container toolkit; the CUDA 12 libraries come as locked packages.
ARG PYTHON=3.11.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=copy NUMBA_CACHE_DIR=/opt/kernels
WORKDIR /build
COPY docker/uv.lock docker/worker-cuda.lock ./
RUN python -m pip install --require-hashes --target uv -r uv.lock
RUN python -m venv --without-pip /opt/synth \
    && uv/bin/uv pip install --quiet --python /opt/synth/bin/python --compile-bytecode --require-hashes -r worker-cuda.lock \
    && cp worker-cuda.lock /opt/synth/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY synth_core synth_core
RUN uv/bin/uv pip install --quiet --python /opt/synth/bin/python --compile-bytecode --no-deps . \
    && /opt/synth/bin/python -m synth_core.warm \
    && /opt/synth/bin/python -c "import rmm; from cupy_backends.cuda.libs import cublas, nvrtc"

FROM python:${PYTHON}
RUN groupadd --gid 50000 synth && useradd --uid 50000 --gid synth --create-home synth \
    && install -d -o synth -g synth -m 0755 /workspace /workspace/public \
    && install -d -o synth -g synth -m 0700 /workspace/confidential
COPY --from=build /opt/synth /opt/synth
# Compiled kernels are only used from a folder that can be written to.
COPY --from=build --chown=50000:50000 /opt/kernels /opt/kernels
ENV PATH=/opt/synth/bin:$PATH \
    NUMBA_CACHE_DIR=/opt/kernels \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 \
    SYNTH_ARRAYS=auto
USER 50000
WORKDIR /home/synth
# One worker for each GPU. RMM takes 40 % of a card's memory at the start and may grow to 80 %, and CuPy allocates from
# it; what does not fit goes to the host. The resource GPU is what fits and large cliques ask for.
CMD ["dask", "cuda", "worker", "tcp://dask-scheduler:8786", "--nthreads", "1", "--resources", "GPU=1", \
    "--rmm-pool-size", "0.4", "--rmm-maximum-pool-size", "0.8", "--device-memory-limit", "0.8", \
    "--set-rmm-allocator-for-libs", "cupy", \
    "--local-directory", "/workspace/confidential/spill", "--dashboard-address", ":8787"]
EXPOSE 8787
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8787/health', timeout=3)"]
