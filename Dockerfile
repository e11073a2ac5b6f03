# pkb-arena with a jail for kernels, on a public PyTorch image. Build it in the repository:
#
#     docker build -t pkb-arena .
#
# Run it. The volume `pkb-arena` keeps your kernels and results:
#
#     docker run --rm -it --gpus all --shm-size=8g --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
#       --security-opt systempaths=unconfined -v pkb-arena:/data pkb-arena
#
# The three security options let bubblewrap build a jail inside the container (user namespaces, mounts, a /proc of its own).
# `docker run ... pkb-arena doctor` shows the jail profile. Without GPUs leave out `--gpus all`.
# BASE: an image with torch 2.9 or newer. Its CUDA version must not be newer than the driver's. CUDA: its major version, 13 or 12.
ARG BASE=pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime
FROM ${BASE}
ARG CUDA=13

# The jail (bubblewrap, libseccomp), C++ kernels on CPU ranks (gcc), the manual page (man), an editor for F2.
RUN apt-get update \
 && apt-get install -y --no-install-recommends bubblewrap libseccomp2 gcc g++ libc6-dev man-db vim-tiny \
 && rm -rf /var/lib/apt/lists/*

# The image's torch stays as it is: pip is held to its version.
COPY . /source
RUN python3 -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' > /tmp/torch.txt \
 && PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir --constraint /tmp/torch.txt "/source[cuda${CUDA},keyring]" \
 && rm -rf /source /tmp/torch.txt

# A normal user: the jail uses user namespaces, and nothing here needs root.
RUN useradd --create-home --shell /bin/bash arena && install -d -o arena -g arena /data
USER arena
WORKDIR /data
ENV PKB_ARENA_HOME=/data LANG=C.UTF-8 COLORTERM=truecolor
VOLUME /data
ENTRYPOINT ["pkb-arena"]
