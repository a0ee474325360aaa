#!/bin/sh
# What the scripts of both packages do. deb.sh and rpm.sh put this file in front of each script.
set -e

units="kube-relay.service kube-relay-userspace.service kube-relay-bird.service"
# Here the executable outlives its package, since what it added to the node does so, too.
kept=/var/lib/kube-relay-removed
cleanup="$kept/kube-relay --cleanup && rm -rf $kept /var/cache/kube-relay /run/kube-relay"

say() { echo "kube-relay: $*"; }

has_systemd() { [ -d /run/systemd/system ]; }

reload_units() { ! has_systemd || systemctl daemon-reload || true; }

# manage COMMAND UNIT…: systemctl, if systemd runs and, on Debian, policy-rc.d permits it.
manage() {
    if ! has_systemd; then
        return 0
    elif command -v deb-systemd-invoke >/dev/null; then
        deb-systemd-invoke "$@" || true
    else
        systemctl "$@" || true
    fi
}

# A user for kube-relay-userspace.service, so that files can be given to it.
after_installation() {
    if ! getent passwd kube-relay >/dev/null; then
        group=--user-group
        ! getent group kube-relay >/dev/null || group=--gid=kube-relay
        useradd --system "$group" --no-create-home --home-dir /nonexistent \
            --shell /usr/sbin/nologin kube-relay
    fi
    rm -rf "$kept"
    reload_units
}

# The rules stay during the restart, and no start waits for files to be unpacked. BIRD is not restarted,
# because that ends its sessions.
after_upgrade() {
    after_installation
    if has_systemd && systemctl --quiet is-active kube-relay.service; then
        kube-relay --version >/dev/null 2>&1 || true
    fi
    manage try-restart kube-relay.service kube-relay-userspace.service
}

before_removal() {
    # A full disk must not prevent the removal. The copy comes first, so a slow one stops no service.
    { mkdir -p "$kept" && chmod 0700 "$kept" && keep_executable; } || rm -rf "$kept" || true
    # One word per unit.
    # shellcheck disable=SC2086
    manage stop $units
    say "the rules and addresses that kube-relay added to this node stay."
    [ ! -x "$kept/kube-relay" ] || say "To remove them: $cleanup"
}

keep_executable() {
    ln -f /usr/bin/kube-relay "$kept/kube-relay" 2>/dev/null || cp /usr/bin/kube-relay "$kept/kube-relay"
}

# Whether a kube-relay runs: one installed by hand, in a container, or one that policy-rc.d kept running.
runs() { grep -qsx kube-relay /proc/[0-9]*/comm; }

after_removal() {
    reload_units
    runs || rm -rf /var/cache/kube-relay /var/cache/kube-relay-service /var/cache/private/kube-relay-service
}

# Removes what enabled the units of the package. A unit of the administrator has the same name and a file.
remove_links() {
    for unit in $units; do
        link=/etc/systemd/system/multi-user.target.wants/$unit
        [ -e "$link" ] || rm -f "$link"
    done
}

# clean_up: removes what kube-relay added to the node. A cleanup also removes the rules of kube-proxy, and
# those of a kube-relay in a container, so none is done while another proxy serves.
clean_up() {
    [ -x "$kept/kube-relay" ] || return 0
    if runs || "$kept/kube-relay" --cleanup --dry-run 2>&1 | grep -q "will write its rules again"; then
        say "another proxy serves this node, so no rule was removed."
        say "To remove them when it has ended: $cleanup"
    elif "$kept/kube-relay" --cleanup; then
        rm -rf "$kept"
    else
        say "not everything was removed. Try again: $cleanup"
    fi
}

# remove_files: removes settings and state, unless a kube-relay serves from them.
remove_files() {
    if runs; then
        say "a kube-relay runs, so these stay: /etc/kube-relay /var/lib/kube-relay /var/cache/kube-relay /run/kube-relay"
    else
        rm -rf /etc/kube-relay /run/kube-relay /var/lib/kube-relay /var/lib/private/kube-relay
    fi
}
