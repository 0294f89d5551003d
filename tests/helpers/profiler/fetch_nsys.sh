#!/bin/sh
# Nsight Systems of Debian (non-free) or Ubuntu (multiverse), unpacked into a folder: nothing is installed, nothing needs
# root. About 170 MB to fetch, 620 MB on disk; NVIDIA's licence, see usr/share/doc/nsight-systems in it.
set -eu
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
cd "$1"
[ -x nsys ] && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "needs apt-get and dpkg-deb" >&2; exit 1; }
. /etc/os-release
packages="nsight-systems nsight-systems-target libssh-4"
from=
if ! apt-cache show nsight-systems >/dev/null 2>&1 && [ "$ID" = debian ]; then
    mkdir -p apt/lists/partial apt/archives/partial
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)  # the one in use here
    [ -n "$mirror" ] || { echo "needs a source of Debian packages: apt-get update" >&2; exit 1; }
    echo "deb $mirror $VERSION_CODENAME main non-free" >apt/sources.list
    here=$(pwd)/apt
    from="-o Dir::Etc::SourceList=$here/sources.list -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists=$here/lists -o Dir::Cache=$here -o Dir::State::status=/dev/null
        -o APT::Sandbox::User=$(id -un)"
    apt-get $from -qq update
fi
apt-get $from -qq download $packages
for package in *.deb; do
    dpkg-deb -x "$package" .
done
rm -rf apt ./*.deb
ln -s usr/lib/nsight-systems/bin/nsys nsys
./nsys --version
