/**
 * The one table of programs that may be started. `compile.sh`, `deno.json`, the systemd unit and the
 * docs are made from it or checked against it.
 *
 * @module
 */

/** A program that kube-relay may start. */
export interface Tool {
  /** Its name on the PATH. Permissions are given by name: `--allow-run=ip`. */
  readonly name: string;
  /** The Debian package that has it; absent where Debian has none. */
  readonly debianPackage?: string;
  /** What it is started for, as the end of the sentence "is started to …". */
  readonly purpose: string;
  /**
   * `system`: a tool of the machine, used where it is there. `credential`: a client-go credential
   * plugin, started only when the kubeconfig names it.
   */
  readonly kind: "system" | "credential";
}

/** Every program that kube-relay may start. */
export const TOOLS: readonly Tool[] = [
  {
    name: "ip",
    debianPackage: "iproute2",
    purpose: "make Service addresses local and take them away again",
    kind: "system",
  },
  {
    name: "sysctl",
    debianPackage: "procps",
    purpose: "allow binds to IPv6 addresses of an AnyIP route (net.ipv6.ip_nonlocal_bind)",
    kind: "system",
  },
  { name: "aws", debianPackage: "awscli", purpose: "sign in to Amazon EKS", kind: "credential" },
  { name: "aws-iam-authenticator", purpose: "sign in to Amazon EKS", kind: "credential" },
  { name: "gke-gcloud-auth-plugin", purpose: "sign in to Google GKE", kind: "credential" },
  { name: "kubelogin", purpose: "sign in to Azure AKS or by OpenID Connect", kind: "credential" },
  { name: "kubectl", purpose: "sign in by a kubectl plugin", kind: "credential" },
  { name: "doctl", purpose: "sign in to DigitalOcean", kind: "credential" },
];

/** The row of a program, whether it is named or given by path; undefined for one that is not ours. */
export function toolOf(program: string): Tool | undefined {
  const name = program.slice(program.lastIndexOf("/") + 1);
  return TOOLS.find((tool) => tool.name === name);
}

/**
 * The value of Deno's `--allow-run` flag: every tool by name, then `extra` ones (the
 * `ALLOW_RUN_EXTRA` of `compile.sh`). Throws a RangeError for a name with a comma or white space,
 * since that would let in other programs than the one meant.
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
