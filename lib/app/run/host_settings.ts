/**
 * Sets kernel settings to the values that the configuration and the mode need, if permitted.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { Logger } from "../../log/logger.ts";
import { CommandError, type CommandRunner } from "../../os/command_runner.ts";
import { createSysctl, type Sysctl, type SysctlProblem } from "../../os/sysctl.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { HostSettingOutcome, HostSettingRequest } from "../../proxy/host_setting.ts";
import { configuredNodePorts } from "./plan_settings.ts";

/** The dependencies of {@linkcode HostSettings}. */
interface HostSettingsDependencies {
  readonly commands: CommandRunner;
  readonly logger: Logger;
}

/**
 * Requests and their outcomes. A refusal does not end the process, because a node without Services is
 * worse than a setting whose value may suffice.
 */
export class HostSettings {
  readonly #logger: Logger;
  readonly #sysctl: Sysctl;
  #requests: readonly HostSettingRequest[];
  /** The names of those that the mode has, which depend on the interfaces. */
  #namesOfMode: ReadonlySet<string>;
  readonly #outcomes = new Map<string, HostSettingOutcome>();
  readonly #firstSync = Promise.withResolvers<void>();
  /** Settings that the kernel did not know at first; they come with a module. */
  #unknown: readonly HostSettingRequest[] = [];

  constructor(
    { commands, logger }: HostSettingsDependencies,
    requests: readonly HostSettingRequest[],
    ofMode: readonly HostSettingRequest[] = [],
  ) {
    this.#namesOfMode = new Set(ofMode.map(({ name }) => name));
    this.#logger = logger;
    this.#sysctl = createSysctl(commands);
    // Backends of both families request the same; the first request counts.
    this.#requests = [
      ...new Map(requests.toReversed().map((request) => [request.name, request])).values(),
    ]
      .toReversed();
  }

  /** The outcome of each request, in their order. */
  get outcomes(): readonly HostSettingOutcome[] {
    return this.#requests.flatMap(({ name }) => this.#outcomes.get(name) ?? []);
  }

  /**
   * Reads all settings, writes those that differ and reads these again. Settings that the kernel does
   * not know yet are left to {@linkcode run}, unless this call is `final`.
   */
  async apply({ final = false }: { readonly final?: boolean } = {}): Promise<void> {
    const unknown = await this.#apply(this.#requests);
    this.#unknown = final ? [] : unknown;
    for (const request of this.#requests) if (!this.#unknown.includes(request)) this.#tell(request);
  }

  /** Retries unknown settings once: the first rules load `nf_conntrack`. */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#unknown.length === 0) return;
    await Promise.race([this.#firstSync.promise, whenAborted(signal)]);
    if (signal.aborted) return;
    const again = this.#unknown;
    this.#unknown = [];
    await this.#apply(again);
    for (const request of again) this.#tell(request);
  }

  /**
   * Takes all requests of the mode; known ones are skipped. A new interface has settings of its own,
   * also if there was one of this name before.
   */
  async add(requests: readonly HostSettingRequest[]): Promise<void> {
    const names = new Set(requests.map(({ name }) => name));
    const gone = this.#namesOfMode.difference(names);
    this.#namesOfMode = names;
    this.#requests = this.#requests.filter(({ name }) => !gone.has(name));
    for (const name of gone) this.#outcomes.delete(name);
    const known = new Set(this.#requests.map(({ name }) => name));
    const fresh = requests.filter(({ name }) => !known.has(name));
    if (fresh.length === 0) return;
    this.#requests = [...this.#requests, ...fresh];
    await this.#apply(fresh);
    for (const request of fresh) this.#tell(request);
  }

  synced(): void {
    this.#firstSync.resolve();
  }

  /** Returns the requests whose settings the kernel does not know. */
  async #apply(requests: readonly HostSettingRequest[]): Promise<readonly HostSettingRequest[]> {
    const { values, problems } = await this.#sysctl.read(requests.map(({ name }) => name));
    const written: HostSettingRequest[] = [];
    for (const request of requests) {
      const found = values.get(request.name);
      const problem = problems.get(request.name);
      if (problem !== undefined) this.#outcomes.set(request.name, unreadable(request, problem));
      else if (satisfies(request, found)) {
        this.#outcomes.set(request.name, outcome(request, "kept", found));
      } else written.push(request);
    }
    const reasons = await this.#sysctl.write(
      new Map(written.map(({ name, value }) => [name, value])),
    );
    await this.#check(written, { before: values, reasons });
    return requests.filter(({ name }) => problems.get(name)?.kind === "unknown");
  }

  /** Reads written settings again: not every refusal has an exit code, and kernels round values. */
  async #check(
    written: readonly HostSettingRequest[],
    { before, reasons }: {
      readonly before: ReadonlyMap<string, string>;
      readonly reasons: ReadonlyMap<string, string>;
    },
  ): Promise<void> {
    const { values } = await this.#sysctl.read(written.map(({ name }) => name));
    for (const request of written) {
      const { name } = request;
      const found = before.get(name);
      if (satisfies(request, values.get(name))) {
        this.#outcomes.set(name, outcome(request, "changed", found));
        continue;
      }
      this.#outcomes.set(name, {
        ...outcome(request, "refused", found),
        reason: reasons.get(name) ?? `it is still ${values.get(name) ?? "unreadable"}`,
        cure: cureOf(request),
      });
    }
  }

  #tell({ name }: HostSettingRequest): void {
    const outcome = this.#outcomes.get(name);
    if (outcome?.state === "refused") {
      this.#logger.warn("Cannot change kernel setting; continuing without it", { ...outcome });
    } else if (outcome?.state === "changed") {
      const { found, wanted, purpose } = outcome;
      this.#logger.info("Set kernel setting", { name, before: found, now: wanted, purpose });
    }
  }
}

