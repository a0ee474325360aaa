#!/bin/sh
# kube-relay @VERSION@ for Linux on @MACHINE@ in one file: this script, then Deno and the program's
# files, each packed by gzip. compile.sh makes it if `deno compile` has no base binary.
#
# It unpacks them once, into a place that only the caller can write, and then replaces itself by Deno,
# which runs the program. The process id stays, so signals and systemd's MAINPID= reach the program.
#
# The unpacked files run with the caller's rights. So a place that another user could have prepared is
# skipped with a message, /tmp and $TMPDIR are never used, and root ignores HOME and XDG_*. The files
# are compared with their sha256 at the first start in each boot, and whenever they look changed.
#
# Needs a POSIX shell, and gzip and coreutils, or busybox.
set -u

readonly version='@VERSION@'
readonly machine='@MACHINE@'
readonly id='@ID@'
# For each file that was packed, in order: name, sha256, packed size.
readonly contents='@CONTENTS@'
readonly payload_size='@PAYLOAD_SIZE@'

# Bits of a file's mode, as stat's %f has them.
readonly type_bits=0170000 directory_type=0040000 access_bits=0777
readonly writable_by_others=0022 sticky=01000 private_directory=0700
# The whole modes of plain files, 0700 and 0600, in hexadecimal.
readonly program_file=81c0 data_file=8180

complain() {
    printf 'kube-relay: %s\n' "$1" >&2
}

# announce: reports after two seconds that the files are unpacked or compared, which takes up to 90
# seconds on a slow machine. conclude ends it.
announce() {
    [ -z "$notice" ] || return 0
    {
        trap 'kill "${pause-}" 2>/dev/null; exit' TERM
        sleep 2 &
        pause=$!
        wait "$pause"
        complain "unpacking and comparing $version, once in each boot; please wait"
    } &
    notice=$!
}

conclude() {
    [ -n "$notice" ] || return 0
    kill "$notice" 2>/dev/null
    # The program would keep it as a zombie.
    wait "$notice" 2>/dev/null
    notice=
}

# glance PATH…: looks at paths with one stat, so that look_at starts none for them. Whatever makes or
# replaces one of them empties $seen first.
glance() {
    seen="
$(stat -c '%n %f %u' -- "$@" 2>/dev/null)
"
}

