#!/bin/sh
# PID 1 of the guest of `deno task test:uml`. The job folder of the host, named by UML_JOB on the
# kernel's command line, holds:
#   modules      modules of the kernel to load, in one line
#   writable     folders of the host that are to look writable, one in each line
#   command      a shell script, which is run
# and is given:
#   status       the exit code of the command; absent = the guest died before its end
# Everything else of the host is read-only.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

fail() {
  echo "guest: $*"
  exec poweroff -f
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o size=75%,mode=755 tmpfs /run
[ -c /dev/null ] || mount -t devtmpfs devtmpfs /dev
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
# Without it each line of the output ends with a carriage return.
stty -F /dev/console -opost 2>/dev/null

mkdir -p /run/job /run/tmp /run/netns /run/lock
mount -t hostfs -o "$UML_JOB" none /run/job || fail "cannot mount the job folder $UML_JOB"

# The modules of the guest's kernel are not where modprobe looks, and the host's disk must stay
# unchanged: the guest gets its own module folder, and the kernel and iptables-legacy are pointed to
# it.
release=$(uname -r)
mkdir -p /run/modules/lib/modules
ln -s "/usr/lib/uml/modules/$release" "/run/modules/lib/modules/$release"
printf '#!/bin/sh\nexec modprobe -d /run/modules "$@"\n' >/run/modprobe
chmod 755 /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
# One process for all of them: each costs 60 ms here.
# shellcheck disable=SC2046
/run/modprobe -a $(cat /run/job/modules) || fail "cannot load all modules of $release"

# This kernel has no nftables for IPv4 and IPv6, so here it is iptables-legacy that goes by the name
# of iptables, as `update-alternatives --set` would have it.
mkdir /run/bin
for family in iptables ip6tables; do
  for suffix in "" -save -restore; do
    ln -s "/usr/sbin/$family-legacy$suffix" "/run/bin/$family$suffix"
  done
done
export PATH=/run/bin:$PATH

layer=0
while read -r folder; do
  layer=$((layer + 1))
  parts=/run/overlay/$layer
  mkdir -p $parts/upper $parts/work $parts/merged
  layers="lowerdir=$folder,upperdir=$parts/upper,workdir=$parts/work"
  mount -t overlay -o "$layers" none $parts/merged || fail "cannot lay anything over $folder"
  mount --bind $parts/merged "$folder" || fail "cannot make $folder look writable"
done </run/job/writable

ip link set lo up
export HOME=/run/tmp TMPDIR=/run/tmp NO_COLOR=1
sh /run/job/command </dev/null
echo $? >/run/job/status
sync
exec poweroff -f
