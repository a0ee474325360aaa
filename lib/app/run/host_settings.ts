/**
 * Sets kernel settings to the values that the configuration and the mode need, if permitted.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { Logger } from "../../log/logger.ts";
import { CommandError, type CommandRunner } from "../../os/command_runner.ts";
import { Sysctl, type SysctlProblem } from "../../os/sysctl.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { HostSettingOutcome, HostSettingRequest } from "../../proxy/data_plane.ts";
import { configuredNodePorts } from "./plan_settings.ts";

const BRIDGE_PURPOSE = "apply NetworkPolicies to traffic between pods on one bridge of this node";

/**
 * The kernel settings that NetworkPolicy needs if pods are ports of a bridge. Without them, traffic
 * between such pods bypasses all rules of iptables and nftables.
 *
 * The settings exist if the module br_netfilter is loaded. In spite of their names, they also apply
 * to nftables. Every run sets both, because a pod may have both families.
 */
export const BRIDGE_SETTINGS: readonly HostSettingRequest[] = [
  { name: "net.bridge.bridge-nf-call-iptables", value: "1", purpose: BRIDGE_PURPOSE },
  { name: "net.bridge.bridge-nf-call-ip6tables", value: "1", purpose: BRIDGE_PURPOSE },
];

type Edges = ConstructorParameters<typeof HostSettings>;

/**
 * The wanted settings and their outcomes. A refusal does not end the process, because a node without
 * Services is worse than a setting whose value may suffice.
 */
export class HostSettings {
  readonly #edges: Edges[0];
  readonly #mode: BackendMode;
  readonly #backends: Edges[2];
  readonly #proxy: Edges[3];
  #ofConntrack: readonly HostSettingRequest[] = [];
  #requests: ReadonlyMap<string, HostSettingRequest> = new Map();
  readonly #outcomes = new Map<string, HostSettingOutcome>();
  readonly #firstSync = Promise.withResolvers<void>();
  /** Settings that the kernel did not know at first; they come with a module. */
  #unknown: readonly HostSettingRequest[] = [];

  constructor(
    edges: { readonly commands: CommandRunner; readonly logger: Logger },
    mode: BackendMode,
    backends: readonly Pick<Backend, "family" | "usesConntrack" | "hostSettings">[],
    /** The effective configuration. */
    proxy: () => Pick<KubeProxyConfiguration, "conntrack" | "networkPolicy" | "nodePortAddresses">,
  ) {
    this.#edges = edges;
    this.#mode = mode;
    this.#backends = backends;
    this.#proxy = proxy;
  }

  /** The outcome of each request, in their order. */
  get outcomes(): readonly HostSettingOutcome[] {
    return [...this.#requests.keys()].flatMap((name) => this.#outcomes.get(name) ?? []);
  }

  /**
   * Applies all settings, before a backend starts. Those that the kernel does not know yet are left to
   * {@linkcode run}, unless no later step loads a module. Never rejects.
   */
  async apply({ isFinal = false } = {}): Promise<void> {
    const { conntrack } = this.#proxy();
    // An unprivileged process of a mode without connection tracking would only be refused.
    if (this.#backends.some(({ usesConntrack }) => usesConntrack)) {
      // Counting processors starts a process; only the size of the table needs it.
      const cpus = conntrack.maxPerCore > 0 ? await cpuCount(this.#edges.commands) : 0;
      this.#ofConntrack = conntrackSettings(conntrack, cpus);
    }
    this.#unknown = await this.#update(isFinal);
  }

  /** Retries unknown settings once: the first rules load `nf_conntrack`. */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#unknown.length === 0) return;
    await Promise.race([this.#firstSync.promise, whenAborted(signal)]);
    if (!signal.aborted) await this.#apply(this.#unknown, true);
  }

  /** The data plane was synced. */
  synced(): void {
    this.#firstSync.resolve();
  }

  /**
   * Called after the interfaces were read: a new one has settings of its own, also if there was one of
   * this name before.
   */
  onInterfaceAddresses(): void {
    this.#update(true).catch((error) =>
      this.#edges.logger.warn("Cannot check kernel settings of new interfaces", { error })
    );
  }

  /** Applies what is wanted and was not, and forgets what no longer is. Returns as `#apply()`. */
  async #update(isFinal: boolean): Promise<readonly HostSettingRequest[]> {
    const proxy = this.#proxy();
    const wanted = [
      ...this.#ofConntrack,
      ...this.#backends.flatMap((backend) =>
        backend.hostSettings(configuredNodePorts(proxy, this.#mode, backend.family))
      ),
      ...(proxy.networkPolicy.enabled ? BRIDGE_SETTINGS : []),
    ];
    const before = this.#requests;
    const requests = new Map<string, HostSettingRequest>();
    // Backends of both families request the same; the first request counts.
    for (const each of wanted) if (!requests.has(each.name)) requests.set(each.name, each);
    this.#requests = requests;
    for (const name of before.keys()) if (!requests.has(name)) this.#outcomes.delete(name);
    const fresh = [...requests.values()].filter(({ name }) => !before.has(name));
    return fresh.length === 0 ? [] : await this.#apply(fresh, isFinal);
  }

  /**
   * Reads settings, writes those that differ and reads these again: not every refusal has an exit code,
   * and kernels round values. Returns those that the kernel does not know, unless it `isFinal`.
   */
  async #apply(
    requests: readonly HostSettingRequest[],
    isFinal: boolean,
  ): Promise<readonly HostSettingRequest[]> {
    const sysctl = new Sysctl(this.#edges.commands);
    const { values, problems } = await sysctl.read(requests.map(({ name }) => name));
    const isWritten = (request: HostSettingRequest) =>
      !problems.has(request.name) && !satisfies(request, values.get(request.name));
    const written = requests.filter(isWritten);
    const reasons = await sysctl.write(new Map(written.map(({ name, value }) => [name, value])));
    const { values: after } = await sysctl.read(written.map(({ name }) => name));
    const unknown: HostSettingRequest[] = [];
    for (const request of requests) {
      const { name, value: wanted, purpose } = request;
      const [found, problem] = [values.get(name), problems.get(name)];
      const set = (state: HostSettingOutcome["state"], why = {}) => {
        const known = { ...(found !== undefined && { found }) };
        this.#outcomes.set(name, { name, wanted, ...known, state, purpose, ...why });
      };
      if (problem === undefined && !isWritten(request)) set("kept");
      else if (problem === undefined && satisfies(request, after.get(name))) {
        set("changed");
        this.#edges.logger.info("Set kernel setting", {
          name,
          before: found,
          now: wanted,
          purpose,
        });
      } else {
        const reason = reasons.get(name) ?? `it is still ${after.get(name) ?? "unreadable"}`;
        set(
          "refused",
          problem ? whyUnreadable(request, problem) : { reason, cure: cureOf(request) },
        );
        if (problem?.kind === "unknown" && !isFinal) unknown.push(request);
        else {
          const message = "Cannot change kernel setting; continuing without it";
          this.#edges.logger.warn(message, { ...this.#outcomes.get(name) });
        }
      }
    }
    return unknown;
  }
}