# glance_at_place BASE: looks at BASE, at what lies above it, and at the directories of this version.
glance_at_place() {
    above=$1
    set -- "$1/$id" "$1/$id/v8"
    while [ -n "$above" ]; do
        set -- "$above" "$@"
        above=${above%/*}
    done
    glance / "$@"
}

# look_at PATH: sets $mode and $owner of the path itself, not of the target of a link.
look_at() {
    case $1 in
    # Other characters would have a meaning in a pattern, or end a line.
    *[!A-Za-z0-9/._-]*) status= ;;
    *)
        status=${seen#*"
$1 "}
        [ "$status" != "$seen" ] || status=
        status=${status%%"
"*}
        ;;
    esac
    [ -n "$status" ] || status=$(stat -c '%f %u' -- "$1" 2>/dev/null) || {
        reason="$1 does not exist or cannot be examined"
        return 1
    }
    mode=$((0x${status% *}))
    owner=${status#* }
}

is_directory() {
    look_at "$1" || return 1
    [ $((mode & type_bits)) -eq $((directory_type)) ] && return 0
    reason="$1 is no directory (a symbolic link is not followed)"
    return 1
}

# Whether only root and the caller can replace PATH by another directory. Only owners can rename in a
# sticky directory, so directories like /tmp may lie above a place.
is_guarded_path() {
    guarded=$1
    while :; do
        is_directory "${guarded:-/}" || return 1
        if [ "$owner" -ne 0 ] && [ "$owner" -ne "$uid" ]; then
            reason="${guarded:-/} belongs to uid $owner"
            return 1
        fi
        if [ $((mode & writable_by_others)) -ne 0 ] && [ $((mode & sticky)) -eq 0 ]; then
            reason="${guarded:-/} can be written by others"
            return 1
        fi
        [ -n "$guarded" ] || return 0
        guarded=${guarded%/*}
    done
}

# Whether PATH is a directory of the caller's that others cannot write, as systemd makes them.
is_own_directory() {
    is_directory "$1" || return 1
    if [ "$owner" -ne "$uid" ]; then
        reason="$1 belongs to uid $owner, not to uid $uid"
        return 1
    fi
    [ $((mode & writable_by_others)) -eq 0 ] && return 0
    reason="$1 can be written by others"
    return 1
}

# Whether PATH is a directory as this script makes them.
is_private_directory() {
    is_own_directory "$1" || return 1
    [ $((mode & access_bits)) -eq $((private_directory)) ] && return 0
    reason="$1 can be entered by others: its mode must be 0700"
    return 1
}

# enter PATH: sets $entered to it without symbolic links.
enter() {
    entered=$(CDPATH='' cd -P -- "$1" 2>/dev/null && pwd -P) && return 0
    reason="$1 does not exist or cannot be entered"
    return 1
}

# open_given PATH: sets $base to a directory that systemd or the administrator made for kube-relay.
open_given() {
    enter "$1" || return 1
    base=$entered
    glance_at_place "$base"
    is_guarded_path "${base%/*}" && is_own_directory "$base"
}

# open_made PATH: sets $base to a directory that this script makes if necessary.
open_made() {
    parent=${1%/*}
    [ -d "${parent:-/}" ] || mkdir -- "$parent" 2>/dev/null
    enter "${parent:-/}" || return 1
    base=${entered%/}/${1##*/}
    glance_at_place "$base"
    is_guarded_path "${base%/*}" || return 1
    if [ ! -e "$base" ] && [ ! -h "$base" ] && ! mkdir -- "$base" 2>/dev/null; then
        # Another start may have made it just now.
        [ -d "$base" ] || reason="$base cannot be made (read-only or not permitted)"
        [ -d "$base" ] || return 1
    fi
    is_private_directory "$base"
}

# is_line LINE TEXT: whether TEXT has LINE.
is_line() {
    case "
$2
" in
    *"
$1
"*) return 0 ;;
    esac
    return 1
}

