#!/usr/bin/env bash
# Builds kube-relay as one file for Linux with glibc: dist/kube-relay, with its manual page, completion
# scripts, THIRD-PARTY-LICENSES, the SBOM and SHA256SUMS next to it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

readonly deno_version=2.9.6
# Flags of both forms besides the permissions. They keep the heap small; docs/decisions/0031 has what
# each saves and costs.
readonly v8_flags=--max-semi-space-size=2,--heap-growing-percent=30,--expose-gc
readonly runtime_flags=(--unstable-net "--v8-flags=$v8_flags")

usage() {
  cat <<EOF
Usage: ./compile.sh [--self-extracting] [--target MACHINE-unknown-linux-gnu [--deno-version X.Y.Z]]
                    [--output DIRECTORY]

Makes dist/kube-relay, or dist/kube-relay-MACHINE for another machine than this one.
  --self-extracting  make that form even where 'deno compile' could be used
  --target           x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu (default: this machine)
  --deno-version     with --target for another machine: the version of its Deno (default: $deno_version)
  --output           the directory to write to instead of dist

Environment:
  ALLOW_RUN_EXTRA  names of further credential plugins that the result may start
  DENORT_BIN       the base that 'deno compile' builds on; without it the cached one is used, and
                   where there is none, the result is a self-extracting file with the same permissions
EOF
}

say() { printf 'compile.sh: %s\n' "$*"; }

fail() {
  printf 'compile.sh: %s\n' "$*" >&2
  exit "${status:-1}"
}

parse_arguments() {
  machine=$(uname -m)
  self_extracting=false
  target_deno_version=$deno_version
  dist=dist
  while (($# > 0)); do
    case $1 in
      --help | -h) usage && exit 0 ;;
      --self-extracting) self_extracting=true && shift && continue ;;
      --target=* | --deno-version=* | --output=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" && continue ;;
      --target) machine=${2-} ;;
      --deno-version) target_deno_version=${2-} ;;
      --output) dist=${2-} ;;
      *) status=2 fail "unknown argument '$1': expected --self-extracting, --target, --deno-version or --output" ;;
    esac
    (($# > 1)) || status=2 fail "$1 needs a value"
    shift 2
  done
  case $machine in
    x86_64 | x86_64-unknown-linux-gnu) machine=x86_64 deno_package=@deno/linux-x64-glibc ;;
    aarch64 | arm64 | aarch64-unknown-linux-gnu) machine=aarch64 deno_package=@deno/linux-arm64-glibc ;;
    *) status=2 fail "unknown target '$machine': expected x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu" ;;
  esac
  readonly machine deno_package target_deno_version self_extracting
  readonly target=$machine-unknown-linux-gnu
  native=false output=$dist/kube-relay-$machine
  if [[ $machine == "$(uname -m)" ]]; then native=true output=$dist/kube-relay; fi
  embedded_deno_version=$target_deno_version
  [[ $native == false ]] || embedded_deno_version=$deno_version
  readonly native output dist embedded_deno_version
}

# Sets deno to a command that is the pinned version: another one may bundle differently.
find_deno() {
  deno=(deno)
  if ! command -v deno >/dev/null || [[ $(deno --version) != "deno $deno_version "* ]]; then
    command -v npx >/dev/null || fail "needs Deno $deno_version, or npx to fetch it: found neither"
    deno=(npx -y "deno@$deno_version")
  fi
}

# Prints the machine that an ELF file was built for, as its header has it (e_machine, little endian).
elf_machine() {
  case $(od -An -tx1 -j18 -N2 -- "$1" | tr -d ' ') in
    3e00) echo x86_64 ;;
    b700) echo aarch64 ;;
    *) echo unknown ;;
  esac
}

permission_flags() {
  local extra=${ALLOW_RUN_EXTRA-}
  [[ $extra =~ ^[[:alnum:]\ ,._-]*$ ]] ||
    status=2 fail "ALLOW_RUN_EXTRA is '$extra': expected names of programs, with commas between them"
  # One word per name: they are checked, and refused if odd, by the script.
  # shellcheck disable=SC2086
  "${deno[@]}" run -q --no-prompt lib/os/permissions.ts ${extra//,/ }
}

# Prints where a base for 'deno compile' is. It is looked for, since without one Deno fails with a
# text that may change, after a try to download it.
find_denort() {
  if [[ -n ${DENORT_BIN-} ]]; then
    echo "$DENORT_BIN"
    return
  fi
  local deno_dir
  deno_dir=$("${deno[@]}" eval 'console.log(JSON.parse(new TextDecoder().decode(
    new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).outputSync().stdout)).denoDir)')
  local zip=$deno_dir/dl/release/v$deno_version/denort-$target.zip
  if [[ -f $zip ]]; then echo "$zip"; fi
}