/** Whether a value suffices. Numbers compare as numbers if a larger one is as good. */
function satisfies({ value, atLeast }: HostSettingRequest, found: string | undefined): boolean {
  if (found === undefined) return false;
  return atLeast ? Number(found) >= Number(value) : found === value;
}

function outcome(
  { name, value, purpose }: HostSettingRequest,
  state: HostSettingOutcome["state"],
  found: string | undefined,
): HostSettingOutcome {
  return { name, wanted: value, ...(found !== undefined && { found }), state, purpose };
}

function unreadable(
  request: HostSettingRequest,
  { kind, reason }: SysctlProblem,
): HostSettingOutcome {
  const module = kind === "unknown" ? moduleOf(request) : undefined;
  return {
    ...outcome(request, "refused", undefined),
    reason: module === undefined ? reason : `${reason}: module ${module} is not loaded`,
    cure: `${module === undefined ? "" : `modprobe ${module} && `}${cureOf(request)}`,
  };
}

/** Returns the module without which a setting does not exist. */
function moduleOf({ name }: HostSettingRequest): string | undefined {
  if (name.includes(".nf_conntrack_")) return "nf_conntrack";
  return name.startsWith("net.bridge.bridge-nf-") ? "br_netfilter" : undefined;
}

/** Returns the exact command for an administrator, for the host itself and not a container. */
function cureOf({ name, value }: HostSettingRequest): string {
  return `sysctl -w ${name}=${value}`;
}

const PURPOSE = "apply NetworkPolicies to traffic between pods on one bridge of this node";

/**
 * The kernel settings that NetworkPolicy needs if pods are ports of a bridge. Without them, traffic
 * between such pods bypasses all rules of iptables and nftables.
 *
 * The settings exist if the module br_netfilter is loaded. In spite of their names, they also apply
 * to nftables. Every run sets both, because a pod may have both families.
 */
export const BRIDGE_SETTINGS: readonly HostSettingRequest[] = [
  { name: "net.bridge.bridge-nf-call-iptables", value: "1", purpose: PURPOSE },
  { name: "net.bridge.bridge-nf-call-ip6tables", value: "1", purpose: PURPOSE },
];

/** The part of a backend that requests settings. */
export type RequestingBackend = Pick<Backend, "family" | "usesConntrack" | "hostSettings">;

interface RequestOptions {
  readonly proxy: Pick<
    KubeProxyConfiguration,
    "conntrack" | "nodePortAddresses" | "networkPolicy"
  >;
  readonly mode: BackendMode;
  readonly backends: readonly RequestingBackend[];
}

/** Returns the requests of the mode. */
export function modeSettingRequests(
  { proxy, mode, backends }: RequestOptions,
): readonly HostSettingRequest[] {
  return backends.flatMap((backend) =>
    backend.hostSettings(configuredNodePorts(proxy, { mode, family: backend.family }))
  );
}

