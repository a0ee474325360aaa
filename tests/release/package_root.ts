/**
 * A small Debian in which packages are installed: a root of its own, above which every change is in
 * memory, with its own network, processes and mounts.
 *
 * @module
 */
import { fileURLToPath } from "node:url";
import { assertEquals } from "@std/assert";
import { file, program, type Requirement, ROOT } from "../support/requirement.ts";

/** The repository. */
export const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));

const CI_HOME = `${
  Deno.env.get("XDG_CACHE_HOME") ?? `${Deno.env.get("HOME")}/.cache`
}/kube-relay-ci`;

/** Where `.ci/run release` made a release, and a tar file of the Debian. */
export const RELEASE = `${CI_HOME}/release`;
const DEBIAN = `${CI_HOME}/package-root.tar`;
/** The libraries that Deno needs on aarch64. */
export const ARM64_LIBRARIES = `${CI_HOME}/arm64-libraries.tar`;

/** The requirements of these tests. */
export const RELEASE_REQUIREMENTS: readonly Requirement[] = [
  ROOT,
  file(`${RELEASE}/SHA256SUMS`, ".ci/run release"),
  file(DEBIAN, ".ci/run release"),
  file(ARM64_LIBRARIES, ".ci/run release"),
  ...["unshare", "dpkg-deb", "rpm", "socat", "nft", "ip", "ssh-keygen"].map(program),
];

/** In place of systemctl: writes down what it is asked, and starts and stops as the unit does. */
const SYSTEMCTL = `#!/bin/sh
echo "systemctl $*" >>/var/log/systemctl
read -r pid 2>/dev/null </run/service.pid
runs() { [ -n "$pid" ] && [ -d "/proc/$pid" ]; }
end() { runs || return 0; kill "$pid"; while runs; do sleep 0.1; done; }
launch() {
  unit=/etc/systemd/system/kube-relay.service
  [ -e $unit ] || unit=/usr/lib/systemd/system/kube-relay.service
  line=$(sed -n 's/^ExecStart=//p' $unit)
  . /etc/default/kube-relay
  eval "exec env -i PATH=/usr/sbin:/usr/bin CACHE_DIRECTORY=/var/cache/kube-relay \\
    RUNTIME_DIRECTORY=/run/kube-relay $line" </dev/null >>/var/log/kube-relay 2>&1 &
  echo $! >/run/service.pid
}
case "$*" in
*is-active*" kube-relay.service") runs ;;
"start kube-relay.service") mkdir -p -m 0700 /run/kube-relay /var/cache/kube-relay; launch ;;
*"try-restart kube-relay.service"*) ! runs || { end; launch; } ;;
*"stop kube-relay.service"*) end ;;
esac
`;

/** The commands at the beginning of each scenario. */
const PRELUDE = `
set -eu
mount -t tmpfs tmpfs "$WORK" && cd "$WORK" && mkdir upper work root
mount -t overlay -o lowerdir="$DEBIAN",upperdir=upper,workdir=work overlay root
R=$WORK/root
mount -t proc proc $R/proc && mount --rbind /dev $R/dev && mount -t tmpfs tmpfs $R/run
mount -t tmpfs tmpfs $R/tmp
mkdir -p $R/run/systemd/system && mkdir $R/release && mount --bind "$RELEASE" $R/release
printf '%s' "$SYSTEMCTL" >$R/usr/bin/systemctl && chmod 0755 $R/usr/bin/systemctl
: >$R/var/log/systemctl
# The node: an endpoint, and a way to addresses of Services. No name can be resolved, not even localhost.
ip link set lo up && ip address add 10.244.1.10/32 dev lo
ip link add eth0 type veth peer name eth1; ip address add 192.0.2.1/24 dev eth0
ip link set eth0 up; ip link set eth1 up
ip route add default via 192.0.2.2
socat TCP-LISTEN:8080,bind=10.244.1.10,fork,reuseaddr EXEC:'echo hello' &
inside() { chroot $R env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
# Waits for two minutes at most.
wait_for() { SECONDS=0; until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt 120 ] || { echo "not within two minutes: $*" >&2; cat $R/var/log/kube-relay >&2; exit 1; }
    sleep 0.2
  done; }
ask() { [ "$(socat -T 2 - TCP:10.96.0.10:80,connect-timeout=2 </dev/null)" = hello ]; }
says() { if "$@" >/dev/null 2>&1; then echo yes; else echo no; fi; }
serve() {
  cat >$R/etc/kube-relay/manifests/web.yaml <<EOF
apiVersion: v1
kind: Service
metadata: { name: web, namespace: default }
spec: { clusterIP: 10.96.0.10, ports: [{ port: 80, targetPort: 8080 }] }
---
apiVersion: v1
kind: Endpoints
metadata: { name: web, namespace: default }
subsets: [{ addresses: [{ ip: 10.244.1.10 }], ports: [{ port: 8080 }] }]
EOF
  echo 'KUBE_RELAY_ARGS="--manifests=/etc/kube-relay/manifests --proxy-mode=nftables"' >>$R/etc/default/kube-relay
  inside systemctl start kube-relay.service
  wait_for ask
}
# asks_during COMMAND…: prints how many requests failed meanwhile.
asks_during() {
  : >asking; : >failures
  (while [ -e asking ]; do if ask 2>/dev/null; then echo >>successes; else echo >>failures; fi; done) &
  asker=$!
  wait_for test -s successes
  "$@"
  rm asking; wait $asker
  echo "requests failed: $(wc -l <failures)"
}
rules() { nft list tables | grep -c kube || true; }
users() { grep -c '^kube-relay:' $R/etc/passwd || true; }
`;