# Names each part after its content. The hash in the name that Deno gives it depends on the folder of the
# sources, so two clones of a commit would make different files.
name_by_content() {
  local part name digest
  local -a names=()
  for part in "$work"/bundle/*-????????.js; do
    name=$(basename -- "$part" .js)
    digest=$(sed -E 's/-[A-Z0-9]{8}\.js/.js/g' "$part" | sha256sum | cut -c 1-8)
    names+=(-e "s/${name//./\\.}\.js/${name%-*}-$digest.js/g")
    mv -- "$part" "$work/bundle/${name%-*}-$digest.js"
  done
  sed -i "${names[@]}" "$work"/bundle/*.js
}

# Writes $work/bundle/main.js with the parts that it loads when they are needed, the program of workers
# next to it, and their source maps, which tell what went into them.
bundle() {
  local program part
  for program in "main.ts --code-splitting" backends/userspace_worker.ts; do
    # Words of the list, not of a user.
    # shellcheck disable=SC2086
    "${deno[@]}" bundle --quiet --frozen --minify --platform deno --sourcemap external \
      --outdir "$work/bundle" $program
  done
  load_node_late
  name_by_content
  # Loads each of them and runs none, for the code cache. The program of workers works only in one.
  for part in "$work"/bundle/*.js; do
    printf 'await import("./%s").catch(() => {});\n' "$(basename -- "$part")"
  done >"$work/everything.js"
  mv "$work/everything.js" "$work/bundle/"
  # V8 keeps a script with one other character in two bytes for each of its characters.
  if LC_ALL=C grep -nPo '.{0,60}[^\x00-\x7f].{0,60}' "$work"/bundle/*.js >&2; then
    fail "the bundle has a character that is not ASCII: write it as an escape, such as &hellip; in HTML"
  fi
}

# Every bundle of Deno begins by loading the require() of Node.js, for packages of the old form. That
# loads half of Node.js, which takes longer than most verbs: it is loaded at the first require() instead.
# Only modules of Node.js itself are left to be required.
load_node_late() {
  local early='import\{createRequire as (__deno_internal_createRequire)\} from "node:module";'
  early+='var ([[:alnum:]_$]+)=__deno_internal_createRequire\(import\.meta\.url\);'
  sed -Ei "s/$early/var \\2=name=>process.getBuiltinModule(name);/" "$work"/bundle/*.js
  if grep -l '"node:module"' "$work"/bundle/*.js >&2; then
    fail "these scripts load Node.js at once: compile.sh does not know how this Deno bundles require()"
  fi
}

# deno compile keeps its code cache in the shared temporary directory: the result is made without one.
# It has one set of permissions for all processes: each but a data process gives up --allow-ffi at once.
compile() {
  "${deno[@]}" compile --quiet --frozen --bundle --minify --no-code-cache --target "$target" \
    "${runtime_flags[@]}" "${permissions[@]}" --allow-ffi --output "$work/kube-relay" main.ts
}

# Prints the path of the target machine's Deno. That of another machine comes from npm, whose
# integrity value is compared with what arrived.
deno_for_target() {
  if [[ $native == true ]]; then
    "${deno[@]}" eval 'console.log(Deno.execPath())'
    return
  fi
  local wanted=$deno_package@$target_deno_version integrity tarball sha512
  integrity=$(npm view --silent --prefer-offline "$wanted" dist.integrity || true)
  [[ -n $integrity ]] || fail "npm has no $wanted: choose another version by --deno-version"
  tarball=$(npm pack --silent --prefer-offline --pack-destination "$work" "$wanted")
  sha512=$(node -e 'process.stdout.write(require("crypto").createHash("sha512")
    .update(require("fs").readFileSync(process.argv[1])).digest("base64"))' "$work/$tarball")
  [[ sha512-$sha512 == "$integrity" ]] ||
    fail "$wanted is damaged: its integrity is sha512-$sha512, npm says $integrity"
  tar -xzf "$work/$tarball" -C "$work" package/deno
  echo "$work/package/deno"
}

# Joins deploy/self_extracting.sh with the packed Deno and program.
make_self_extracting() {
  local deno_bin
  deno_bin=$(deno_for_target)
  [[ $(elf_machine "$deno_bin") == "$machine" ]] ||
    fail "$deno_bin is for $(elf_machine "$deno_bin"): expected a Deno for $machine"
  # Nothing outside is asked for: no configuration, no lock file, no download, no package. Without the
  # lazy imports, Deno would read each part of the program before it runs the first.
  deploy/pack.sh "$version" "$machine" "$deno_bin" "$work/bundle" \
    -q --no-config --no-lock --no-remote --no-npm --cached-only --unstable-lazy-dynamic-imports \
    "${runtime_flags[@]}" "${permissions[@]}" >"$work/kube-relay"
  chmod 0755 "$work/kube-relay"
}

# A file that was made is not yet our program: with Deno itself as its base, 'deno compile' succeeds
# and makes a Deno. What can be run here is run, without a Deno on the PATH.
verify() {
  if [[ $native == false ]]; then
    say "$output is for $machine and was not run: this is $(uname -m)"
    return
  fi
  local said
  said=$(env -i PATH=/usr/bin:/bin CACHE_DIRECTORY="$work/cache" RUNTIME_DIRECTORY="$work/cache" \
    "$work/kube-relay" --version) || fail "the result does not run: $said"
  [[ $said == "kube-relay v$version "* ]] ||
    fail "the result is not kube-relay: --version printed '$said', expected 'kube-relay v$version …'"
  say "$output --version: $said"
}

# Writes the completion scripts and the manual page, as the program prints them.
write_reference() {
  local program=("${deno[@]}" run -q --no-prompt --frozen "${runtime_flags[@]}" "${permissions[@]}" main.ts)
  local shell
  mkdir -p "$dist/completion"
  for shell in bash zsh fish; do
    "${program[@]}" completion "$shell" >"$dist/completion/kube-relay.$shell"
  done
  "${program[@]}" man >"$dist/kube-relay.8"
}

main() {
  parse_arguments "$@"
  find_deno
  work=$(mktemp -d)
  trap 'rm -rf -- "$work"' EXIT
  mkdir -p "$dist" "$work/cache"
  version=$("${deno[@]}" eval 'console.log(JSON.parse(Deno.readTextFileSync("deno.json")).version)')
  permissions=$(permission_flags)
  mapfile -t permissions <<<"$permissions"
  bundle

  local denort='' form
  [[ $self_extracting == true ]] || denort=$(find_denort)
  if [[ -n $denort ]]; then
    form="a 'deno compile' executable on the base $denort"
    compile
    [[ $(elf_machine "$work/kube-relay") == "$machine" ]] ||
      fail "the result is for $(elf_machine "$work/kube-relay"): expected a base for $machine"
  else
    form="a self-extracting file, not a 'deno compile' executable, for which no base was found"
    [[ $self_extracting == false ]] || form="a self-extracting file, as asked"
    make_self_extracting
  fi
  verify
  write_reference

  "${deno[@]}" run -q --no-prompt --allow-read deploy/third_party_licenses.ts "$work"/bundle/*.map \
    >"$work/THIRD-PARTY-LICENSES"
  # The date of the commit, so that the same commit results in the same file.
  : "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
  export SOURCE_DATE_EPOCH
  "${deno[@]}" run -q --no-prompt --allow-read --allow-env=SOURCE_DATE_EPOCH deploy/sbom.ts \
    "$embedded_deno_version" "$work"/bundle/*.map >"$work/kube-relay.spdx.json"
  mv "$work/THIRD-PARTY-LICENSES" "$work/kube-relay.spdx.json" "$dist/"
  mv "$work/kube-relay" "$output"
  # That of a release would no longer fit.
  rm -f -- "$dist/SHA256SUMS.sig"
  (cd "$dist" && sha256sum kube-relay* completion/* THIRD-PARTY-LICENSES >SHA256SUMS)
  say "made $output: $form ($(($(stat -c %s "$output") / 1000000)) MB)"
}

main "$@"
