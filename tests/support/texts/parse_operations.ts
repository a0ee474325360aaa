/**
 * Reads what `ipvsadm -S -n` prints, which is also what `ipvsadm -R` takes. Pure.
 *
 * @module
 */
import type { IpvsOperation } from "./ipvs_operation.ts";
import {
  type Forwarding,
  type RealServerKey,
  type ServerKey,
  tryParseServer,
  type VirtualServer,
} from "../../../backends/ipvs/virtual_server.ts";

/** The operations in a text. */
interface ParsedOperations {
  readonly operations: readonly IpvsOperation[];
  /** Lines that are none of the program's. */
  readonly rejected: readonly string[];
}

/** The options of a line, by their short names. A flag without a value has the value "". */
type Options = ReadonlyMap<string, string>;

const COMMANDS: ReadonlyMap<string, IpvsOperation["kind"]> = new Map([
  ["-C", "flush"],
  ["-A", "addServer"],
  ["-E", "editServer"],
  ["-D", "deleteServer"],
  ["-a", "addReal"],
  ["-e", "editReal"],
  ["-d", "deleteReal"],
]);

/** Long names, as some scripts have them. */
const SHORT: ReadonlyMap<string, string> = new Map([
  ["--clear", "-C"],
  ["--add-service", "-A"],
  ["--edit-service", "-E"],
  ["--delete-service", "-D"],
  ["--add-server", "-a"],
  ["--edit-server", "-e"],
  ["--delete-server", "-d"],
  ["--tcp-service", "-t"],
  ["--udp-service", "-u"],
  ["--fwmark-service", "-f"],
  ["--ipv6", "-6"],
  ["--scheduler", "-s"],
  ["--persistent", "-p"],
  ["--netmask", "-M"],
  ["--sched-flags", "-b"],
  ["--ops", "-o"],
  ["--real-server", "-r"],
  ["--gatewaying", "-g"],
  ["--ipip", "-i"],
  ["--masquerading", "-m"],
  ["--weight", "-w"],
]);

/** Flags that have no value. `-p` may have one. */
const BARE = new Set(["-6", "-o", "-g", "-i", "-m"]);
const SERVICE_FLAGS = ["-t", "-u", "--sctp-service", "-f"];
const FORWARDING: readonly (readonly [string, Forwarding])[] = [
  ["-g", "route"],
  ["-i", "tunnel"],
  ["-m", "masquerade"],
];
/** The time of a persistent server that names none. */
const DEFAULT_PERSISTENCE = "300";
const MAX_WEIGHT = 65_535;

/** Parses a text. Never throws: invalid lines are in `rejected`. Options of later versions are skipped. */
export function parseOperations(text: string): ParsedOperations {
  const operations: IpvsOperation[] = [];
  const rejected: string[] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const operation = tryParseOperation(line);
    if (operation === undefined) rejected.push(line);
    else operations.push(operation);
  }
  return { operations, rejected };
}

/** Reads one line; `undefined` = it makes no sense. */
export function tryParseOperation(line: string): IpvsOperation | undefined {
  const [command = "", ...words] = line.trim().split(/\s+/);
  const kind = COMMANDS.get(SHORT.get(command) ?? command);
  if (kind === undefined) return undefined;
  if (kind === "flush") return words.length === 0 ? { kind } : undefined;
  const options = optionsOf(words);
  const key = serverOf(options);
  if (key === undefined) return undefined;
  switch (kind) {
    case "addServer":
    case "editServer": {
      const server = setupOf(key, options);
      return server && { kind, server };
    }
    case "deleteServer":
      return { kind, key };
    default:
      return realOperation(kind, key, options);
  }
}

function realOperation(
  kind: "addReal" | "deleteReal" | "editReal",
  server: ServerKey,
  options: Options,
): IpvsOperation | undefined {
  const key = tryParseServer("-t", options.get("-r") ?? "")?.slice(3) as RealServerKey | undefined;
  if (key === undefined) return undefined;
  if (kind === "deleteReal") return { kind, server, key };
  const weight = tryParseNumber(options.get("-w") ?? "1");
  if (weight === undefined || weight > MAX_WEIGHT) return undefined;
  const forwarding = FORWARDING.find(([flag]) => options.has(flag))?.[1] ?? "route";
  return { kind, server, real: { key, forwarding, weight } };
}

function setupOf(key: ServerKey, options: Options): VirtualServer | undefined {
  // The program's default.
  const scheduler = options.get("-s") ?? "wlc";
  const flags = [...new Set((options.get("-b") ?? "").split(",").filter((flag) => flag !== ""))];
  const persistence = options.get("-p");
  const persistenceSeconds = tryParseNumber(persistence || DEFAULT_PERSISTENCE);
  const persistenceMask = options.get("-M");
  if (!/^[\w-]+$/.test(scheduler) || persistenceSeconds === undefined) return undefined;
  return {
    key,
    scheduler,
    flags: flags.sort(),
    ...(persistence !== undefined && { persistenceSeconds }),
    ...(persistence !== undefined && persistenceMask && { persistenceMask }),
    ...(options.has("-o") && { isOnePacket: true }),
  };
}

function serverOf(options: Options): ServerKey | undefined {
  const flag = SERVICE_FLAGS.find((each) => options.has(each));
  if (flag === undefined) return undefined;
  return tryParseServer(flag, options.get(flag) ?? "", { isIpv6: options.has("-6") });
}

function optionsOf(words: readonly string[]): Options {
  const options = new Map<string, string>();
  for (let at = 0; at < words.length; at++) {
    const word = words[at]!;
    const name = SHORT.get(word) ?? word;
    const next = words[at + 1];
    if (BARE.has(name) || next === undefined || next.startsWith("-")) options.set(name, "");
    else {
      options.set(name, next);
      at++;
    }
  }
  return options;
}

function tryParseNumber(text: string): number | undefined {
  return /^\d{1,10}$/.test(text) ? Number(text) : undefined;
}
