#!/bin/sh
# Installs Switchyard of a release into a folder:
#   curl -fsSL https://github.com/switchyard-dl/switchyard/releases/latest/download/install.sh | sh
# On Linux all programs, elsewhere the command alone, which talks to a Switchyard on another machine.
#   --client        the command alone, also on Linux
#   --to FOLDER     default: /usr/local/bin as root, else ~/.local/bin
#   --version 1.2.3 default: the newest release
#   --from FOLDER   take the files of a release from a folder, for a machine without internet
set -eu

releases=https://github.com/switchyard-dl/switchyard/releases
say() { printf 'switchyard: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

client='' to='' version='' from=''
while [ $# -gt 0 ]; do
    case "$1" in
    --client) client=yes; shift ;;
    --to|--version|--from)
        [ $# -ge 2 ] || die "$1 needs a value"
        case "$1" in --to) to=$2 ;; --version) version=${2#v} ;; --from) from=$2 ;; esac
        shift 2 ;;
    *) die "unknown option $1: want --client, --to FOLDER, --version VERSION or --from FOLDER" ;;
    esac
done

case "$(uname -s)" in
Linux) os=linux ;;
Darwin) os=darwin client=yes ;;
*) die "there is no release for $(uname -s), only for Linux and macOS: build it from source" ;;
esac
case "$(uname -m)" in
x86_64|amd64) arch=amd64 ;;
aarch64|arm64) arch=arm64 ;;
*) die "there is no release for $(uname -m), only for amd64 and arm64: build it from source" ;;
esac
if [ -z "$to" ]; then
    to=$HOME/.local/bin
    [ "$(id -u)" -ne 0 ] || to=/usr/local/bin
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() {
    if [ -n "$from" ]; then
        cp "$from/$1" "$work/" || die "$from has no file $1"
        return
    fi
    url=$releases/latest/download/$1
    [ -z "$version" ] || url=$releases/download/v$version/$1
    if command -v curl >/dev/null; then
        curl -fsSL -o "$work/$1" "$url" || die "cannot fetch $url"
    elif command -v wget >/dev/null; then
        wget -q -O "$work/$1" "$url" || die "cannot fetch $url"
    else
        die 'neither curl nor wget is here: install one, or fetch the release elsewhere and use --from FOLDER'
    fi
}
sum() {
    if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

fetch SHA256SUMS
name=switchyard${client:+-client}_
file=$(sed -n "s/^[0-9a-f]*  \(${name}.*_${os}_${arch}\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
[ -n "$file" ] || die "this release has nothing for $os on $arch: SHA256SUMS names no ${name}VERSION_${os}_${arch}.tar.gz"
fetch "$file"
want=$(sed -n "s/^\([0-9a-f]*\)  ${file}\$/\1/p" "$work/SHA256SUMS")
have=$(sum "$work/$file")
[ "$want" = "$have" ] || die "$file is damaged or was changed: its SHA-256 is $have, and SHA256SUMS says $want. Nothing was installed"

mkdir "$work/new"
tar -xzf "$work/$file" -C "$work/new"
mkdir -p "$to" || die "cannot make the folder $to: name another with --to"
for program in "$work/new/"switchyard*; do
    # Under its name all at once: what runs keeps the old file.
    { cp "$program" "$to/.${program##*/}.new" && mv "$to/.${program##*/}.new" "$to/${program##*/}"; } ||
        die "cannot write to $to: run this as root, or name another folder with --to"
done
say "installed $("$to/switchyard" --version) in $to"
case ":$PATH:" in
*":$to:"*) ;;
*) say "add it to PATH: export PATH=\"$to:\$PATH\"" ;;
esac
[ -n "$client" ] || say 'next: `switchyard doctor` says what this machine has, `switchyard demo` shows it at work'
