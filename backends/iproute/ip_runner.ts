/**
 * Runs `ip`: reads addresses and routes of any device and table, and carries out batches of lines.
 * With the lines of its objects the toolkit of every controller that makes addresses
 * local or writes routes.
 *
 * @module
 */
import { runBatch } from "../netfilter/tool_batch.ts";
import { type Cidr, hostCidr, tryParseCidr } from "../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import { inPieces } from "../../lib/os/command_input.ts";
import {
  CommandError,
  type CommandResult,
  type CommandRunner,
} from "../../lib/os/command_runner.ts";
import type { PodTunnel } from "../../lib/routing/pod_network_plan.ts";

/** The failures, by item. All other items succeeded. */
export type Failures<T> = ReadonlyMap<T, IpFailure>;

/** The options of {@linkcode IpRunner}. */
interface IpRunnerOptions {
  /** @default {both} */
  readonly family?: IpFamily;
  /** @default {that of the command runner} */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

const BATCH_TIMEOUT_MS = 120_000;

/** The program. Each call is one process. All methods throw a CommandError in its words. */
export class IpRunner {
  readonly #commands: CommandRunner;
  readonly #flags: readonly string[];
  readonly #options: Omit<IpRunnerOptions, "family">;

  constructor(commands: CommandRunner, { family, ...options }: IpRunnerOptions = {}) {
    this.#commands = commands;
    this.#flags = family === undefined ? [] : [family === "IPv6" ? "-6" : "-4"];
    this.#options = options;
  }

