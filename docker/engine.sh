#!/bin/sh
# A private Docker engine in the foreground, for tests, without installing one:  docker/engine.sh PACKAGES STATE
# PACKAGES gets the unpacked Debian packages (kept for the next time; bubblewrap among them), STATE all else:
# DOCKER_HOST=unix://STATE/docker.sock. Needs root and Debian. Stop it with SIGTERM, then remove STATE.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" "$2"
packages=$(cd "$1" && pwd)
state=$(cd "$2" && pwd)
if [ ! -e "$packages/complete" ]; then
    "$here/fetch.sh" "$packages" docker.io containerd runc tini bubblewrap
    touch "$packages/complete"
fi
export PATH="$packages/usr/sbin:$packages/usr/bin:$PATH"
# No bridge and no change of the machine's firewall: containers here have no network.
exec dockerd --data-root "$state/data" --exec-root "$state/exec" --pidfile "$state/pid" \
    --host "unix://$state/docker.sock" --storage-driver overlay2 \
    --bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false
