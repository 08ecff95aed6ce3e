#!/bin/sh
# Unpack Debian packages into a folder, without installing them:  docker/fetch.sh FOLDER PACKAGE...
set -eu
folder=$1
shift
mkdir -p "$folder"
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
cd "$packages"
download() { apt-get -o APT::Sandbox::User="$(id -un)" download -qq "$@"; }
download "$@" 2>/dev/null || { apt-get update -qq && download "$@"; }
for package in *.deb; do dpkg-deb -x "$package" "$folder"; done
