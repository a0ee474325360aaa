/**
 * The record of additions to the machine. It is written before anything is added, so that after a
 * `kill -9` the next run can distinguish them from foreign objects.
 *
 * @module
 */
import { type Cidr, tryParseCidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import { removeFile, writeFile } from "../../../lib/os/write_file.ts";
import type { ServiceKey } from "../../../lib/proxy/service_port_name.ts";

/** The additions, and the choices that the next run must repeat. */
export interface AddressRecord {
  /** Addresses that we put on `lo`. */
  readonly addresses: ReadonlySet<IpAddress>;
  /** Ranges that we have a local route for. */
  readonly routes: ReadonlySet<Cidr>;
  /** The value of `net.ipv6.ip_nonlocal_bind` before we set it to 1; undefined when we did not. */
  readonly previousNonlocalBind?: string;
  /** The stand-ins of Services that do not have the one that their key hashes to. */
  readonly standIns: ReadonlyMap<ServiceKey, IpAddress>;
}

/** A record of nothing. */
export const EMPTY_RECORD: AddressRecord = {
  addresses: new Set(),
  routes: new Set(),
  standIns: new Map(),
};

/** The storage of one IP family's record. */
export interface AddressStore {
  /** The file, or `undefined` where it is kept in memory only and a `kill -9` leaves addresses behind. */
  readonly path: string | undefined;
  /**
   * Returns the record, or {@linkcode EMPTY_RECORD} if there is none. Throws a SyntaxError if it is
   * invalid.
   */
  load(): Promise<AddressRecord>;
  /** Replaces the record whole: a reader, or a crash, sees the old one or the new one. */
  save(record: AddressRecord): Promise<void>;
  /** Forgets the record; there need not be one. */
  remove(): Promise<void>;
  /** Puts a record that cannot be understood aside, and returns where it is now. */
  setAside(): Promise<string | undefined>;
}

/**
 * A record in a file of `directory`, one for each family. The directory is made when needed, for its
 * owner only; it should not outlive a boot, as `/run` does not: the addresses do not either.
 */
export function createFileStore(
  { directory, family }: { readonly directory: string; readonly family: IpFamily },
): AddressStore {
  const path = `${directory}/addresses.${family.toLowerCase()}.json`;
  return {
    path,
    async load() {
      try {
        return parseAddressRecord(await Deno.readTextFile(path));
      } catch (error) {
        if (error instanceof Deno.errors.NotFound) return EMPTY_RECORD;
        throw error;
      }
    },
    async save(record) {
      await Deno.mkdir(directory, { recursive: true, mode: 0o700 });
      await writeFile(path, "private", formatAddressRecord(record));
    },
    remove: () => removeFile(path),
    async setAside() {
      await Deno.rename(path, `${path}.broken`);
      return `${path}.broken`;
    },
  };
}

const VERSION = 1;

function formatAddressRecord(record: AddressRecord): string {
  const { addresses, routes, previousNonlocalBind, standIns } = record;
  return JSON.stringify({
    version: VERSION,
    addresses: [...addresses],
    routes: [...routes],
    previousNonlocalBind,
    standIns: Object.fromEntries(standIns),
  }) + "\n";
}

/** Parses a record. Throws a SyntaxError with the reason. */
function parseAddressRecord(text: string): AddressRecord {
  const raw = JSON.parse(text) as Partial<Record<string, unknown>> | null;
  if (raw?.version !== VERSION) {
    throw new SyntaxError(
      `Cannot read address record: its version is '${raw?.version}', expected ${VERSION}`,
    );
  }
  const switched = raw.previousNonlocalBind;
  return {
    addresses: new Set(listOf(raw.addresses).map(recordedAddress)),
    routes: new Set(listOf(raw.routes).map((each) => recorded("a CIDR", each, tryParseCidr))),
    // It becomes an argument of `sysctl`: nothing but a digit may come through.
    ...(switched !== undefined && {
      previousNonlocalBind: recorded("a digit", switched, (text) => /^\d$/.exec(text)?.[0]),
    }),
    standIns: new Map(
      Object.entries(raw.standIns ?? {}).map(([key, text]) => [
        key as ServiceKey,
        recordedAddress(text),
      ]),
    ),
  };
}

function listOf(value: unknown): unknown[] {
  if (Array.isArray(value)) return value;
  throw new SyntaxError(`Cannot read address record: expected a list, got '${value}'`);
}

function recordedAddress(value: unknown): IpAddress {
  return recorded("an IP address", value, tryParseIpAddress);
}

function recorded<T>(what: string, value: unknown, parse: (text: string) => T | undefined): T {
  const parsed = parse(String(value));
  if (parsed !== undefined) return parsed;
  throw new SyntaxError(`Cannot read address record: expected ${what}, got '${value}'`);
}
