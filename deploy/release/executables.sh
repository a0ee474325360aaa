#!/usr/bin/env bash
# A step of release.sh: the executable for each machine, as kube-relay-MACHINE. Those that are already
# there are kept.
set -euo pipefail
directory=$1

for machine in $MACHINES; do
  file=$directory/kube-relay-$machine
  if [[ -e $file ]]; then continue; fi
  # The short name is that of this machine's executable.
  if [[ $machine != "$(uname -m)" || ! -e $directory/kube-relay ]]; then
    ./compile.sh --target "$machine-unknown-linux-gnu" --output "$directory"
  fi
  if [[ $machine == "$(uname -m)" ]]; then ln -- "$directory/kube-relay" "$file"; fi
done