# Whether DIRECTORY holds each file as it was packed: a plain file of the caller's with just its mode.
has_contents() {
    directory=$1
    # shellcheck disable=SC2046 # the names have no white space
    stats=$(cd -- "$directory" 2>/dev/null && stat -c '%n %f %u' -- $(file_names) 2>/dev/null)
    # shellcheck disable=SC2086 # three words a file
    set -- $contents
    while [ $# -gt 0 ]; do
        expected=$data_file
        [ "$1" != kube-relay ] || expected=$program_file
        is_line "$1 $expected $uid" "$stats" || {
            reason="$directory/$1 is not as it was unpacked"
            return 1
        }
        shift 3
    done
    # shellcheck disable=SC2046
    sums=$(cd -- "$directory" 2>/dev/null && sha256sum -- $(file_names) 2>/dev/null)
    # shellcheck disable=SC2086
    set -- $contents
    while [ $# -gt 0 ]; do
        is_line "$2  $1" "$sums" || {
            sum=$(sha256sum 2>/dev/null <"$directory/$1") || sum=unreadable
            reason="$directory/$1 is not what was unpacked: its sha256 is ${sum%% *}"
            return 1
        }
        shift 3
    done
}

# Sets $fingerprint. While it is unchanged, the files count as verified in this boot. It includes the
# change time because no user can set that back, unlike the size and the modification time.
take_fingerprint() {
    directory=$1
    # shellcheck disable=SC2046 # the names have no white space
    fingerprint=$(cd -- "$directory" 2>/dev/null &&
        stat -c '%n %f %u %i %s %y %z' $(file_names) 2>/dev/null) || return 1
    fingerprint="$boot_id $directory
$fingerprint"
}

file_names() {
    # shellcheck disable=SC2086 # three words a file
    set -- $contents
    while [ $# -gt 0 ]; do
        printf '%s\n' "$1"
        shift 3
    done
}

# Sets $marker to the file that records a verification, or to nothing if there is no safe place. Its
# content names the boot, because a restart of a container does not always empty /run.
find_marker() {
    marker=
    [ -n "$boot_id" ] || return 0
    if [ -n "${RUNTIME_DIRECTORY-}" ]; then
        open_given "${RUNTIME_DIRECTORY%%:*}" || return 0
    elif [ "$uid" -eq 0 ]; then
        open_made /run/kube-relay || return 0
    elif [ -n "${XDG_RUNTIME_DIR-}" ]; then
        open_made "$XDG_RUNTIME_DIR/kube-relay" || return 0
    else
        return 0
    fi
    marker=$base/verified-$id
}

is_marked() {
    [ -n "$marker" ] && [ -f "$marker" ] && [ ! -h "$marker" ] && take_fingerprint "$1" &&
        [ "$(cat -- "$marker" 2>/dev/null)" = "$fingerprint" ]
}

mark() {
    [ -n "$marker" ] || return 0
    # Without a marker, the next start verifies again, which is only slower.
    if ! { printf '%s\n' "$fingerprint" >"$marker.$$" && mv -fT -- "$marker.$$" "$marker"; } \
        2>/dev/null; then
        rm -f -- "$marker.$$" 2>/dev/null || :
    fi
}

# Whether the files of PLACE equal the packed ones; $reason says why not.
is_intact() {
    is_private_directory "$1" && is_private_directory "$1/v8" || return 1
    is_marked "$1" && [ -x "$1/kube-relay" ] && return 0
    announce
    # Taken before the contents are read, so the next start detects changes made meanwhile.
    take_fingerprint "$1"
    has_contents "$1" || return 1
    if [ ! -x "$1/kube-relay" ]; then
        reason="$1 is mounted noexec"
        return 1
    fi
    # Useless without a marker or new files, because then every start comes here.
    [ -z "$marker$work" ] || fill_code_cache "$1"
    mark
}

# Loads all scripts of PLACE once. The process that makes the code cache keeps up to 60 MB more, so a
# short-lived process makes it. A verb that only prints would end before Deno stores it.
fill_code_cache() {
    (launch "$1" everything.js) >/dev/null 2>&1
}

# Whether the program runs in DIRECTORY.
runs() {
    case $(launch "$1" main.js --version 2>/dev/null) in
    "kube-relay v"*) return 0 ;;
    esac
    reason="the program does not run (is this a $machine machine with glibc?)"
    return 1
}

# Whether programs in DIRECTORY may be run. Tested with a script, because `test -x` of busybox does not
# detect noexec.
allows_programs() {
    printf '#!/bin/sh\n' >"$1/probe" && chmod 0700 "$1/probe" && "$1/probe" 2>/dev/null &&
        rm -f -- "$1/probe" && return 0
    reason="$1 cannot hold programs (mounted noexec or full)"
    return 1
}

# unpack_into DIRECTORY: writes all files there. Errors show as a wrong sha256.
unpack_into() {
    directory=$1
    rest=$payload_size
    # shellcheck disable=SC2086 # three words a file
    set -- $contents
    while [ $# -gt 0 ]; do
        # head ends tail early. Under systemd tail ignores SIGPIPE and would print an error.
        tail -c "$rest" 2>/dev/null <"$self" | head -c "$3" | gzip -dc >"$directory/$1"
        rest=$((rest - $3))
        shift 3
    done
    chmod 0700 "$directory/kube-relay" && mkdir -- "$directory/v8" && has_contents "$directory" &&
        return 0
    reason="$directory could not be filled: no room, or $self is damaged"
    return 1
}

# Removes other versions from DIRECTORY. Keeps what is younger than a week, because a user may go back
# to it, and what runs, because a process reads scripts again later.
remove_old_versions() {
    for old in "$1"/v*-????????????????; do
        [ "$old" != "$1/$id" ] && [ -n "$(find "$old" -maxdepth 0 -type d -mtime +6 2>/dev/null)" ] &&
            ! is_running "$old" && rm -rf -- "$old"
    done 2>/dev/null
}

# Whether a process runs the program in DIRECTORY.
is_running() {
    for executable in /proc/[0-9]*/exe; do
        # shellcheck disable=SC3013 # dash and busybox have -ef
        [ "$executable" -ef "$1/kube-relay" ] && return 0
    done
    return 1
}

# Removes leftovers of killed starts from DIRECTORY. Files younger than ten minutes may belong to a
# start that is still unpacking. Without leftovers it starts no process.
remove_abandoned() {
    for leftover in "$1"/.unpack.*; do
        [ ! -d "$leftover" ] || find "$leftover" -maxdepth 0 -type d -mmin +10 -exec rm -rf -- {} + 2>/dev/null
    done
}

# Sets $work to a new directory in BASE, with verified files that have run.
unpack() {
    announce
    seen=
    work=$(mktemp -d "$1/.unpack.XXXXXX" 2>/dev/null) || {
        reason="$1 cannot be written"
        return 1
    }
    allows_programs "$work" && unpack_into "$work" && runs "$work"
}

# Removes $work in any state.
discard_work() {
    [ -z "$work" ] || rm -rf -- "$work"
    work=
}

# install PLACE: makes it in one step. If another start is first, its files are checked as well.
install() {
    unpack "${1%/*}" || return 1
    remove_old_versions "${1%/*}"
    # The code cache depends on the path.
    rm -rf -- "$work/v8" && mkdir -- "$work/v8"
    if ! mv -T -- "$work" "$1" 2>/dev/null && [ ! -d "$1" ]; then
        reason="$1 cannot be made"
        return 1
    fi
    is_intact "$1"
}

# repair PLACE: restores its files, each in one step, because other starts may be reading them.
repair() {
    unpack "${1%/*}" || return 1
    for file in $(file_names); do
        mv -fT -- "$work/$file" "$1/$file" 2>/dev/null || {
            reason="$1/$file cannot be replaced"
            return 1
        }
    done
    # The code cache may come from the replaced files.
    is_private_directory "$1/v8" || { rm -rf -- "$1/v8" && mkdir -- "$1/v8"; }
    rm -rf -- "$1"/v8/*
    is_intact "$1"
}

# launch PLACE SCRIPT ARGUMENT…: replaces this process by Deno, which runs the script.
launch() {
    place=$1 script=$2
    shift 2
    # Deno reads .npmrc in HOME before any flag counts: a FIFO there would hang every start. The program
    # restores HOME. It knows the name of this script from the first one.
    export KUBE_RELAY_NAME="${self##*/}" KUBE_RELAY_HOME="${HOME-}" HOME="$place" DENO_DIR="$place/v8" DENO_NO_UPDATE_CHECK=1
    PATH=$caller_path
    umask "$caller_umask"
    exec "$place/kube-relay" run @FLAGS@ "$place/$script" "$@"
}

# find_ready: sets $ready to a directory below $base with verified files.
find_ready() {
    ready=$base/$id
    remove_abandoned "$base"
    if [ ! -e "$ready" ] && [ ! -h "$ready" ]; then
        install "$ready"
    else
        # A directory that another user could have made is skipped. A changed file in a safe
        # directory, for example after a power cut, is restored.
        is_private_directory "$ready" || return 1
        is_intact "$ready" && return 0
        complain "$reason; unpacking it again"
        repair "$ready"
    fi
    outcome=$?
    discard_work
    return $outcome
}

# prepare given|made PATH: sets $ready to a directory with verified files, or says why it has none.
prepare() {
    case $2 in
    /*) "open_$1" "$2" && find_ready && return 0 ;;
    *) reason="expected an absolute path" ;;
    esac
    pass_over "$2"
    return 1
}

# pass_over PATH: reports why a place is not used. Verbs such as `status` report it only with -v or if
# no place is left.
pass_over() {
    passed_over="${passed_over}kube-relay: skipped $1: $reason
"
    [ "$is_quiet" = true ] || complain "skipped $1: $reason"
}

# Sets $is_quiet to whether ARGUMENT… name a verb, or ask for help or the version, without -v.
read_verbosity() {
    is_quiet=false
    case ${1-} in [a-z]* | -h | --help | --version) is_quiet=true ;; esac
    while [ $# -gt 0 ]; do
        case $1 in
        --) break ;;
        -v | -v=* | --v | --v=*) is_quiet=false ;;
        esac
        shift
    done
}

# Calls prepare on one place after the other, the best first.
find_place() {
    if [ -n "${CACHE_DIRECTORY-}" ]; then
        prepare given "${CACHE_DIRECTORY%%:*}" && return 0
    fi
    if [ "$uid" -eq 0 ]; then
        prepare made /var/cache/kube-relay || prepare made /run/kube-relay
        return
    fi
    cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    if [ -n "$cache" ]; then
        prepare made "$cache/kube-relay" && return 0
    fi
    [ -n "${XDG_RUNTIME_DIR-}" ] && prepare made "$XDG_RUNTIME_DIR/kube-relay"
}

# path_for ARGUMENT…: prints the PATH for the program: the folders of --tools-path, then the caller's.
# Deno looks up programs once, before it reads arguments, so this cannot be done later.
path_for() {
    folders=
    while [ $# -gt 0 ]; do
        value=
        case $1 in
        --) break ;;
        --tools[-_]path=*) value=${1#*=} ;;
        --tools[-_]path) value=${2-} ;;
        esac
        # Only absolute ones: others would depend on the working directory.
        case $value in /*) folders=$folders$(printf '%s' "$value" | tr , :): ;; esac
        shift
    done
    printf '%s' "$folders${PATH-}"
}

# Sets $uid to the effective user, without a program where /proc is mounted.
find_uid() {
    uid=
    while read -r field _ effective _; do
        [ "$field" != Uid: ] || uid=$effective
    done 2>/dev/null </proc/self/status
    case $uid in '' | *[!0-9]*) uid=$(id -u) ;; esac
}

# Unsets variables of Deno and Node.js. They could loosen the flags, add code or trusted CAs, or end
# every start: a NODE_CHANNEL_FD inherited from a Node.js program names a descriptor that does not exist.
forget_variables() {
    exported=$(export -p)
    # A line of another variable's value may look like a name here, too. Its variable is unset as well.
    set -f
    old_ifs=$IFS
    IFS='
'
    for name in $exported; do
        name=${name#export }
        name=${name#declare -x }
        name=${name%%=*}
        case $name in
        NODE_NAME | *[!A-Za-z0-9_]*) ;;
        DENO_* | NODE_* | OTEL_*) unset "$name" ;;
        esac
    done
    IFS=$old_ifs
    set +f
}

main() {
    self=$0
    caller_umask=$(umask)
    umask 077
    # This script uses the tools of the system, whatever PATH the program gets.
    caller_path=$(path_for "$@")
    PATH=/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH}
    seen=
    find_uid
    { read -r boot_id </proc/sys/kernel/random/boot_id; } 2>/dev/null || boot_id=
    forget_variables
    read_verbosity "$@"
    find_marker
    work=
    notice=
    passed_over=
    trap 'conclude; discard_work' EXIT
    trap 'exit 1' HUP INT TERM
    find_place || {
        [ "$is_quiet" = false ] || printf '%s' "$passed_over" >&2
        complain "cannot unpack $version: set CACHE_DIRECTORY to a directory that belongs to uid \
$uid, cannot be written by others, has 100 MB free and is not mounted noexec"
        exit 1
    }
    conclude
    launch "$ready" main.js "$@"
}

# One line, so that the whole script is read before the payload begins. A newer file may replace this
# one while it runs.
main "$@"; exit 1
