/**
 * Commands that set up the network of test namespaces, run by one shell: a hundred processes that a
 * test starts one by one take ten seconds in user-mode Linux.
 */
import type { Namespace } from "./netns.ts";
import { runTool } from "../drivers/run_tool.ts";

/** One end of a link. */
export interface LinkEnd {
  readonly namespace: Namespace;
  /** Name of the interface. */
  readonly device: string;
  /** Addresses with prefix lengths, e.g. `192.168.0.2/24`. */
  readonly addresses?: readonly string[];
  /** A bridge of the namespace that the interface is a port of. */
  readonly bridge?: string;
}

/** Collects commands. Nothing is changed before {@linkcode run}. */
export class NetworkScript {
  readonly #lines: string[] = [];

  /** Adds `ip` commands for a namespace, run by one process. */
  ip(namespace: Namespace, ...commands: readonly string[]): void {
    this.#lines.push(`ip -n ${namespace.name} -batch - <<END`, ...commands, "END");
  }

  /** Adds one `ip` command with options of its own, such as `-6 rule add …`. */
  ipWithOptions(namespace: Namespace, command: string): void {
    this.#lines.push(`ip -n ${namespace.name} ${command}`);
  }

  /** Adds settings of a namespace, each as `name=value`. */
  sysctl(namespace: Namespace, ...settings: readonly string[]): void {
    this.#lines.push(`ip netns exec ${namespace.name} sysctl -qw ${settings.join(" ")}`);
  }

  /** As {@linkcode sysctl}, without those that the kernel lacks. */
  sysctlIfKnown(namespace: Namespace, ...settings: readonly string[]): void {
    this.#lines.push(`ip netns exec ${namespace.name} sysctl -qew ${settings.join(" ")}`);
  }

  /** Joins two namespaces by a pair of veth devices, both up. */
  link(a: LinkEnd, b: LinkEnd): void {
    const peer = `peer name ${b.device} netns ${b.namespace.name}`;
    this.ip(a.namespace, `link add ${a.device} type veth ${peer}`, ...setUp(a));
    this.ip(b.namespace, ...setUp(b));
  }

  /** Makes a bridge that is up. */
  bridge(end: LinkEnd): void {
    // Without a querier, snooping may drop the multicasts that IPv6 finds its neighbours by.
    this.ip(end.namespace, `link add ${end.device} type bridge mcast_snooping 0`, ...setUp(end));
  }

  /** Runs the commands in order, up to the first that fails. Throws an Error with its output. */
  async run(): Promise<void> {
    await runTool("sh", ["-ec", this.#lines.join("\n")]);
  }
}

function setUp({ device, addresses = [], bridge }: LinkEnd): string[] {
  return [
    ...addresses.map((address) => `addr add ${address} dev ${device}`),
    ...(bridge === undefined ? [] : [`link set ${device} master ${bridge}`]),
    `link set ${device} up`,
  ];
}
