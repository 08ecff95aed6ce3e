#!/bin/sh
# Build the sandbox image, tagged with the hash of the runner that it carries.
#   docker/build.sh         from Debian packages: no registry of images is asked
#   docker/build.sh slim    from python:slim, for who has a registry
set -eu
here=$(cd "$(dirname "$0")" && pwd)
runner=$here/../astra/sandbox/runner.py
tag=astra-sandbox:$(sha256sum "$runner" | cut -c1-12)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp "$runner" "$context/"
if [ "${1:-debian}" = slim ]; then
    docker build --quiet --file "$here/Dockerfile.slim" --tag "$tag" "$context"
else
    "$here/fetch.sh" "$context/root" python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 \
        libexpat1 zlib1g libssl3 libbz2-1.0 liblzma5 libffi8 libsqlite3-0 libuuid1 libcrypt1 media-types tzdata
    ln -s python3.11 "$context/root/usr/bin/python3"
    (cd "$context/root" && mkdir -p tmp proc dev sys)
    tar --create --file "$context/root.tar" --owner 0 --group 0 --directory "$context/root" .
    rm -rf "$context/root"
    docker build --quiet --network none --file "$here/Dockerfile" --tag "$tag" "$context"
fi
echo "$tag"