  /** Returns the addresses of every device. */
  async allAddresses(): Promise<readonly DeviceAddress[]> {
    const args = [...this.#flags, "-j", "addr", "show"];
    return parseAddresses(stdoutOf(args, await this.#run(args)));
  }

  /** The addresses of a device; `undefined` = there is no such device. */
  async addresses(device: string): Promise<readonly DeviceAddress[] | undefined> {
    const args = [...this.#flags, "-j", "addr", "show", "dev", device];
    const result = await this.#run(args);
    if (result.code !== 0 && result.stderr.includes("does not exist")) return undefined;
    return parseAddresses(stdoutOf(args, result));
  }

  /** Returns the link-layer addresses of every device. */
  async linkAddresses(): Promise<ReadonlySet<string>> {
    const args = ["-j", "link", "show"];
    return parseLinkAddresses(stdoutOf(args, await this.#run(args)));
  }

  /** Returns every device with its addresses. */
  async links(): Promise<readonly Link[]> {
    const args = [...this.#flags, "-j", "-d", "addr", "show"];
    return parseLinks(stdoutOf(args, await this.#run(args)));
  }

  /** The routes of a table. `protocol`: only those with this number. */
  async routes(
    table: string,
    { protocol }: { readonly protocol?: number } = {},
  ): Promise<readonly Route[]> {
    const only = protocol === undefined ? [] : ["proto", `${protocol}`];
    const args = [...this.#flags, "-j", "route", "show", "table", table, ...only];
    return parseRoutes(stdoutOf(args, await this.#run(args)));
  }

  /**
   * Returns the routes by which the kernel would send packets to addresses, and the reasons where it
   * would send none. The runner has to have the family of the addresses.
   */
  async chosenRoutes(
    addresses: readonly IpAddress[],
  ): Promise<ReadonlyMap<IpAddress, ChosenRoute | IpFailure>> {
    if (addresses.length === 0) return new Map();
    const args = [...this.#flags, "-force", "-j", "-batch", "-"];
    const { stdout, stderr } = await this.#run(args, inPieces(addresses.map(chosenRouteLine)));
    const failures = parseBatchFailures(stderr);
    const printed = parseChosenRoutes(stdout);
    const routes = printed.values();
    const isComplete = printed.length + failures.size === addresses.length;
    return new Map(
      isComplete
        ? addresses.flatMap((address, index) => {
          const found = failures.get(index + 1) ?? routes.next().value;
          return found ? [[address, found] as const] : [];
        })
        : [],
    );
  }

  /** Returns the machines on the link of a device that the kernel knows: gateways, then the others. */
  async neighbours(device: string): Promise<readonly IpAddress[]> {
    const args = [...this.#flags, "-j", "neigh", "show", "dev", device];
    const known = parseNeighbours(stdoutOf(args, await this.#run(args)));
    const routes = (await this.routes("main")).filter((route) => route.device === device);
    return [...new Set([...routes.flatMap(({ gateways }) => gateways), ...known])];
  }

  /** Carries out lines up to the first that fails; throws as {@linkcode runBatch}. */
  async run(lines: readonly string[]): Promise<void> {
    const { timeoutMs = BATCH_TIMEOUT_MS } = this.#options;
    const command = ["ip", ...this.#flags, "-batch", "-"] as const;
    await runBatch(this.#commands, { command, lines, timeoutMs });
  }

  /** Carries out a line for each item, whichever of them fail. Throws only when it is not known how many were carried out. */
  async batch<T>(items: readonly T[], toLine: (item: T) => string): Promise<Failures<T>> {
    if (items.length === 0) return new Map();
    const args = [...this.#flags, "-force", "-batch", "-"];
    let result: CommandResult;
    try {
      result = await this.#run(args, inPieces(items.map(toLine)));
    } catch (error) {
      if (!wasNotRun(error)) throw error;
      const { message } = error;
      return new Map(items.map((item) => [item, { kind: "notPermitted", message }]));
    }
    if (result.code === 0) return new Map();
    const byLine = parseBatchFailures(result.stderr);
    // A batch that failed names its lines. One that does not was killed, or is no batch to this `ip`.
    if (byLine.size === 0 || result.code > 2) throw failedError(args, result);
    return new Map([...byLine].flatMap(([line, failure]) => {
      const item = items[line - 1];
      return item === undefined ? [] : [[item, failure] as const];
    }));
  }

  async #run(args: readonly string[], stdin?: Iterable<string>): Promise<CommandResult> {
    return await this.#commands.run("ip", args, { ...this.#options, ...(stdin && { stdin }) });
  }
}

/** Whether the program did not even start, so that nothing can have changed. */
function wasNotRun(error: unknown): error is CommandError {
  return error instanceof CommandError &&
    (error.kind === "not-found" || error.kind === "not-permitted");
}

function stdoutOf(args: readonly string[], result: CommandResult): string {
  if (result.code !== 0) throw failedError(args, result);
  return result.stdout;
}

function failedError(args: readonly string[], { code, stderr }: CommandResult): CommandError {
  const reason = stderr.trim().split("\n")[0] || `exit code ${code}`;
  return new CommandError("ip", args, "failed", `Cannot run 'ip ${args.join(" ")}': ${reason}`);
}

/** An address of a device. */
export interface DeviceAddress {
  readonly address: IpAddress;
  readonly device: string;
  /** @default {that of the whole address} */
  readonly prefixLength?: number;
  /** Whether the node never chooses it as the source of its own connections. @default {false} */
  readonly neverSource?: boolean;
  /** The kernel removes the address after this time. @default {never} */
  readonly lifetimeSeconds?: number;
  /** Why the device carries no packets. @default {it does} */
  readonly obstacle?: "down" | "no-carrier";
  /** Whether the device has neither ARP nor neighbour discovery, as a tunnel. @default {false} */
  readonly hasNoArp?: boolean;
}

/** A route. */
export interface Route {
  /** E.g. `local`; absent for a route to other machines. */
  readonly type?: string;
  /** Absent for the default route. */
  readonly destination?: Cidr;
  readonly device?: string;
  /** Next hops, of which a multipath route has several; none where the destination is on the link. */
  readonly gateways: readonly IpAddress[];
  readonly metric?: number;
  /** The address that the node itself uses as source. */
  readonly source?: IpAddress;
}

/** The route that the kernel chooses for a packet of this node. */
export interface ChosenRoute extends Route {
  /** A number, or a name such as `kernel`. */
  readonly protocol?: string;
  /** Absent for the table `main`. */
  readonly table?: string;
}

/** A device with its addresses. */
export interface Link {
  readonly device: string;
  readonly mtu: number;
  readonly isUp: boolean;
  /** E.g. `ipip`; absent for hardware. */
  readonly kind?: string;
  /** A text for people. */
  readonly alias?: string;
  readonly addresses: readonly IpAddress[];
}

/** A tunnel of IPv4 in IPv4, or of IPv6 in IPv6. */
type Tunnel = Pick<PodTunnel, "device" | "local" | "remote">;

/** The operation of a line. `replace` succeeds if the object exists. */
type Verb = "add" | "del" | "replace";

/** The line that adds or removes an address. */
export function addressLine(
  verb: Verb,
  { address, device, prefixLength, neverSource = false, lifetimeSeconds }: DeviceAddress,
): string {
  const block = prefixLength === undefined ? hostCidr(address) : `${address}/${prefixLength}`;
  const line = `addr ${verb} ${block} dev ${device}`;
  if (verb === "del") return line;
  if (lifetimeSeconds !== undefined) {
    // A lifetime cannot be preferred for longer than it is valid: the address is never a source.
    const tentative = address.includes(":") ? " nodad" : "";
    return `${line}${tentative} valid_lft ${lifetimeSeconds} preferred_lft 0`;
  }
  if (!neverSource) return line;
  // By its scope, or where the kernel derives the scope, by being deprecated from the start. Without
  // `nodad` an IPv6 address is tentative at first and cannot be bound.
  return address.includes(":") ? `${line} nodad preferred_lft 0` : `${line} scope host`;
}

/**
 * The line that adds or removes a route. `table`: a name or number. @default {that of its type}
 * `protocol`: the number of the program that wrote it.
 */
export function routeLine(
  verb: Verb,
  { type, destination, device, gateways = [], table, protocol, metric, source }:
    & Partial<Route>
    & { readonly table?: string; readonly protocol?: number },
): string {
  const words: string[] = [
    "route",
    verb,
    ...(type === undefined ? [] : [type]),
    destination ?? "default",
  ];
  for (const gateway of gateways) {
    words.push(...(gateways.length > 1 ? ["nexthop"] : []), "via", gateway);
  }
  if (device !== undefined) words.push("dev", device);
  if (table !== undefined) words.push("table", table);
  if (protocol !== undefined) words.push("proto", `${protocol}`);
  if (metric !== undefined) words.push("metric", `${metric}`);
  if (source !== undefined) words.push("src", source);
  return words.join(" ");
}

/** The line that asks for the route by which the kernel would send a packet to an address. */
function chosenRouteLine(address: IpAddress): string {
  return `route get fibmatch ${address}`;
}

/** The line that creates a device that leads nowhere, to hold addresses. */
export function addDummyLine(device: string): string {
  return `link add ${device} type dummy`;
}

/** The line that creates a tunnel, of the kind `ipip` or `ip6tnl`. */
export function addTunnelLine({ device, local, remote }: Tunnel): string {
  // The option that limits nesting takes 8 bytes of each packet, and some routers drop it.
  const [type, hops] = local.includes(":")
    ? ["ip6tnl mode ip6ip6 encaplimit none", "hoplimit"]
    : ["ipip", "ttl"];
  return `link add ${device} type ${type} local ${local} remote ${remote} ${hops} 64`;
}

/** The line that sets the properties of a device and brings it up. */
export function setLinkLine(
  { device, mtu, alias }: { readonly device: string; readonly mtu: number; readonly alias: string },
): string {
  return `link set ${device} mtu ${mtu} alias ${alias} up`;
}

/** The line that deletes a device with its addresses. */
export function deleteLinkLine(device: string): string {
  return `link del ${device}`;
}

interface PrintedLink {
  readonly ifname?: string;
  readonly mtu?: number;
  readonly flags?: readonly string[];
  readonly ifalias?: string;
  readonly linkinfo?: { readonly "info_kind"?: string };
  readonly "addr_info"?: readonly PrintedAddress[];
}

interface PrintedAddress {
  readonly local?: string;
  readonly prefixlen?: number;
  readonly deprecated?: boolean;
  readonly "valid_life_time"?: number;
}

/** The value with which iproute2 prints an infinite lifetime. */
const FOREVER = 2 ** 32 - 1;

/** Reads `ip -j addr show`. Throws a SyntaxError when it is not JSON. */
export function parseAddresses(json: string): readonly DeviceAddress[] {
  return parseRows<PrintedLink>(json).flatMap(({ ifname: device = "", flags, addr_info = [] }) => {
    const obstacle = obstacleOf(flags);
    return addr_info.flatMap((row) => {
      const { local = "", prefixlen: prefixLength, deprecated = false, ...printed } = row;
      const address = tryParseIpAddress(local);
      if (address === undefined) return [];
      const { valid_life_time: lifetimeSeconds = FOREVER } = printed;
      return [{
        ...{ address, device, ...(prefixLength !== undefined && { prefixLength }) },
        ...(deprecated && { neverSource: true }),
        ...(lifetimeSeconds !== FOREVER && { lifetimeSeconds }),
        ...(obstacle && { obstacle }),
        ...(flags?.includes("NOARP") && { hasNoArp: true }),
      }];
    });
  });
}

/**
 * A bond, a bridge and a VLAN have a carrier if a part of them, or the device below, has one. The kernel
 * calls the carrier LOWER_UP; NO-CARRIER also stands for a device that waits for 802.1X.
 */
function obstacleOf(flags: readonly string[] | undefined): DeviceAddress["obstacle"] {
  if (!flags) return undefined;
  if (!flags.includes("UP")) return "down";
  return flags.includes("LOWER_UP") && !flags.includes("NO-CARRIER") ? undefined : "no-carrier";
}

/** Reads `ip -j link show`: the link-layer addresses, in small letters. */
function parseLinkAddresses(json: string): ReadonlySet<string> {
  const rows = parseRows<{ readonly address?: string }>(json);
  return new Set(rows.flatMap(({ address }) => address?.toLowerCase() ?? []));
}

/** Reads `ip -j -d addr show`. Throws a SyntaxError when it is not JSON. */
function parseLinks(json: string): readonly Link[] {
  return parseRows<PrintedLink>(json).flatMap((row): Link[] => {
    const { ifname: device, mtu = 0, flags = [], ifalias: alias, linkinfo, addr_info = [] } = row;
    const kind = linkinfo?.info_kind;
    return device === undefined ? [] : [{
      ...{ device, mtu, isUp: flags.includes("UP") },
      ...(kind !== undefined && { kind }),
      ...(alias !== undefined && { alias }),
      addresses: addr_info.flatMap(({ local = "" }) => tryParseIpAddress(local) ?? []),
    }];
  });
}

interface PrintedHop {
  readonly gateway?: string;
  readonly via?: { readonly host?: string };
}

interface PrintedRoute extends PrintedHop {
  readonly type?: string;
  readonly dst: string;
  readonly dev?: string;
  readonly metric?: number;
  readonly prefsrc?: string;
  readonly nexthops?: readonly PrintedHop[];
  readonly protocol?: string;
  readonly table?: string;
}

/** Reads `ip -j route show`. Throws a SyntaxError when it is not JSON. */
export function parseRoutes(json: string): readonly Route[] {
  return parseRows<PrintedRoute>(json).flatMap((row) => routeOf(row) ?? []);
}

/** Reads a batch of {@linkcode chosenRouteLine}: a list of one route for each line that did not fail. */
function parseChosenRoutes(text: string): readonly (ChosenRoute | undefined)[] {
  return text.split("\n").filter((line) => line.trim() !== "").map((line) => {
    const [row] = parseRows<PrintedRoute>(line);
    const route = row && routeOf(row);
    if (!route) return undefined;
    const { protocol, table } = row;
    return {
      ...route,
      ...(protocol !== undefined && { protocol }),
      ...(table !== undefined && { table }),
    };
  });
}

function routeOf({ type, dst, dev, nexthops = [], ...hop }: PrintedRoute): Route | undefined {
  const { metric, prefsrc } = hop;
  const source = tryParseIpAddress(prefsrc ?? "");
  const single = tryParseIpAddress(dst);
  const destination = single === undefined ? tryParseCidr(dst) : hostCidr(single);
  if (destination === undefined && dst !== "default") return undefined;
  return {
    ...(type !== undefined && { type }),
    ...(destination !== undefined && { destination }),
    ...(dev ? { device: dev } : {}),
    gateways: [hop, ...nexthops].flatMap(({ gateway, via }) =>
      tryParseIpAddress(gateway ?? via?.host ?? "") ?? []
    ),
    ...(metric !== undefined && { metric }),
    ...(source !== undefined && { source }),
  };
}

/** Reads `ip -j neigh show`: the neighbours of whom the node knows, or knew, a link-layer address. */
export function parseNeighbours(json: string): readonly IpAddress[] {
  return parseRows<{ readonly dst?: string; readonly lladdr?: string }>(json)
    .flatMap(({ dst = "", lladdr }) => lladdr === undefined ? [] : tryParseIpAddress(dst) ?? []);
}

/** iproute2 prints nothing at all, not even an empty list, for an empty table of some kinds. */
function parseRows<T>(json: string): readonly T[] {
  return json.trim() === "" ? [] : JSON.parse(json) as readonly T[];
}

/** The failure of one line of a batch. */
export interface IpFailure {
  /** `exists`: the object existed already; `absent`: the object to remove does not exist. */
  readonly kind: "exists" | "absent" | "notPermitted" | "other";
  /** The message of `ip`. */
  readonly message: string;
}

/**
 * Reads which lines (counted from 1) failed from the errors of a batch. `ip` writes the reason first,
 * then `Command failed -:LINE`.
 */
export function parseBatchFailures(stderr: string): Map<number, IpFailure> {
  const failures = new Map<number, IpFailure>();
  let reason: string[] = [];
  for (const line of stderr.split("\n")) {
    const failed = /^Command failed -:(\d+)$/.exec(line.trim());
    if (failed) {
      failures.set(Number(failed[1]), ipFailure(reason.join("; ")));
      reason = [];
    } else if (line.trim() !== "") reason.push(line.trim());
  }
  return failures;
}

/** Classes what `ip` said: the errno text of older kernels, or the words that newer ones send along. */
export function ipFailure(message: string): IpFailure {
  const kind = /File exists|already assigned/i.test(message)
    ? "exists"
    : /Cannot assign requested address|No such process|address not found/i.test(message)
    ? "absent"
    : /Operation not permitted/i.test(message)
    ? "notPermitted"
    : "other";
  return { kind, message: message === "" ? "ip gave no reason" : message };
}
