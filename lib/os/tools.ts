/**
 * The table of programs that kube-relay may start. `compile.sh`, `deno.json`, the systemd unit and
 * the docs are made from it or checked against it.
 *
 * @module
 */

/** A program that kube-relay may start. */
interface Tool {
  /** Its name on the PATH. Permissions are given by name: `--allow-run=ip`. */
  readonly name: string;
  /** The Debian package of the program; absent if Debian has none. */
  readonly debianPackage?: string;
  /** The purpose, as the end of the sentence "is started to …". */
  readonly purpose: string;
  /**
   * `system`: a tool of the machine, used if present. `credential`: a client-go credential plugin,
   * started only if the kubeconfig names it.
   */
  readonly kind: "system" | "credential";
}

/** Plain `iptables` may be either variant; the full name selects the one that the host uses. */
const IPTABLES_NAMES: readonly string[] = ["iptables", "ip6tables"].flatMap((program) =>
  ["", "-nft", "-legacy"].flatMap((variant) =>
    ["", "-save", "-restore"].map((action) => `${program}${variant}${action}`)
  )
);

/** Returns a tool of the machine. */
function system(name: string, debianPackage: string, purpose: string): Tool {
  return { name, debianPackage, purpose, kind: "system" };
}

/** Returns a plugin; without a package, Debian has none. */
function credential(name: string, purpose: string, debianPackage?: string): Tool {
  return { name, purpose, ...(debianPackage && { debianPackage }), kind: "credential" };
}

/** Every program that kube-relay may start. */
export const TOOLS: readonly Tool[] = [
  system(
    "ip",
    "iproute2",
    "make Service addresses local and remove them again, write routes to pods, and watch links",
  ),
  system("ss", "iproute2", "find other programs that announce addresses (kube-relay doctor)"),
  system(
    "arping",
    "iputils-arping",
    "inform neighbours of load balancer addresses that this node answers for",
  ),
  system("ndisc6", "ndisc6", "the same for IPv6 addresses"),
  system(
    "sysctl",
    "procps",
    "read and set kernel settings that a mode needs, such as net.ipv6.ip_nonlocal_bind",
  ),
  system(
    "nproc",
    "coreutils",
    "count the CPUs of the machine, for the size of the connection table",
  ),
  system("conntrack", "conntrack", "end UDP flows to removed endpoints, in the kernel modes"),
  system(
    "choom",
    "util-linux",
    "set how likely the kernel ends this process when memory runs out (--oom-score-adj)",
  ),
  system("cat", "coreutils", "read files of /proc, which are closed to Deno"),
  ...IPTABLES_NAMES.map((name) => system(name, "iptables", "read and write rules of iptables")),
  system("nft", "nftables", "read and write rules of nftables"),
  system("nfacct", "nfacct", "count packets for two metrics of the iptables mode"),
  system("ipset", "ipset", "read and write the sets that rules of the ipvs mode refer to"),
  system("ipvsadm", "ipvsadm", "read and write virtual servers of IPVS"),
  system(
    "setpriv",
    "util-linux",
    "end a watching tool together with kube-relay, even if kube-relay is killed",
  ),
  credential("aws", "sign in to Amazon EKS", "awscli"),
  credential("aws-iam-authenticator", "sign in to Amazon EKS"),
  credential("gke-gcloud-auth-plugin", "sign in to Google GKE"),
  credential("kubelogin", "sign in to Azure AKS or by OpenID Connect"),
  credential("kubectl", "sign in by a kubectl plugin"),
  credential("doctl", "sign in to DigitalOcean"),
];

/** Returns the row of a program, by name or path; undefined for an unknown one. */
export function toolOf(program: string): Tool | undefined {
  const name = program.slice(program.lastIndexOf("/") + 1);
  return TOOLS.find((tool) => tool.name === name);
}

/**
 * Returns the value of Deno's `--allow-run` flag: every tool by name, then `extra` ones (the
 * `ALLOW_RUN_EXTRA` of `compile.sh`). Throws a RangeError for a name with a comma or white space,
 * which would permit other programs.
 */
export function allowRunList(extra: readonly string[] = []): string {
  for (const name of extra) {
    if (/^[^\s,]+$/.test(name)) continue;
    throw new RangeError(
      `Cannot allow program '${name}': expected one name without comma or white space`,
    );
  }
  return [...new Set([...TOOLS.map((tool) => tool.name), ...extra])].join(",");
}