/** The Debian, unpacked. */
export class PackageRoot implements AsyncDisposable {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async create(): Promise<PackageRoot> {
    const folder = await Deno.makeTempDir({ prefix: "package-root-" });
    await Deno.mkdir(`${folder}/debian`);
    await Deno.mkdir(`${folder}/work`);
    await runCommand("tar", ["-xf", DEBIAN, "-C", `${folder}/debian`]);
    return new PackageRoot(folder);
  }

  /** Runs a scenario, a shell script, in an unchanged copy; `release` has the packages. Returns its output. */
  async play(script: string, release: string): Promise<string> {
    const args =
      "--mount --propagation private --net --pid --fork --kill-child --mount-proc bash -c";
    // A scenario that hangs ends as a failed one.
    const { code, stdout, stderr } = await new Deno.Command("timeout", {
      args: ["--kill-after=5", "600", "unshare", ...args.split(" "), `${PRELUDE}\n${script}`],
      env: {
        DEBIAN: `${this.#folder}/debian`,
        WORK: `${this.#folder}/work`,
        RELEASE: release,
        SYSTEMCTL,
        LC_ALL: "C",
      },
      stdin: "null",
    }).output();
    const text = new TextDecoder().decode(stdout);
    assertEquals(code, 0, `the scenario failed:\n${text}\n${new TextDecoder().decode(stderr)}`);
    return text;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.#folder, { recursive: true });
  }
}

/** Runs a command at the root of the repository to its end. Throws with its output if it fails. */
export async function runCommand(
  name: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const command = new Deno.Command(name, { args: [...args], cwd: REPOSITORY, env, stdin: "null" });
  const { code, stdout, stderr } = await command.output();
  const text = new TextDecoder().decode(stdout);
  assertEquals(code, 0, `${name} ${args.join(" ")}:\n${text}\n${new TextDecoder().decode(stderr)}`);
  return text;
}

/** Makes a later version of the packages. Its executable unpacks the same files into another folder. */
export async function makeNext(step: string): Promise<string> {
  const folder = await Deno.makeTempDir({ prefix: "next-release-" });
  await runCommand("cp", ["-al", `${RELEASE}/.`, folder]);
  await runCommand("sed", [
    "-i",
    "1,/^readonly id=/s/^readonly id=.*/readonly id='v0.99.0-0123456789abcdef'/",
    `${folder}/kube-relay-x86_64`,
  ]);
  const epoch = await runCommand("git", ["log", "-1", "--format=%ct"]);
  await runCommand(`deploy/release/${step}`, [folder], {
    VERSION: "0.99.0",
    MACHINES: "x86_64",
    SOURCE_DATE_EPOCH: epoch.trim(),
  });
  return folder;
}