/**
 * Returns the requests in kube-proxy's order. A mode without connection tracking requests nothing for
 * the kernel's table: an unprivileged process would only be refused.
 */
export async function hostSettingRequests(
  { commands }: { readonly commands: CommandRunner },
  options: RequestOptions,
): Promise<readonly HostSettingRequest[]> {
  const { proxy: { conntrack, networkPolicy }, backends } = options;
  const ofBackends = [
    ...modeSettingRequests(options),
    ...(networkPolicy.enabled ? BRIDGE_SETTINGS : []),
  ];
  if (!backends.some(({ usesConntrack }) => usesConntrack)) return ofBackends;
  // Counting processors starts a process; only the size of the table needs it.
  const cpus = conntrack.maxPerCore > 0 ? await cpuCount(commands) : 0;
  return [...conntrackSettings(conntrack, cpus), ...ofBackends];
}

/**
 * Returns the number of CPUs of the machine. `navigator.hardwareConcurrency` is only used if
 * `nproc` is missing: it depends on the affinity and CPU quota of this process, and kernel tables
 * must not shrink because a container has half a core.
 */
export async function cpuCount(commands: CommandRunner): Promise<number> {
  try {
    const { code, stdout } = await commands.run("nproc", ["--all"]);
    const count = Number(stdout.trim());
    if (code === 0 && Number.isInteger(count) && count > 0) return count;
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
  }
  return navigator.hardwareConcurrency;
}

/** The field, with upstream's names. Times are milliseconds; 0 leaves the kernel's value. */
export interface ConntrackLimits {
  readonly maxPerCore: number;
  readonly min: number;
  readonly tcpEstablishedTimeout: number;
  readonly tcpCloseWaitTimeout: number;
  readonly tcpBeLiberal: boolean;
  readonly udpTimeout: number;
  readonly udpStreamTimeout: number;
}

/**
 * More entries than this cost memory without benefit (upstream since 1.36,
 * kubernetes/kubernetes#137002).
 */
const MOST_ENTRIES = 1_048_576;
/** The kernel's own ratio of entries to hash buckets. */
const ENTRIES_PER_BUCKET = 4;

/**
 * Maximum size of the connection table for this many CPUs; `undefined` keeps the kernel's value.
 *
 * The cap also overrides `min`, as upstream. If `maxPerCore` is set, the result is never
 * `undefined`.
 */
export function conntrackMax(
  { maxPerCore, min }: Pick<ConntrackLimits, "maxPerCore" | "min">,
  cpus: number,
): number | undefined {
  if (maxPerCore <= 0) return undefined;
  const scaled = maxPerCore * cpus;
  return scaled > MOST_ENTRIES ? MOST_ENTRIES : Math.max(scaled, min);
}

/**
 * The requests, in upstream's order. The hash size is set by a sysctl: this process may not write
 * upstream's file, `/sys/module/nf_conntrack/parameters/hashsize`, which holds the same number.
 */
export function conntrackSettings(
  limits: ConntrackLimits,
  cpus: number,
): readonly HostSettingRequest[] {
  const max = conntrackMax(limits, cpus);
  return [
    ...(max === undefined ? [] : [
      request("nf_conntrack_max", max, "track the connections of every Service"),
      {
        ...request(
          "nf_conntrack_buckets",
          Math.floor(max / ENTRIES_PER_BUCKET),
          "find connections fast when the table is full",
        ),
        atLeast: true,
      },
    ]),
    ...seconds("tcp_timeout_established", limits.tcpEstablishedTimeout),
    ...seconds("tcp_timeout_close_wait", limits.tcpCloseWaitTimeout),
    ...(limits.tcpBeLiberal
      ? [request("nf_conntrack_tcp_be_liberal", 1, "let packets outside of the TCP window pass")]
      : []),
    ...seconds("udp_timeout", limits.udpTimeout),
    ...seconds("udp_timeout_stream", limits.udpStreamTimeout),
  ];
}

function request(key: string, value: number, purpose: string): HostSettingRequest {
  return { name: `net.netfilter.${key}`, value: String(value), purpose };
}

function seconds(key: string, milliseconds: number): readonly HostSettingRequest[] {
  if (milliseconds <= 0) return [];
  // Upstream rounds a fraction of a second to 0, with which the kernel drops connections at once.
  const value = Math.max(1, Math.floor(milliseconds / 1000));
  return [request(`nf_conntrack_${key}`, value, "keep idle connections as long as was asked for")];
}
