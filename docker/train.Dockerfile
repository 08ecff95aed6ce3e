# Training with GPUs: the project with DeepSpeed and vLLM. docker build -f docker/train.Dockerfile -t astra-train .
# The devel image: DeepSpeed compiles an operator for zero3-offload.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv python3-dev git g++ ninja-build bubblewrap \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/venv/bin:$PATH PYTHONHASHSEED=0 DS_BUILD_OPS=0
RUN python3 -m venv /opt/venv
WORKDIR /work
COPY . /work
# vllm 0.31.0 is the newest that TRL 1.16.0 declares; torch before deepspeed, whose build asks for it
RUN pip install --no-cache-dir "torch==2.13.0" setuptools wheel ninja \
    && pip install --no-cache-dir --no-build-isolation -e . "deepspeed==0.19.8" "peft==0.21.2" "vllm==0.31.0"
CMD ["dvc", "repro"]
