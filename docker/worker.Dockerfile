# Dask scheduler and CPU workers: the same locked packages as Airflow's image, without Airflow.
ARG PYTHON=3.11.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=copy NUMBA_CACHE_DIR=/opt/kernels
WORKDIR /build
COPY docker/uv.lock docker/worker.lock ./
RUN python -m pip install --require-hashes --target uv -r uv.lock
RUN python -m venv --without-pip /opt/synth \
    && uv/bin/uv pip install --quiet --python /opt/synth/bin/python --compile-bytecode --require-hashes -r worker.lock \
    && cp worker.lock /opt/synth/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY synth_core synth_core
RUN uv/bin/uv pip install --quiet --python /opt/synth/bin/python --compile-bytecode --no-deps . \
    && /opt/synth/bin/python -m synth_core.warm

FROM python:${PYTHON}
RUN groupadd --gid 50000 synth && useradd --uid 50000 --gid synth --create-home synth \
    && install -d -o synth -g synth -m 0755 /workspace /workspace/public \
    && install -d -o synth -g synth -m 0700 /workspace/confidential
COPY --from=build /opt/synth /opt/synth
# Compiled kernels are only used from a folder that can be written to.
COPY --from=build --chown=50000:50000 /opt/kernels /opt/kernels
# One thread for each library: a worker's parallelism is its number of Dask threads.
ENV PATH=/opt/synth/bin:$PATH \
    NUMBA_CACHE_DIR=/opt/kernels \
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 \
    DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=0.7 \
    DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=0.95 \
    DASK_TEMPORARY_DIRECTORY=/workspace/confidential/spill
USER 50000
WORKDIR /home/synth
# The scheduler overrides this with `dask scheduler`; both answer /health on their dashboard's port.
CMD ["dask", "worker", "tcp://dask-scheduler:8786", "--nworkers", "1", "--nthreads", "2", "--dashboard-address", ":8787"]
EXPOSE 8786 8787
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=4 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8787/health', timeout=3)"]