/** Whether a value suffices. Numbers compare as numbers if a larger one is as good. */
function satisfies({ value, atLeast }: HostSettingRequest, found: string | undefined): boolean {
  if (found === undefined) return false;
  return atLeast ? Number(found) >= Number(value) : found === value;
}

function whyUnreadable(request: HostSettingRequest, { kind, reason }: SysctlProblem) {
  const { name } = request;
  const module = name.includes(".nf_conntrack_")
    ? "nf_conntrack"
    : name.startsWith("net.bridge.bridge-nf-")
    ? "br_netfilter"
    : undefined;
  if (kind !== "unknown" || module === undefined) return { reason, cure: cureOf(request) };
  return {
    reason: `${reason}: module ${module} is not loaded`,
    cure: `modprobe ${module} && ${cureOf(request)}`,
  };
}

/** Returns the exact command for an administrator, for the host itself and not a container. */
function cureOf({ name, value }: HostSettingRequest): string {
  return `sysctl -w ${name}=${value}`;
}

/**
 * Returns the number of CPUs of the machine. `navigator.hardwareConcurrency` is only used if
 * `nproc` is missing: it depends on the affinity and CPU quota of this process, and kernel tables
 * must not shrink because a container has half a core.
 */
async function cpuCount(commands: CommandRunner): Promise<number> {
  try {
    const { code, stdout } = await commands.run("nproc", ["--all"]);
    const count = Number(stdout.trim());
    if (code === 0 && Number.isInteger(count) && count > 0) return count;
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
  }
  return navigator.hardwareConcurrency;
}

/**
 * More entries than this cost memory without benefit (upstream since 1.36,
 * kubernetes/kubernetes#137002).
 */
const MAX_ENTRIES = 1_048_576;
/** The kernel's own ratio of entries to hash buckets. */
const ENTRIES_PER_BUCKET = 4;

/**
 * The requests for connection tracking, in upstream's order; 0 leaves the kernel's value. The cap of
 * entries also overrides `min`, as upstream. The hash size is set by a sysctl: this process may not
 * write upstream's file, `/sys/module/nf_conntrack/parameters/hashsize`, which holds the same number.
 */
function conntrackSettings(
  limits: KubeProxyConfiguration["conntrack"],
  cpus: number,
): readonly HostSettingRequest[] {
  const requests: HostSettingRequest[] = [];
  const add = (key: string, value: number, purpose: string, atLeast?: true) =>
    requests.push({
      ...{ name: `net.netfilter.nf_conntrack_${key}`, value: String(value), purpose },
      ...(atLeast && { atLeast }),
    });
  const addTimeout = (key: string, milliseconds: number) => {
    if (milliseconds <= 0) return;
    // Upstream rounds a fraction of a second to 0, with which the kernel drops connections at once.
    const value = Math.max(1, Math.floor(milliseconds / 1000));
    add(key, value, "keep idle connections as long as was asked for");
  };
  if (limits.maxPerCore > 0) {
    const scaled = limits.maxPerCore * cpus;
    const max = scaled > MAX_ENTRIES ? MAX_ENTRIES : Math.max(scaled, limits.min);
    add("max", max, "track the connections of every Service");
    const buckets = Math.floor(max / ENTRIES_PER_BUCKET);
    add("buckets", buckets, "find connections fast when the table is full", true);
  }
  addTimeout("tcp_timeout_established", limits.tcpEstablishedTimeout);
  addTimeout("tcp_timeout_close_wait", limits.tcpCloseWaitTimeout);
  if (limits.tcpBeLiberal) add("tcp_be_liberal", 1, "let packets outside of the TCP window pass");
  addTimeout("udp_timeout", limits.udpTimeout);
  addTimeout("udp_timeout_stream", limits.udpStreamTimeout);
  return requests;
}
