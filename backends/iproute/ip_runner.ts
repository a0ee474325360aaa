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

/** The failures, by item. All other items succeeded. */
export type Failures<T> = ReadonlyMap<T, IpFailure>;

const BATCH_TIMEOUT_MS = 120_000;

/** The program. Each call is one process. All methods throw a CommandError in its words. */
export class IpRunner {
  readonly #commands: CommandRunner;
  readonly #flags: readonly string[];
  readonly #timeoutMs: number | undefined;

  /**
   * `family`: both by default; `namespace`: by its name in `/run/netns`, the process's own by default;
   * `timeoutMs`: that of the command runner by default.
   */
  constructor(
    commands: CommandRunner,
    { family, namespace, timeoutMs }: {
      readonly family?: IpFamily;
      readonly namespace?: string;
      readonly timeoutMs?: number;
    } = {},
  ) {
    this.#commands = commands;
    this.#flags = [
      ...namespace === undefined ? [] : ["-n", namespace],
      ...family === undefined ? [] : [family === "IPv6" ? "-6" : "-4"],
    ];
    this.#timeoutMs = timeoutMs;
  }

  /** Returns the addresses of every device. */
  async allAddresses(): Promise<readonly DeviceAddress[]> {
    return (await this.#rows<PrintedLink>(["-j", "addr", "show"])).flatMap(addressesOf);
  }

  /** The addresses of a device; `undefined` = there is no such device. */
  async addresses(device: string): Promise<readonly DeviceAddress[] | undefined> {
    const args = [...this.#flags, "-j", "addr", "show", "dev", device];
    const result = await this.#run(args);
    if (result.code !== 0 && result.stderr.includes("does not exist")) return undefined;
    return rowsOf<PrintedLink>(args, result).flatMap(addressesOf);
  }

  /** Returns the link-layer addresses of every device, in small letters. */
  async linkAddresses(): Promise<ReadonlySet<string>> {
    const rows = await this.#rows<{ readonly address?: string }>(["-j", "link", "show"]);
    return new Set(rows.flatMap(({ address }) => address?.toLowerCase() ?? []));
  }

  /** Returns every device with its addresses. */
  async links(): Promise<readonly Link[]> {
    const rows = await this.#rows<PrintedLink>(["-j", "-d", "addr", "show"]);
    return rows.flatMap((row): Link[] => {
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

  /** The routes of a table. `protocol`: only those with this number. */
  async routes(table: string, protocol?: number): Promise<readonly Route[]> {
    const only = protocol === undefined ? [] : ["proto", `${protocol}`];
    const rows = await this.#rows<PrintedRoute>(["-j", "route", "show", "table", table, ...only]);
    return rows.flatMap((row) => routeOf(row) ?? []);
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
    const lines = addresses.map((address) => `route get fibmatch ${address}`);
    const { stdout, stderr } = await this.#run(args, inPieces(lines));
    const failures = parseBatchFailures(stderr);
    // A list of one route for each line that did not fail.
    const printed = stdout.split("\n").filter((line) => line.trim() !== "").map((line) => {
      const [row] = JSON.parse(line) as readonly PrintedRoute[];
      const route = row && routeOf(row);
      const { protocol, table } = row ?? {};
      return route && {
        ...route,
        ...(protocol !== undefined && { protocol }),
        ...(table !== undefined && { table }),
      };
    });
    if (printed.length + failures.size !== addresses.length) return new Map();
    const routes = printed.values();
    return new Map(addresses.flatMap((address, index) => {
      const found = failures.get(index + 1) ?? routes.next().value;
      return found ? [[address, found] as const] : [];
    }));
  }

  /** Returns the machines on the link of a device that the kernel knows: gateways, then the others. */
  async neighbours(device: string): Promise<readonly IpAddress[]> {
    const rows = await this.#rows<{ readonly dst?: string; readonly lladdr?: string }>(
      ["-j", "neigh", "show", "dev", device],
    );
    // Those of whom the node knows, or knew, a link-layer address.
    const known = rows.flatMap(({ dst = "", lladdr }) =>
      lladdr === undefined ? [] : tryParseIpAddress(dst) ?? []
    );
    const routes = (await this.routes("main")).filter((route) => route.device === device);
    return [...new Set([...routes.flatMap(({ gateways }) => gateways), ...known])];
  }

  /** Carries out lines up to the first that fails; throws as {@linkcode runBatch}. */
  async run(lines: readonly string[]): Promise<void> {
    const timeoutMs = this.#timeoutMs ?? BATCH_TIMEOUT_MS;
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
      // It did not even start, so that nothing can have changed.
      const wasNotRun = error instanceof CommandError &&
        (error.kind === "not-found" || error.kind === "not-permitted");
      if (!wasNotRun) throw error;
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

  async #rows<Row>(question: readonly string[]): Promise<readonly Row[]> {
    const args = [...this.#flags, ...question];
    return rowsOf(args, await this.#run(args));
  }

  async #run(args: readonly string[], stdin?: Iterable<string>): Promise<CommandResult> {
    const timeoutMs = this.#timeoutMs;
    return await this.#commands.run("ip", args, {
      ...(timeoutMs !== undefined && { timeoutMs }),
      ...(stdin && { stdin }),
    });
  }
}

/** Reads JSON; throws a SyntaxError for anything else. */
function rowsOf<Row>(args: readonly string[], result: CommandResult): readonly Row[] {
  if (result.code !== 0) throw failedError(args, result);
  // For an empty table of some kinds iproute2 prints nothing at all, not even an empty list.
  return result.stdout.trim() === "" ? [] : JSON.parse(result.stdout) as readonly Row[];
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

/** The line that creates a device that leads nowhere, to hold addresses. */
export function addDummyLine(device: string): string {
  return `link add ${device} type dummy`;
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
  readonly "addr_info"?: readonly {
    readonly local?: string;
    readonly prefixlen?: number;
    readonly deprecated?: boolean;
    readonly "valid_life_time"?: number;
  }[];
}

/** The value with which iproute2 prints an infinite lifetime. */
const FOREVER = 2 ** 32 - 1;

function addressesOf(
  { ifname: device = "", flags = ["UP", "LOWER_UP"], addr_info: rows = [] }: PrintedLink,
): readonly DeviceAddress[] {
  // A bond, a bridge and a VLAN have a carrier if a part of them, or the device below, has one. The kernel
  // calls the carrier LOWER_UP; NO-CARRIER also stands for a device that waits for 802.1X.
  const obstacle = !flags.includes("UP")
    ? "down"
    : flags.includes("LOWER_UP") && !flags.includes("NO-CARRIER")
    ? undefined
    : "no-carrier";
  return rows.flatMap((row) => {
    const { local = "", prefixlen: prefixLength, deprecated = false } = row;
    const address = tryParseIpAddress(local);
    if (address === undefined) return [];
    const { valid_life_time: lifetimeSeconds = FOREVER } = row;
    return [{
      ...{ address, device, ...(prefixLength !== undefined && { prefixLength }) },
      ...(deprecated && { neverSource: true }),
      ...(lifetimeSeconds !== FOREVER && { lifetimeSeconds }),
      ...(obstacle && { obstacle }),
      ...(flags.includes("NOARP") && { hasNoArp: true }),
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
      const message = reason.join("; ");
      // The errno text of older kernels, or the words that newer ones send along.
      const kind = /File exists|already assigned/i.test(message)
        ? "exists"
        : /Cannot assign requested address|No such process|address not found/i.test(message)
        ? "absent"
        : /Operation not permitted/i.test(message)
        ? "notPermitted"
        : "other";
      failures.set(Number(failed[1]), { kind, message: message || "ip gave no reason" });
      reason = [];
    } else if (line.trim() !== "") reason.push(line.trim());
  }
  return failures;
}
