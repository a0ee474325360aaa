/** The annotation's name. */
export const K3S_NODE_ARGS = "k3s.io/node-args";

/** The relevant arguments. */
export interface K3sNodeArgs {
  readonly role: "server" | "agent";
  readonly disableKubeProxy: boolean;
  readonly disableNetworkPolicy: boolean;
  readonly disableServiceLb: boolean;
}

/**
 * Reads the annotation's value: a JSON list of arguments, in which `--flag=value` has become two
 * (k3s pkg/nodeconfig). `undefined` for anything else.
 */
export function parseK3sNodeArgs(value: string): K3sNodeArgs | undefined {
  let words: unknown;
  try {
    words = JSON.parse(value);
  } catch {
    return undefined;
  }
  if (!Array.isArray(words) || !words.every((word) => typeof word === "string")) return undefined;
  const args = words.flatMap((word) => splitAssignment(word));
  const [role] = args;
  if (role !== "server" && role !== "agent") return undefined;
  return {
    role,
    disableKubeProxy: isOn(args, "--disable-kube-proxy"),
    disableNetworkPolicy: isOn(args, "--disable-network-policy"),
    disableServiceLb: valuesOf(args, "--disable").includes("servicelb"),
  };
}

function splitAssignment(word: string): string[] {
  const at = word.startsWith("--") ? word.indexOf("=") : -1;
  return at < 0 ? [word] : [word.slice(0, at), word.slice(at + 1)];
}

/** A switch is on if it stands alone or before `true`; the last occurrence counts. */
function isOn(args: readonly string[], flag: string): boolean {
  const at = args.lastIndexOf(flag);
  return at >= 0 && args[at + 1] !== "false";
}

function valuesOf(args: readonly string[], flag: string): string[] {
  return args.flatMap((word, index) => word === flag ? (args[index + 1] ?? "").split(",") : []);
}
