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

/** Every program that kube-relay may start. */
export const TOOLS: readonly Tool[] = [
  {
    name: "ip",
    debianPackage: "iproute2",
    purpose:
      "make Service addresses local and remove them again, write routes to pods, and watch links",
    kind: "system",
  },
  {
    name: "ss",
    debianPackage: "iproute2",
    purpose: "find other programs that announce addresses (kube-relay doctor)",
    kind: "system",
  },
  {
    name: "arping",
    debianPackage: "iputils-arping",
    purpose: "inform neighbours of load balancer addresses that this node answers for",
    kind: "system",
  },
  {
    name: "ndisc6",
    debianPackage: "ndisc6",
    purpose: "the same for IPv6 addresses",
    kind: "system",
  },
  {
    name: "sysctl",
    debianPackage: "procps",
    purpose: "read and set kernel settings that a mode needs, such as net.ipv6.ip_nonlocal_bind",
    kind: "system",
  },
  {
    name: "nproc",
    debianPackage: "coreutils",
    purpose: "count the CPUs of the machine, for the size of the connection table",
    kind: "system",
  },
  {
    name: "conntrack",
    debianPackage: "conntrack",
    purpose: "end UDP flows to removed endpoints, in the kernel modes",
    kind: "system",
  },
  {
    name: "choom",
    debianPackage: "util-linux",
    purpose: "set how likely the kernel ends this process when memory runs out (--oom-score-adj)",
    kind: "system",
  },
  {
    name: "cat",
    debianPackage: "coreutils",
    purpose: "read files of /proc, which are closed to Deno",
    kind: "system",
  },
  ...IPTABLES_NAMES.map((name): Tool => ({
    name,
    debianPackage: "iptables",
    purpose: "read and write rules of iptables",
    kind: "system",
  })),
  {
    name: "nft",
    debianPackage: "nftables",
    purpose: "read and write rules of nftables",
    kind: "system",
  },
  {
    name: "nfacct",
    debianPackage: "nfacct",
    purpose: "count packets for two metrics of the iptables mode",
    kind: "system",
  },
  {
    name: "ipset",
    debianPackage: "ipset",
    purpose: "read and write the sets that rules of the ipvs mode refer to",
    kind: "system",
  },
  {
    name: "ipvsadm",
    debianPackage: "ipvsadm",
    purpose: "read and write virtual servers of IPVS",
    kind: "system",
  },
  {
    name: "dmesg",
    debianPackage: "util-linux",
    purpose: "watch one packet pass the rules of iptables-legacy (kube-relay trace)",
    kind: "system",
  },
  {
    name: "setpriv",
    debianPackage: "util-linux",
    purpose: "end a watching tool together with kube-relay, even if kube-relay is killed",
    kind: "system",
  },
  { name: "aws", debianPackage: "awscli", purpose: "sign in to Amazon EKS", kind: "credential" },
  { name: "aws-iam-authenticator", purpose: "sign in to Amazon EKS", kind: "credential" },
  { name: "gke-gcloud-auth-plugin", purpose: "sign in to Google GKE", kind: "credential" },
  { name: "kubelogin", purpose: "sign in to Azure AKS or by OpenID Connect", kind: "credential" },
  { name: "kubectl", purpose: "sign in by a kubectl plugin", kind: "credential" },
  { name: "doctl", purpose: "sign in to DigitalOcean", kind: "credential" },
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
